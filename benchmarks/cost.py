"""Cost against quality on one network: early exit, learned weights and racing, for the same policy.

    python benchmarks/cost.py --data DIR --network akamaster/resnet20/cifar10 --out cost
    python benchmarks/cost.py --table docs/results/cost

`DIR` is as for quality.py. A third of the images serves the search, a third to learn early exits
and weights, a third to report on. The search runs twice, over the whole pool and as a race; all
else is of the first policy. What is done is kept in `--out`: the same command goes on there.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.quality import Source, read_source

from relook.data import Dataset
from relook.deploy.early_exit.learn import learn_early_exit, parse_target
from relook.deploy.early_exit.report import report_early_exit
from relook.deploy.tta.view_plan import plan_views
from relook.deploy.weights import learn_weights
from relook.evaluation.cross_validation import cross_validated
from relook.foundation import wording
from relook.io.files import write_json_atomic
from relook.numerics.arrays import Indices
from relook.numerics.calibration import mean_log_probs
from relook.numerics.intervals import Interval, paired_interval
from relook.numerics.splits import stratified_split
from relook.policy import Policy
from relook.policy.recipes import get_recipe
from relook.policy_search.search import PolicySearch, search_dataset
from relook.policy_search.settings import SearchSettings
from relook.predictions.passes import View, predict_views

TARGETS = ("accuracy-loss=0.005", "views=2", "views=3")
LENGTH = 20
COLUMNS = (
    "network",
    "views, cLL",
    "exit: views",
    "accuracy, exit − all views",
    "cLL, exit − as many views for every image",
    "cLL, learned weights − equal ones",
    "race: passes",
    "cLL, race − whole pool",
)


def part(source: Source, places: Indices) -> Dataset:
    """Return some of the images."""
    names = tuple(str(i) for i in range(int(source.labels.max()) + 1))
    return Dataset(source.images[places], source.labels[places], names, source.name)


def searched(
    source: Source, search: Dataset, report: Dataset, run: Path, race: bool, pool: int
) -> PolicySearch:
    """Return what the default search finds on one third of the images."""
    settings = SearchSettings(
        recipe=get_recipe("cifar"), length=LENGTH, pool_size=pool, seed=0, race=race
    )
    return search_dataset(source.predictor, search, settings, test=report, run=run)


def per_image(source: Source, policy: Policy, report: Dataset, store: Path) -> NDArray[np.float64]:
    """Return each image's calibrated log-likelihood under a policy."""
    views = [View(sub, index) for index, (sub, _) in enumerate(policy.counts())]
    counts = [count for _, count in policy.counts()]
    found = predict_views(
        source.predictor, report.images, views, seed=policy.seed, store_path=store
    )
    mean = mean_log_probs(np.repeat(policy.tempered(found), counts, axis=0))
    return cross_validated(mean, report.labels, seed=0).per_image["cll"]


def exits(
    source: Source, policy: Policy, learn: Dataset, report: Dataset, out: Path
) -> dict[str, Any]:
    """Return what early exits and learned weights are worth for a policy."""
    plan = plan_views(policy, temperature=None)
    learned, reported = (
        predict_views(
            source.predictor,
            one.images,
            plan.views,
            seed=plan.seed,
            store_path=out / f"{source.name}-{name}.zarr",
        )
        for one, name in ((learn, "learn"), (report, "full"))
    )
    found: dict[str, Any] = {"views": len(plan.views)}
    for target in TARGETS:
        rule = learn_early_exit(learned, learn.labels, plan.policy, parse_target(target), seed=0)
        told = report_early_exit(
            rule, reported, report.labels, plan.policy, learned_on=(learned, learn.labels)
        ).to_json()
        found[target] = {name: told[name] for name in ("own", "over_same", "over_full", "saving")}
    weights = learn_weights(
        plan.policy.tempered(learned),
        learn.labels,
        counts=[count for _, count in plan.policy.counts()],
        seed=0,
    )
    found["weights"] = {
        "fit_gain": weights.fit_cll - weights.fit_cll_equal,
        "gain": [weights.gain.estimate, weights.gain.low, weights.gain.high],
        "used": weights.better,
    }
    return found


def measured(source: Source, pool: int, out: Path) -> dict[str, Any]:
    """Return all figures of a network."""
    rest, search = stratified_split(source.labels, 1 / 3, seed=0)
    learn, report = stratified_split(source.labels[rest], 1 / 2, seed=0)
    images, learn_on, report_on = (part(source, one) for one in (search, rest[learn], rest[report]))
    full, raced = (
        searched(source, images, report_on, out / f"{source.name}-{name}", name == "race", pool)
        for name in ("full", "race")
    )
    race = raced.race or {}
    scores = [
        per_image(source, one.policy, report_on, out / f"{source.name}-{name}.zarr")
        for one, name in ((full, "full"), (raced, "race"))
    ]
    change = paired_interval(scores[1] - scores[0])
    return {
        "network": source.name,
        "images": [len(images), len(learn_on), len(report_on)],
        "pool": len(full.pool),
        "cll": float(scores[0].mean()),
        "race": {
            "fewer": race["full_passes"] / race["passes"],
            "cll": [change.estimate, change.low, change.high],
        },
        **exits(source, full.policy, learn_on, report_on, out),
    }


def shown(values: Any, digits: int = 4, scale: float = 1.0) -> str:
    """Return an estimate with its interval."""
    numbers = values.values() if isinstance(values, dict) else values
    estimate, low, high = list(numbers)[:3]
    one = Interval(estimate, low, high, confidence=0.95)
    return f"{wording.signed(one.estimate * scale, digits)} {wording.interval(one, digits, scale)}"


def table(folder: Path) -> None:
    """Print what stands in a folder's JSON files."""
    print(f"| {' | '.join(COLUMNS)} |\n| --- | --- |{' ---: |' * (len(COLUMNS) - 2)}")
    for path in sorted(folder.glob("*.json")):
        one = json.loads(path.read_text())
        rule = one[TARGETS[0]]
        print(
            f"| {one['network']} | {one['views']}, {wording.plain(one['cll'], 4)} | "
            f"{rule['own']['views']:.2f} | {shown(rule['over_full']['accuracy'], 2, 100)} | "
            f"{shown(rule['over_same']['cll'])} | {shown(one['weights']['gain'])} | "
            f"{one['race']['fewer']:.1f} × fewer | {shown(one['race']['cll'])} |"
        )


def main() -> None:
    """Measure a network, or print the table of what was measured."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path)
    options.add_argument("--network")
    options.add_argument("--images", type=int, default=7500)
    options.add_argument("--pool", type=int, default=100)
    options.add_argument("--out", type=Path)
    options.add_argument("--table", type=Path, help="a folder of results to print")
    chosen = options.parse_args()
    if chosen.table is not None:
        table(chosen.table)
        return
    chosen.out.mkdir(parents=True, exist_ok=True)
    source = read_source(chosen.data, chosen.network, chosen.images)
    found = measured(source, chosen.pool, chosen.out)
    write_json_atomic(chosen.out / f"{source.name}.json", found)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
