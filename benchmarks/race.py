"""Racing against predicting the whole pool: how many passes it saves, and what it loses.

    python benchmarks/race.py --out race
    python benchmarks/race.py --out race --data DIR --network akamaster/resnet20/cifar10

Without a network: five small networks, trained on a tenth of the digits. With one, `DIR` is as
for quality.py. A network's pool is predicted once, on all images, and kept in `--out`; then each
split searches on two thirds of the images, with and without a race, by the default strategy (or,
with `--greedy`, by the paper's rule from the same pool), and both policies are scored on the
rest. Splits of one network share images, so the networks' means say more than the splits' do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.quality import read_source

from relook.data import load_data
from relook.foundation.progress import Progress
from relook.models import Predictor, load_model
from relook.numerics.arrays import Indices
from relook.numerics.calibration import calibrated_log_likelihood, mean_log_probs
from relook.numerics.splits import stratified_split
from relook.policy.pool import conservative_pool
from relook.policy.recipes import get_recipe
from relook.policy_search.job import kept_in_race
from relook.policy_search.settings import SearchSettings
from relook.predictions.passes import Images, View, predict_views
from relook.selection import greedy_search
from relook.selection.racing import race
from relook.studies.demo import RECIPE, trained_network

LENGTH = 20
NETWORKS = 5
HELD_OUT = 1 / 3

LogProbs = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """A network's predictions of a conservative pool `[candidate, image, class]`.

    `defaults` is how many quasi-random views the pool begins with, `kept` how many of them a race
    never drops.
    """

    name: str
    log_probs: LogProbs
    labels: Indices
    defaults: int
    kept: int

    def plain(self) -> Case:
        """Return the same pool without any defaults, for the paper's rule."""
        return replace(self, defaults=0, kept=0)


@dataclass(frozen=True)
class Outcome:
    """What a race changes: held-out and search cLL, race minus full; full passes over its own."""

    held_out: float
    search: float
    fewer: float


def predicted(
    name: str, recipe: str, size: int, model: Predictor, images: Images, labels: Indices, out: Path
) -> Case:
    """Return a network's predictions, made now unless they are in `out`."""
    settings = SearchSettings(recipe=get_recipe(recipe), length=LENGTH, pool_size=size, seed=0)
    pool = conservative_pool(settings.recipe, size, settings.seed)
    views = [View(sub, index) for index, sub in enumerate(pool.candidates)]
    store = out / f"{name}-{size}-{len(labels)}.zarr"
    log_probs = predict_views(model, images, views, seed=0, store_path=store)
    return Case(name, log_probs, labels, pool.defaults, kept_in_race(settings, pool))


def digits(size: int, out: Path) -> list[Case]:
    """Return the small networks' predictions of the digits that they were not trained on."""
    found = []
    data = load_data("digits:test")
    for seed in range(NETWORKS):
        model = load_model(f"small@{trained_network(out, seed)}")
        name = f"digits, network {seed}"
        found.append(predicted(name, RECIPE, size, model, data.images, data.labels, out))
    return found


def outcome(case: Case, split: int) -> Outcome:
    """Search with and without a race on one part of the images, and score both on the rest."""
    search, rest = stratified_split(case.labels, HELD_OUT, split)
    labels = case.labels[search]

    def predict(name: str, which: Indices, images: Indices, report: Progress | None) -> LogProbs:
        return case.log_probs[np.ix_(which, search[images])]

    kept = range(case.kept)
    raced = race(predict, labels, len(case.log_probs), LENGTH, seed=split, kept=kept)
    left = raced.survivors
    defaults = np.flatnonzero(left < case.defaults).tolist()
    own = greedy_search(raced.log_probs, labels, LENGTH, defaults=defaults, preselected=True)
    whole = case.log_probs[:, search]
    full = greedy_search(whole, labels, LENGTH, defaults=range(case.defaults))
    picks = [int(left[pick]) for pick in own.picks]
    return Outcome(
        _score(case, picks, rest) - _score(case, full.picks, rest),
        _score(case, picks, search) - _score(case, full.picks, search),
        raced.full_passes / raced.passes,
    )


def _score(case: Case, picks: Sequence[int], images: Indices) -> float:
    """Return a policy's calibrated log-likelihood, the temperature fitted on the same images."""
    part = case.log_probs[np.ix_(np.array(picks), images)]
    return calibrated_log_likelihood(mean_log_probs(part), case.labels[images])[0]


def show(case: Case, splits: range) -> list[float]:
    """Print a network's outcomes and return the held-out differences."""
    found = [outcome(case, split) for split in splits]
    held_out = [each.held_out for each in found]
    shown = ", ".join(f"{value:+.4f}" for value in held_out)
    print(
        f"{case.name}: {len(case.log_probs)} candidates, {len(case.labels)} images, "
        f"{np.mean([each.fewer for each in found]):.2f} × fewer passes; held out {shown}, mean "
        f"{np.mean(held_out):+.4f}; on the search images "
        f"{np.mean([each.search for each in found]):+.4f}",
        flush=True,
    )
    return held_out


def main() -> None:
    """Run what the options ask for."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--data", type=Path)
    options.add_argument("--network")
    options.add_argument("--images", type=int, default=3000)
    options.add_argument("--pool", type=int, default=200)
    options.add_argument("--greedy", action="store_true", help="select by the paper's rule")
    options.add_argument("--splits", type=int, default=5)
    options.add_argument("--first", type=int, default=0, help="the first split's seed")
    chosen = options.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    splits = range(chosen.first, chosen.first + chosen.splits)
    if chosen.network is None:
        cases = digits(chosen.pool, chosen.out)
    else:
        source = read_source(chosen.data, chosen.network, chosen.images)
        model, labels = source.predictor, source.labels
        images = source.images
        cases = [predicted(source.name, "cifar", chosen.pool, model, images, labels, chosen.out)]
    found = [show(case.plain() if chosen.greedy else case, splits) for case in cases]
    means = np.mean(found, axis=1) if len(found) > 1 else np.array(found[0])
    error = means.std(ddof=1) / np.sqrt(len(means))
    print(f"mean {means.mean():+.4f} ± {error:.4f} (race − full, held-out cLL)")


if __name__ == "__main__":
    main()
