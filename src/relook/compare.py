"""Every baseline and the policy, side by side on the same held-out images.

Each distinct view is predicted once, whatever the number of methods, budgets and runs that
use it; a method's figures at all budgets come from prefixes of one list of views.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.baselines import (
    BASELINES,
    GRID,
    POLICY_METHOD,
    Options,
    check_methods,
    label_of,
    randaugment,
)
from relook.calibration import FloatArray, calibrated_log_likelihood, mean_log_probs
from relook.comparison import ChangedImage, Comparison, Measured, Row
from relook.cost import Slowdown, measure_slowdown
from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluate import (
    Evaluation,
    cross_calibrated,
    cross_validated,
    prefix_log_probs,
    reliability_bins,
)
from relook.files import write_bytes_atomic
from relook.models import Predictor
from relook.policy import DrawKind, Policy
from relook.predict import Progress, View, distinct_views, fill_store, predict_views
from relook.randomness import check_seed, uniforms
from relook.recipes import Recipe, get_recipe
from relook.statistics import Interval, mean_and_deviation, paired_bootstrap
from relook.verdict import MARGIN, judge

ALL_PREFIXES_TO = 20
"""Up to so many views every prefix is scored, for the curves; beyond, the asked budgets."""

_RUN_STRIDE = 1 << 16  # view indices of one run: fresh draws never meet those of another
_EXAMPLES = 12
_GALLERY = 6
_GALLERY_SLOT = 1 << 31

Read = Callable[[Sequence[View]], NDArray[np.float32]]
Key = tuple[str, int]


@dataclass(frozen=True)
class _Line:
    """One method in one run: a policy for the largest budget, and where to score it."""

    method: str
    run: int
    policy: Policy

    @property
    def views(self) -> list[View]:
        return [View(sub, self.run * _RUN_STRIDE + i) for i, sub in enumerate(self.policy)]


@dataclass
class _Scores:
    """What was found on the way: evaluations by method and budget, one a run."""

    evaluations: dict[Key, list[Evaluation]] = field(default_factory=dict)
    views: dict[Key, int] = field(default_factory=dict)
    log_probs: dict[str, FloatArray] = field(default_factory=dict)

    def per_image(self, key: Key, name: str) -> FloatArray:
        """Return a metric of each image `[n]`, averaged over the runs."""
        return np.mean([one.per_image[name] for one in self.evaluations[key]], axis=0)


def compare(
    predictor: Predictor,
    dataset: Dataset,
    policy: Policy | Sequence[Policy],
    *,
    validation: Dataset | None = None,
    recipe: Recipe | str,
    budgets: Sequence[int] = (1, 5, 10, 20),
    methods: Sequence[str] | None = None,
    options: Options | None = None,
    seed: int = 0,
    runs: int = 1,
    draws: DrawKind | None = None,
    margin: float = MARGIN,
    indices: ArrayLike | None = None,
    store_path: str | Path | None = None,
    batch: int | None = None,
    progress: Progress | None = None,
    halvings: int = 5,
    resamples: int = 2000,
    measure_cost: bool = True,
    record: Mapping[str, Any] | None = None,
) -> Comparison:
    """Score the policy and every baseline at every budget on held-out images.

    `methods` names the baselines (default: all); the plain image and the policy are always
    there. `validation` holds the images that MGrid looks for its magnitude on. A budget
    counts distinct views. `runs` > 1 draws the random methods anew, with the seeds seed,
    seed + 1, …; a policy under fresh draws gets other draws, one under fixed draws is what
    it is, unless several policies are given, one a run. `draws` is how the baselines draw
    (default: as the policy does). `indices` are the images' places in the data set that they
    were taken from; `record` is added to the settings. With `store_path` predictions are
    kept, and an interrupted call goes on. All but `slowdown` follows from the seeds.
    """
    policies = (policy,) if isinstance(policy, Policy) else tuple(policy)
    budgets = _checked_budgets(budgets)
    _check_policies(policies, runs)
    recipe, seed = get_recipe(recipe), check_seed(seed)
    draws = draws or ("fixed" if policies[0].is_fixed else "fresh")
    options = options or Options()
    chosen, left_out = _available(check_methods(methods), dataset, validation, budgets)
    runs = max(runs, len(policies))
    places = np.arange(len(dataset)) if indices is None else np.asarray(indices)
    grid: dict[str, float] = {}
    if "mgrid" in chosen and validation is not None:
        grid = search_magnitude(
            predictor,
            validation,
            recipe,
            options=options,
            seed=seed,
            draws=draws,
            store_path=None if store_path is None else _beside(Path(store_path), "-grid"),
            batch=batch,
            progress=progress,
        )
        options = replace(options, grid_magnitude=float(max(grid, key=lambda m: grid[m])))
    lines = [
        line
        for method in chosen
        for line in _lines(method, policies, recipe, budgets[-1], seed, runs, draws, options)
    ]
    read = _predicted(
        predictor, dataset, lines, places, seed=seed, store_path=store_path, batch=batch,
        progress=progress,
    )
    scores = _scored(lines, read, dataset, budgets, seed, halvings)
    costs = None
    if measure_cost:
        measured = {line.method: line.policy for line in lines if line.run == 0}
        costs = measure_slowdown(predictor, dataset.images, measured, seed)
    rows = _rows(scores, chosen, budgets, costs, seed, resamples, dataset.groups)
    verdict = judge(
        rows,
        {key: scores.per_image(key, "cll") for key in scores.evaluations},
        budgets=budgets,
        margin=margin,
        seed=seed,
        resamples=resamples,
        groups=dataset.groups,
    )
    ...
