"""Domain shift: policies found on clean images, scored on corrupted ones (the paper's study)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from relook.data.base import Dataset
from relook.data.corrupted import Source
from relook.errors import RelookError
from relook.evaluation.baselines import BASELINES, POLICY_METHOD, Options, label_of
from relook.evaluation.compare import (
    available_methods,
    check_policies,
    checked_budgets,
    with_magnitude,
)
from relook.evaluation.comparison import Measured
from relook.evaluation.cross_validation import cross_validated, prefix_log_probs
from relook.evaluation.scoring import Key, Line, Setup, best_rival, lines_of, predicted
from relook.foundation.progress import Progress, part_of
from relook.models import Predictor
from relook.numerics.arrays import FloatArray
from relook.numerics.intervals import Interval, mean_and_deviation, paired_bootstrap
from relook.numerics.randomness import check_seed
from relook.numerics.splits import stratified_split
from relook.policy import Policy
from relook.policy.recipes import Recipe, get_recipe
from relook.predictions.passes import distinct_views
from relook.studies.corruption_error import has_normaliser
from relook.studies.corruptions import check_corruptions, check_severities, corrupt_images
from relook.studies.robustness_result import MEAN, Robustness, ShiftRow

METHODS = ("plain", "cf", "mgrid")
"""The baselines of the paper's study."""

CLEAN = ("clean", 0)
Condition = tuple[str, int]
"""A corruption and a severity."""


@dataclass
class _Tally:
    """What is found on the way, by method and budget.

    `errors[key][condition]` holds 1 where an image is wrong, `[n]`, averaged over runs;
    `rates` the error rates and `clls` the cLLs of the runs.
    """

    errors: dict[Key, dict[Condition, FloatArray]] = field(default_factory=dict)
    rates: dict[Key, dict[Condition, list[float]]] = field(default_factory=dict)
    clls: dict[Key, dict[Condition, list[float]]] = field(default_factory=dict)
    views: dict[Key, int] = field(default_factory=dict)

    def add(
        self, key: Key, condition: Condition, wrong: FloatArray, cll: float, views: int
    ) -> None:
        """Take in one run."""
        rates = self.rates.setdefault(key, {}).setdefault(condition, [])
        before = self.errors.setdefault(key, {}).get(condition, np.zeros(len(wrong)))
        self.errors[key][condition] = (before * len(rates) + wrong) / (len(rates) + 1)
        rates.append(float(wrong.mean()))
        self.clls.setdefault(key, {}).setdefault(condition, []).append(cll)
        self.views[key] = max(views, self.views.get(key, 0))

    def uce(self, key: Key, corruptions: Sequence[str], severities: Sequence[int]) -> FloatArray:
        """Return each image's mean error over corruptions and severities, `[n]`."""
        found = [self.errors[key][name, s] for name in corruptions for s in severities]
        return np.asarray(np.mean(found, axis=0))


