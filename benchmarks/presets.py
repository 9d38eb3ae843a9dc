"""A learned policy beside fixed presets at the same number of views, on a real network.

    python benchmarks/presets.py --data cifar10_test.npz --weights resnet20.th --out presets

The presets are ttach's own (mirror image, d4, ten crops of 28×28) and torchvision's ten crops of
the image padded by 4. Half of the images are held out: no search sees them, and all rows are
scored on them, under temperatures by test-time cross-validation. The policy is searched on 2,500
of the others. Everything done stays in `--out`: the same command goes on there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import ttach
from numpy.typing import NDArray
from torch import Tensor, nn

from relook.data import Dataset, load_data
from relook.deploy.tta.view_plan import plan_views
from relook.evaluation.cross_validation import Evaluation, cross_validated
from relook.foundation import wording
from relook.io.fingerprint import JSON, fingerprint
from relook.io.run_directory import RunDirectory
from relook.models import TorchPredictor, load_model
from relook.models.accelerate import accelerate
from relook.numerics.calibration import floor_log_probs, mean_log_probs
from relook.numerics.intervals import Interval, paired_interval
from relook.numerics.splits import Split, stratified_split
from relook.policy import Policy
from relook.policy.recipes import get_recipe
from relook.policy_search.job import plan_pool, plan_search
from relook.policy_search.pool_predictions import policy_of, predict_pool, select_from_pool
from relook.policy_search.settings import STRATEGIES, SearchSettings
from relook.predictions.passes import View, predict_views

from torchvision.transforms.functional import ten_crop  # isort: skip  # relook lets it load

LEARNED = "learned policy"
PAD, CROP = 4, 28
_BATCH = 250
_SCALE = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # the network's mean and deviation
_DIGITS = {"accuracy": (100.0, 2), "cll": (1.0, 4), "ece": (100.0, 2), "ece_calibrated": (100.0, 2)}

LogProbs = NDArray[np.floating]
Maker = Callable[[nn.Module, Tensor], Tensor]


@dataclass(frozen=True)
class Row:
    """One line of the table: a way to average views, how many it takes, and its scores."""

    name: str
    views: int
    scores: Evaluation


class Probabilities(nn.Module):
    """A predictor's network as ttach is used best: normalised floats in, probabilities out."""

    def __init__(self, predictor: TorchPredictor) -> None:
        super().__init__()
        self.module = predictor.module.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Return the softmax of the network's outputs."""
        return torch.softmax(self.module(images), dim=-1)


def normalised(images: Tensor) -> Tensor:
    """Return float images as the network takes them."""
    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in _SCALE)
    return (images.float() / 255 - mean) / std


def _plain(network: nn.Module, images: Tensor) -> Tensor:
    made: Tensor = network(normalised(images))
    return made


def _with_ttach(transforms: ttach.Compose) -> Maker:
    return lambda network, images: ttach.ClassificationTTAWrapper(network, transforms)(
        normalised(images)
    )


def _ten_crops(network: nn.Module, images: Tensor) -> Tensor:
    padded = nn.functional.pad(images, (PAD, PAD, PAD, PAD))
    crops = ten_crop(padded, list(images.shape[2:]))
    return torch.stack([_plain(network, crop) for crop in crops]).mean(dim=0)


PRESETS: Mapping[str, tuple[int, Maker]] = {
    "plain image": (1, _plain),
    "ttach, mirror image": (2, _with_ttach(ttach.aliases.hflip_transform())),
    "ttach, d4": (8, _with_ttach(ttach.aliases.d4_transform())),
    f"ttach, ten crops of {CROP}×{CROP}": (
        10,
        _with_ttach(ttach.aliases.ten_crop_transform(CROP, CROP)),
    ),
    f"torchvision, ten crops, padded by {PAD}": (10, _ten_crops),
}
"""What stands beside the policy: the views, and what makes probabilities of uint8 images."""


def preset_log_probs(
    predictor: TorchPredictor, images: Tensor, make: Maker, file: Path
) -> LogProbs:
    """Return a preset's averaged log-probabilities `[n, class]`; kept in a file."""
    if not file.exists():
        network = Probabilities(predictor)
        with torch.inference_mode():
            parts = [make(network, part) for part in torch.split(images, _BATCH)]
        unfinished = file.with_suffix(".part.npy")
        np.save(unfinished, torch.cat(parts).double().log().numpy())
        unfinished.replace(file)
    return floor_log_probs(np.load(file, allow_pickle=False))


def learned_policy(
    predictor: TorchPredictor, images: Dataset, settings: SearchSettings, directory: Path
) -> Policy:
    """Search a policy as `relook.search` does, on all of the images."""
    engine = accelerate(predictor, images.images, mode=settings.accelerate).predictor
    job = plan_search(engine, images, settings, directory=directory)
    shape = (len(job.views), len(images), len(images.classes))
    job = replace(
        job,
        split=Split(np.arange(len(images)), np.arange(0)),
        plan=plan_pool(settings, job.pool, shape, directory),
    )
    predicted = predict_pool(job, _shown)
    policy = policy_of(job, predicted, select_from_pool(job, predicted, None, None))
    policy.save(directory / "policy.json")
    return policy


