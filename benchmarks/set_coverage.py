"""How often intervals cover the truth, and verdicts claim what is not so, by number of images.

    python benchmarks/set_coverage.py predict --data DIR --network NAME --out wrn.npz
    python benchmarks/set_coverage.py measure wrn.npz --sizes 30 60 100 300 1000 --samples 400

`predict` writes `log_probs` [view, image, class] (plain, mirrored, five crops with flips) and
`labels` of all test images of DIR (see quality.py); files of that form made elsewhere do as well.
`measure` takes the images for the whole population, draws samples from it with replacement,
compares two methods on each as `relook compare` does, and counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

sys.path.pop(0)  # this directory, where this file would hide the package of its name
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.quality import load_networks

from relook.evaluation.comparison import HELPS, HURTS, outcome_of
from relook.evaluation.cross_validation import cross_validated
from relook.models import as_predictor
from relook.models.accelerate import accelerate
from relook.numerics.arrays import FloatArray, Labels
from relook.numerics.calibration import calibrated_log_likelihood, mean_log_probs
from relook.numerics.intervals import (
    Interval,
    likely_variance,
    paired_interval,
    share_interval,
)
from relook.numerics.metrics import accuracy
from relook.policy import Step, SubPolicy
from relook.policy.pool import sample_pool
from relook.policy.recipes import RECIPES, Group
from relook.predictions.passes import View, predict_views
from relook.selection.objectives import class_weights

METRICS = ("cll", "accuracy")
_COPIES = 5  # images of a group, at most
_RARE = 0.2  # how often the last class comes, compared with the first


@dataclass(frozen=True)
class Case:
    """Two methods' predictions `[n, c]` of a whole population, and how samples are drawn of it."""

    name: str
    one: FloatArray
    other: FloatArray
    labels: Labels
    swapped: bool = False
    grouped: bool = False
    balanced: bool = False

    def truth(self) -> dict[str, float]:
        """Return the differences in the whole population."""
        if self.swapped:
            return dict.fromkeys(METRICS, 0.0)
        weights = class_weights(self.labels) if self.balanced else None
        scores = [
            (
                calibrated_log_likelihood(each, self.labels, weights)[0],
                accuracy(each, self.labels, weights),
            )
            for each in (self.one, self.other)
        ]
        return {name: scores[0][place] - scores[1][place] for place, name in enumerate(METRICS)}

    def sampled(self, images: int, generator: np.random.Generator) -> dict[str, Interval]:
        """Return the differences that a sample shows."""
        chance = None
        if self.balanced:
            classes = self.one.shape[1]
            chance = _RARE ** (self.labels / (classes - 1))
            chance /= chance.sum()
        drawn = generator.choice(len(self.labels), size=images, p=chance)
        groups = None
        if self.grouped:
            groups = np.repeat(np.arange(images), generator.integers(1, _COPIES + 1, images))
            groups = groups[:images]
            drawn = drawn[groups]
        one, other, labels = self.one[drawn], self.other[drawn], self.labels[drawn]
        if self.swapped:
            coin = (generator.random(images) < 0.5)[np.arange(images) if groups is None else groups]
            coin = coin[:, None]
            one, other = np.where(coin, one, other), np.where(coin, other, one)
        weights = class_weights(labels) if self.balanced else None
        found, base = (
            cross_validated(each, labels, seed=0, groups=groups, weights=weights)
            for each in (one, other)
        )
        cll, right = (found.per_image[name] - base.per_image[name] for name in METRICS)
        likely = likely_variance(found.samples["cll"], base.samples["cll"])
        return {
            "cll": paired_interval(cll, groups=groups, weights=weights, likely=likely),
            "accuracy": share_interval(right, groups=groups, weights=weights),
        }


def cases(log_probs: FloatArray, labels: Labels) -> Iterator[Case]:
    """Yield pairs of methods with a known difference."""
    plain, flip, crop = log_probs[0], log_probs[1], log_probs[-1]
    both, every = mean_log_probs(log_probs[:2]), mean_log_probs(log_probs)
    yield Case("exchangeable", plain, flip, labels, swapped=True)
    yield Case("small gain", both, plain, labels)
    yield Case("gain", every, plain, labels)
    yield Case("loss", crop, every, labels)
    yield Case("gain, groups", every, plain, labels, grouped=True)
    yield Case("exchangeable, groups", plain, flip, labels, swapped=True, grouped=True)
    yield Case("gain, rare classes", every, plain, labels, balanced=True)
    halves = np.arange(log_probs.shape[2]) % 2 == 0
    two = np.stack([mean_log_sum(log_probs[..., part]) for part in (halves, ~halves)], axis=-1)
    yield Case("exchangeable, 2 classes", two[0], two[1], labels % 2, swapped=True)
    yield Case("gain, 2 classes", mean_log_probs(two), two[0], labels % 2)