def robustness(
    predictor: Predictor,
    dataset: Dataset,
    policy: Policy | Sequence[Policy],
    *,
    recipe: Recipe | str,
    validation: Dataset | None = None,
    corrupted: Source | None = None,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] | None = None,
    budgets: Sequence[int] = (5, 10, 20),
    methods: Sequence[str] | None = METHODS,
    options: Options | None = None,
    images: int | None = None,
    seed: int = 0,
    runs: int = 1,
    indices: ArrayLike | None = None,
    store_path: str | Path | None = None,
    batch: int | None = None,
    progress: Progress | None = None,
    halvings: int = 5,
    resamples: int = 2000,
    record: Mapping[str, Any] | None = None,
) -> Robustness:
    """Score the policy and baselines under every corruption at every severity.

    `dataset` holds clean images that the search has not seen, `validation` clean ones that
    MGrid may look for its magnitude on. Corruptions are made here from the seed and the
    images' `indices`, or come from `corrupted(name, severity)`. `images` takes a stratified part
    of the data set. What `policy`, `budgets`, `methods` and `runs` mean is as in `relook.compare`.
    `store_path` is a directory for predictions; an interrupted call goes on.
    """
    policies = (policy,) if isinstance(policy, Policy) else tuple(policy)
    check_policies(policies, runs)
    names, levels = check_corruptions(corruptions), check_severities(severities)
    places = np.arange(len(dataset)) if indices is None else np.asarray(indices, dtype=np.int64)
    kept = stratified_part(dataset, images, check_seed(seed))
    # Corrupted images have the size of the model's input, so the clean ones get it too.
    clean = dataset.subset(kept)
    clean = replace(clean, images=clean.plain)
    setup = Setup(
        predictor=predictor,
        dataset=clean,
        places=places[kept],
        recipe=get_recipe(recipe),
        budgets=checked_budgets(budgets),
        options=options or Options(),
        seed=seed,
        runs=max(runs, len(policies)),
        halvings=halvings,
        resamples=resamples,
        store_path=None if store_path is None else Path(store_path) / "clean.zarr",
        batch=batch,
        progress=progress,
    )
    chosen, left_out = available_methods(setup, methods, validation)
    setup, grid = with_magnitude(setup, validation if "mgrid" in chosen else None)
    lines = [line for method in chosen for line in lines_of(setup, method, policies)]
    conditions: list[Condition] = [CLEAN, *((name, level) for name in names for level in levels)]
    tally, classes = _Tally(), 0
    for number, condition in enumerate(conditions):
        shown = _shown(setup, condition, corrupted, kept)
        here = _at(setup, condition, shown, _share(setup, lines, number, len(conditions)))
        classes = _score(here, lines, condition, tally)
    return Robustness(
        rows=_rows(setup, tally, chosen, names, levels),
        budgets=setup.budgets,
        corruptions=names,
        severities=levels,
        images=len(clean),
        normalised=has_normaliser(classes, levels),
        made=corrupted is None,
        settings={
            **_settings(setup, chosen, left_out),
            "grid_search": None if grid is None else [list(score) for score in grid.scores],
            **(record or {}),
        },
    )


def stratified_part(dataset: Dataset, images: int | None, seed: int) -> NDArray[np.int64]:
    """Return the places of `images` images, of each class in proportion; None: all."""
    if images is None or images >= len(dataset):
        return np.arange(len(dataset))
    if images < 4:
        raise RelookError(f"expected at least 4 images to score on, got {images}")
    share = images / len(dataset)
    return stratified_split(dataset.labels, share, seed, dataset.groups)[1]


def _shown(
    setup: Setup, condition: Condition, corrupted: Source | None, kept: NDArray[np.int64]
) -> Tensor:
    """Return the images under a condition."""
    name, level = condition
    clean = setup.dataset.plain
    if condition == CLEAN:
        return clean
    if corrupted is None:
        return corrupt_images(clean, name, level, seed=setup.seed, indices=setup.places)
    found = corrupted(name, level)[kept]
    if found.shape != clean.shape:
        raise RelookError(
            f"{name}, severity {level}: expected corrupted images of shape {list(clean.shape)}, "
            f"got {list(found.shape)}"
        )
    return found


def _at(setup: Setup, condition: Condition, images: Tensor, progress: Progress | None) -> Setup:
    path = setup.store_path
    if path is not None and condition != CLEAN:
        path = path.with_name(f"{condition[0]}-{condition[1]}.zarr")
    dataset = replace(setup.dataset, images=images)
    return replace(setup, dataset=dataset, store_path=path, progress=progress)


def _share(setup: Setup, lines: Sequence[Line], done: int, conditions: int) -> Progress | None:
    """Report the passes of one condition as part of those of all."""
    distinct, _ = distinct_views(view for line in lines for view in line.views)
    passes = len(distinct) * len(setup.dataset)
    return part_of(setup.progress, done * passes, conditions * passes)