def policy_log_probs(
    predictor: TorchPredictor, images: Tensor, policy: Policy, budgets: Sequence[int], store: Path
) -> dict[int, LogProbs]:
    """Return the policy's averaged log-probabilities `[n, class]` at each budget of views."""
    engine = accelerate(predictor, images, mode="onnx").predictor
    longest = [View(sub, index) for index, sub in enumerate(policy.for_budget(max(budgets)))]
    rows = policy.tempered(
        predict_views(engine, images, longest, seed=policy.seed, store_path=store)
    )
    return {
        budget: mean_log_probs(rows[: len(policy.for_budget(budget))], axis=0) for budget in budgets
    }


def measure(given: argparse.Namespace) -> list[Row]:
    """Return all rows, of the presets first."""
    predictor = load_model(f"cifar:resnet20@{given.weights}")
    assert isinstance(predictor, TorchPredictor)
    whole = load_data(f"npz:{given.data}")
    others, held_out = stratified_split(whole.labels, 0.5, seed=given.seed)
    _, chosen = stratified_split(whole.labels[others], given.images / len(others), seed=given.seed)
    test = whole.subset(held_out)
    search = whole.subset(others[chosen])
    settings = SearchSettings(
        get_recipe("cifar"),
        pool_size=given.pool,
        seed=given.seed,
        accelerate="onnx",
        strategy=given.strategy,
    )
    with RunDirectory(given.out) as directory:
        used: dict[str, JSON] = {"search": search.fingerprint, "held out": test.fingerprint}
        directory.check_settings({"model": predictor.fingerprint, **used})
        found: list[tuple[str, int, LogProbs]] = []
        for number, (name, (views, make)) in enumerate(PRESETS.items()):
            file = directory.path / f"preset-{number}.npy"
            found.append((name, views, preset_log_probs(predictor, test.plain, make, file)))
        # Another strategy or pool is another search beside the same presets.
        place = directory.path / f"{given.strategy}-{given.pool}"
        place.mkdir(exist_ok=True)
        policy = learned_policy(predictor, search, settings, place)
        budgets = sorted({views for _, views, _ in found} - {1})
        store = (
            place / f"heldout-{fingerprint(plan_views(policy, temperature=None).record())[:8]}.zarr"
        )
        rows = policy_log_probs(predictor, test.plain, policy, budgets, store)
        found += [(LEARNED, views, rows[views]) for views in budgets]
    return [
        Row(name, views, cross_validated(log_probs, test.labels, seed=given.seed))
        for name, views, log_probs in found
    ]


def show(rows: Sequence[Row], seed: int) -> None:
    """Print the table: each preset beside the policy with as many views."""
    learned = {row.views: row for row in rows if row.name == LEARNED}
    heads = ("views", "accuracy %", "cLL", "ECE %", "ECE % calibrated")
    print(f"| | {' | '.join(heads)} | policy − this, cLL | policy − this, accuracy |")
    print("| --- |" + " --- |" * (len(heads) + 2))
    for row in sorted(rows, key=lambda one: (one.views, one.name == LEARNED)):
        cells = [
            wording.plain(row.scores.metrics[name] * scale, digits)
            for name, (scale, digits) in _DIGITS.items()
        ]
        rival = learned.get(row.views)
        if rival is None or rival is row:
            cells += ["", ""]
        else:
            cells += [_text(_gain(rival, row, "cll", seed), 4, 1.0)]
            cells += [_text(_gain(rival, row, "accuracy", seed), 2, 100.0)]
        print(f"| {row.name} | {row.views} | {' | '.join(cells)} |")


def _gain(one: Row, other: Row, metric: str, seed: int) -> Interval:
    difference = one.scores.per_image[metric] - other.scores.per_image[metric]
    return paired_interval(difference)


def _text(one: Interval, digits: int, scale: float) -> str:
    return f"{wording.signed(one.estimate * scale, digits)} {wording.interval(one, digits, scale)}"


def _shown(stage: str, done: int, total: int, score: float | None = None) -> None:
    if done % (total // 20 or 1) < _BATCH or done == total:
        print(f"\rpool: {done:,} of {total:,} passes", end="", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or read what was measured, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="CIFAR-10's test set as .npz")
    parser.add_argument("--weights", type=Path, required=True, help="of the public ResNet-20")
    parser.add_argument("--out", type=Path, default=Path("presets"), help="what is done stays here")
    parser.add_argument("--images", type=int, default=2500, help="to search on")
    parser.add_argument("--pool", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    default = SearchSettings(get_recipe("cifar")).strategy
    parser.add_argument("--strategy", choices=STRATEGIES, default=default)
    given = parser.parse_args(arguments)
    rows = measure(given)
    print(
        f"\n{len(rows[0].scores.per_image['cll']):,} held-out images, strategy {given.strategy}\n"
    )
    show(rows, given.seed)


if __name__ == "__main__":
    main()