def mean_log_sum(log_probs: FloatArray) -> FloatArray:
    """Return the log of the summed probabilities of classes."""
    return np.asarray(mean_log_probs(log_probs, axis=-1) + np.log(log_probs.shape[-1]))


def measure(case: Case, images: int, samples: int) -> str:
    """Return a row: what was counted in so many samples."""
    generator = np.random.default_rng([images, samples])
    truth = case.truth()
    found = [case.sampled(images, generator) for _ in range(samples)]
    missed = {
        name: [(one[name].low > truth[name], one[name].high < truth[name]) for one in found]
        for name in METRICS
    }
    outcomes = [outcome_of(one["cll"]) for one in found]
    errors = np.array([one["cll"].estimate for one in found]) - truth["cll"]
    cells = [case.name, f"{images:,}", f"{truth['cll']:+.4f}"]
    for name in METRICS:
        above, below = 100 * np.mean(missed[name], axis=0)
        cells.append(f"{100 - above - below:.1f} ({above:.1f} + {below:.1f})")
    cells += [f"{100 * np.mean([one == what for one in outcomes]):.1f}" for what in (HELPS, HURTS)]
    cells += [f"{errors.mean():+.4f}", f"{np.abs(errors).mean():.4f}"]
    return "| " + " | ".join(cells) + " |"


def show(files: Sequence[Path], sizes: Sequence[int], samples: int, names: Sequence[str]) -> None:
    """Print a table for each file of predictions."""
    for path in files:
        with np.load(path) as arrays:
            log_probs, labels = arrays["log_probs"].astype(np.float64), arrays["labels"]
        _, population, classes = log_probs.shape
        print(f"\n{path.stem}: {population:,} images, {classes:,} classes\n")
        print(
            "| case | images | cLL difference | cLL covered % (missed) "
            "| accuracy covered % (missed) | Helps % | Hurts % | bias | mean error |\n"
            + "| --- " * 9
            + "|"
        )
        for case in cases(log_probs, labels):
            for images in sizes if not names or case.name in names else ():
                print(measure(case, images, samples), flush=True)


def predict(data: Path, network: str, out: Path) -> None:
    """Write the predictions of a network of networks.py for its whole test set."""
    module, mean, std, dataset = load_networks(data).load(network)
    with np.load(data / f"{dataset}_test.npz") as arrays:
        pixels, labels = arrays["images"], arrays["labels"]
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    model = accelerate(as_predictor(module, mean=mean, std=std), images[:256], mode="onnx")
    recipe = replace(RECIPES["cifar"], groups=(Group(5, 0, 0),))
    crops = sample_pool(recipe, 5, seed=1, plain=False)
    subs = (SubPolicy(), SubPolicy((Step("flip", 0),)), *crops)
    views = [View(sub, index) for index, sub in enumerate(subs)]
    np.savez(out, log_probs=predict_views(model.predictor, images, views, seed=0), labels=labels)


def main() -> None:
    """Run what the options ask for."""
    options = argparse.ArgumentParser(description=__doc__)
    verbs = options.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("predict")
    one.add_argument("--data", type=Path, required=True)
    one.add_argument("--network", required=True)
    one.add_argument("--out", type=Path, required=True)
    two = verbs.add_parser("measure")
    two.add_argument("files", type=Path, nargs="+")
    two.add_argument("--sizes", type=int, nargs="+", default=[30, 60, 100, 300, 1000])
    two.add_argument("--samples", type=int, default=400)
    two.add_argument("--cases", nargs="+", default=[])
    chosen = options.parse_args()
    if chosen.verb == "predict":
        predict(chosen.data, chosen.network, chosen.out)
    else:
        show(chosen.files, chosen.sizes, chosen.samples, chosen.cases)


if __name__ == "__main__":
    main()