def _score(setup: Setup, lines: Sequence[Line], condition: Condition, tally: _Tally) -> int:
    """Predict all views under one condition and score the budgets; returns the classes."""
    read = predicted(setup, [view for line in lines for view in line.views])
    labels, groups = setup.dataset.labels, setup.dataset.groups
    classes = 0
    for line in lines:
        lengths = _lengths(setup, line)
        prefixes = sorted(set(lengths.values()))
        means = prefix_log_probs(read(line.views), prefixes)
        for length, mean in zip(prefixes, means, strict=True):
            classes = mean.shape[1]
            found = cross_validated(
                mean, labels, seed=setup.seed, halvings=setup.halvings, groups=groups
            )
            wrong = 1 - found.per_image["accuracy"]
            views = line.policy[:length].views
            for budget in (b for b, own in lengths.items() if own == length):
                tally.add((line.method, budget), condition, wrong, found.metrics["cll"], views)
    return classes


def _lengths(setup: Setup, line: Line) -> dict[int, int]:
    """Return how many entries are scored for each budget."""
    fixed = None if line.method == POLICY_METHOD else BASELINES[line.method].budget
    if fixed is not None:
        return {fixed: len(line.policy)}
    return {budget: len(line.policy.for_budget(budget)) for budget in setup.budgets}


def _rows(
    setup: Setup,
    tally: _Tally,
    methods: Sequence[str],
    names: Sequence[str],
    levels: Sequence[int],
) -> tuple[ShiftRow, ...]:
    muce = {key: float(tally.uce(key, names, levels).mean()) for key in tally.errors}
    rows = []
    for key in sorted(muce, key=lambda key: (methods.index(key[0]), key[1])):
        rival = best_rival(key, {one: -error for one, error in muce.items()})
        plain = None if key[0] == "plain" else ("plain", 1)
        rows.append(
            ShiftRow(
                method=key[0],
                label=label_of(key[0]),
                budget=key[1],
                views=tally.views[key],
                clean_error=float(np.mean(tally.rates[key][CLEAN])),
                clean_cll=float(np.mean(tally.clls[key][CLEAN])),
                errors=_means(tally.rates[key], names, levels),
                clls=_means(tally.clls[key], names, levels),
                muce=_over_runs(tally.rates[key], names, levels),
                over_plain=_differences(setup, tally, key, plain, names, levels),
                over_rival=_differences(setup, tally, key, rival, names, levels),
                rival=None if rival is None else rival[0],
            )
        )
    return tuple(rows)


def _means(
    found: Mapping[Condition, Sequence[float]], names: Sequence[str], levels: Sequence[int]
) -> dict[str, tuple[float, ...]]:
    return {name: tuple(float(np.mean(found[name, level])) for level in levels) for name in names}


def _over_runs(
    rates: Mapping[Condition, Sequence[float]], names: Sequence[str], levels: Sequence[int]
) -> Measured:
    runs = np.mean([rates[name, level] for name in names for level in levels], axis=0)
    return Measured(*mean_and_deviation(runs))


def _differences(
    setup: Setup,
    tally: _Tally,
    one: Key,
    other: Key | None,
    names: Sequence[str],
    levels: Sequence[int],
) -> dict[str, Interval] | None:
    """Return the differences in muCE, and for the policy in each uCE; an image counts whole."""
    if other is None:
        return None
    parts: dict[str, Sequence[str]] = {MEAN: names}
    if one[0] == POLICY_METHOD:
        parts = {**{name: (name,) for name in names}, **parts}
    return {
        part: paired_bootstrap(
            tally.uce(one, own, levels) - tally.uce(other, own, levels),
            seed=setup.seed,
            resamples=setup.resamples,
            groups=setup.dataset.groups,
        )
        for part, own in parts.items()
    }


def _settings(setup: Setup, methods: Sequence[str], left_out: Mapping[str, str]) -> dict[str, Any]:
    return {
        "recipe": setup.recipe.name,
        "methods": list(methods),
        "left_out": dict(left_out),
        "seed": setup.seed,
        "runs": setup.runs,
        "halvings": setup.halvings,
        "resamples": setup.resamples,
        "randaugment": asdict(setup.options),
        "model": {"fingerprint": setup.predictor.fingerprint},
        "data": {"name": setup.dataset.name, "fingerprint": setup.dataset.fingerprint},
    }
