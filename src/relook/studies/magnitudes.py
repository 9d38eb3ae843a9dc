"""RandAugment at test time, magnitude by magnitude (the paper's figure on the magnitude)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluation.baselines import GRID, Options
from relook.evaluation.cross_validation import cross_validated
from relook.evaluation.randaugment_magnitude import grid_log_probs
from relook.foundation.progress import Progress
from relook.models import Predictor
from relook.numerics.randomness import check_seed
from relook.policy import DrawKind
from relook.policy.recipes import Recipe, get_recipe
from relook.studies.magnitudes_result import MagnitudeRow, Magnitudes


def magnitudes(
    predictor: Predictor,
    dataset: Dataset,
    *,
    recipe: Recipe | str,
    grid: Sequence[float] = GRID,
    views: int = Options.grid_views,
    length: int = Options.length,
    runs: int = 1,
    seed: int = 0,
    draws: DrawKind = "fixed",
    indices: ArrayLike | None = None,
    store_path: str | Path | None = None,
    batch: int | None = None,
    progress: Progress | None = None,
    halvings: int = 5,
    record: Mapping[str, Any] | None = None,
) -> Magnitudes:
    """Score `views` views of RandAugment at each magnitude by every metric.

    A view has `length` transforms with magnitudes uniform on [0, M]; the magnitudes M share
    their transforms and directions, so they differ in strength alone. Run r draws them from
    seed + r. Metrics are cross-validated as in `relook.compare`. The paper averages 100 views.
    `store_path` is a directory for predictions; an interrupted call goes on.
    """
    seed, recipe, grid = check_seed(seed), get_recipe(recipe), checked_grid(grid)
    for name, value in (("views", views), ("runs", runs)):
        if value < 1:
            raise RelookError(f"expected {name} of at least 1, got {value}")
    if length < 0:
        raise RelookError(f"expected a length of at least 0 transforms, got {length}")
    found: dict[float, list[Mapping[str, float]]] = {magnitude: [] for magnitude in grid}
    for run in range(runs):
        predicted = grid_log_probs(
            predictor,
            dataset,
            recipe,
            views=views,
            length=length,
            seed=seed + run,
            draws=draws,
            grid=grid,
            indices=None if indices is None else np.asarray(indices, dtype=np.int64),
            store_path=None if store_path is None else Path(store_path) / f"run-{run}",
            batch=batch,
            progress=_run_of(progress, run, runs),
        )
        for magnitude, mean in predicted:
            scored = cross_validated(
                mean, dataset.labels, seed=seed, halvings=halvings, groups=dataset.groups
            )
            found[magnitude].append(scored.metrics)
    return Magnitudes(
        rows=tuple(_row(magnitude, metrics) for magnitude, metrics in found.items()),
        views=views,
        images=len(dataset),
        settings={
            "recipe": recipe.name,
            "length": length,
            "draws": draws,
            "seed": seed,
            "runs": runs,
            "halvings": halvings,
            "model": {"fingerprint": predictor.fingerprint},
            "data": {"name": dataset.name, "fingerprint": dataset.fingerprint},
            **(record or {}),
        },
    )


def checked_grid(grid: Sequence[float]) -> tuple[float, ...]:
    """Return the magnitudes rising and each once, or raise."""
    values = sorted({float(magnitude) for magnitude in grid})
    if not values or not all(0 <= value <= 60 for value in values):
        raise RelookError(f"expected magnitudes from 0 to 60, got {list(grid)}")
    return tuple(values)


def _row(magnitude: float, metrics: Sequence[Mapping[str, float]]) -> MagnitudeRow:
    values = {name: tuple(one[name] for one in metrics) for name in metrics[0]}
    return MagnitudeRow(magnitude, values)


def _run_of(progress: Progress | None, run: int, runs: int) -> Progress | None:
    if progress is None:
        return None
    return lambda done, total: progress(run * total + done, runs * total)
