"""RandAugment with one magnitude for all transforms: what each magnitude predicts, and MGrid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relook.data.base import Dataset
from relook.evaluation.baselines import GRID, Options, randaugment
from relook.evaluation.scoring import BASELINE_DRAWS, Setup
from relook.evaluation.unseen import apart
from relook.foundation.progress import Progress, part_of
from relook.models import Predictor
from relook.numerics.arrays import FloatArray
from relook.numerics.calibration import calibrated_log_likelihood, prefix_log_probs
from relook.policy import DrawKind
from relook.policy.recipes import Recipe
from relook.predictions.locations import is_url
from relook.predictions.passes import View, predict_views
from relook.selection.objectives import class_weights


@dataclass(frozen=True)
class GridSearch:
    """The validation cLL of RandAugment at each magnitude tried, `(magnitude, cLL)`."""

    scores: tuple[tuple[float, float], ...]

    @property
    def magnitude(self) -> float:
        """The magnitude with the highest cLL; of equals the smallest."""
        return best_magnitude(self.scores)


def best_magnitude(scores: Sequence[tuple[float, float]]) -> float:
    """Return M*: the magnitude of the highest score, of equals the smallest."""
    return max(scores, key=lambda score: (score[1], -score[0]))[0]


def with_magnitude(
    setup: Setup, validation: Dataset | None, progress: Progress | None = None
) -> tuple[Setup, GridSearch | None]:
    """Search MGrid's magnitude, if there are images for it besides those that are scored."""
    if validation is None:
        return setup, None
    path = None if setup.store is None or is_url(setup.store) else Path(setup.store)
    grid = search_magnitude(
        setup.predictor,
        apart(validation, setup.dataset),
        setup.recipe,
        options=setup.options,
        seed=setup.seed,
        draws=BASELINE_DRAWS,
        balanced=setup.balanced,
        store_path=None if path is None else path.with_name(f"{path.stem}-grid"),
        batch=setup.batch,
        progress=progress or setup.progress,
    )
    return replace(setup, options=replace(setup.options, grid_magnitude=grid.magnitude)), grid


def search_magnitude(
    predictor: Predictor,
    validation: Dataset,
    recipe: Recipe,
    *,
    options: Options,
    seed: int,
    draws: DrawKind,
    balanced: bool = False,
    grid: tuple[float, ...] = GRID,
    store_path: str | Path | None = None,
    batch: int | None = None,
    progress: Progress | None = None,
) -> GridSearch:
    """Score `options.grid_views` views of RandAugment at each magnitude of the grid by cLL."""
    predicted = grid_log_probs(
        predictor,
        validation,
        recipe,
        views=options.grid_views,
        length=options.length,
        seed=seed,
        draws=draws,
        grid=grid,
        store_path=store_path,
        batch=batch,
        progress=progress,
    )
    labels = validation.labels
    weights = class_weights(labels) if balanced else None
    return GridSearch(
        tuple((m, calibrated_log_likelihood(q, labels, weights)[0]) for m, q in predicted)
    )


def grid_log_probs(
    predictor: Predictor,
    dataset: Dataset,
    recipe: Recipe,
    *,
    views: int,
    length: int,
    seed: int,
    draws: DrawKind,
    grid: Sequence[float] = GRID,
    indices: NDArray[np.int64] | None = None,
    store_path: str | Path | None = None,
    batch: int | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[float, FloatArray]]:
    """Yield each magnitude with the log of its views' mean probability `[n, c]`.

    All magnitudes share their transforms and directions, so they differ in strength alone.
    Predictions are kept in `store_path`, a directory with one store for each magnitude.
    """
    passes = views * len(dataset)
    for place, magnitude in enumerate(grid):
        subpolicies = randaugment(recipe, views, seed, draws, length, magnitude)
        log_probs = predict_views(
            predictor,
            dataset.images,
            [View(sub, index) for index, sub in enumerate(subpolicies)],
            seed=seed,
            indices=indices,
            store_path=None if store_path is None else Path(store_path) / f"{magnitude:g}.zarr",
            batch=batch,
            progress=part_of(progress, place * passes, len(grid) * passes),
        )
        yield magnitude, next(prefix_log_probs(log_probs, [views]))
