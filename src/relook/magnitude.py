"""MGrid's grid search: one magnitude for all transforms, found on validation images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relook.baselines import GRID, Options, randaugment
from relook.calibration import calibrated_log_likelihood, mean_log_probs
from relook.data.base import Dataset
from relook.models import Predictor
from relook.policy import DrawKind
from relook.predict import Progress, View, predict_views
from relook.recipes import Recipe


@dataclass(frozen=True)
class GridSearch:
    """The validation cLL of RandAugment at each magnitude tried, `(magnitude, cLL)`."""

    scores: tuple[tuple[float, float], ...]

    @property
    def magnitude(self) -> float:
        """The magnitude with the highest cLL; of equals the smallest."""
        return max(self.scores, key=lambda score: (score[1], -score[0]))[0]


def search_magnitude(
    predictor: Predictor,
    validation: Dataset,
    recipe: Recipe,
    *,
    options: Options,
    seed: int,
    draws: DrawKind,
    grid: tuple[float, ...] = GRID,
    store_path: str | Path | None = None,
    batch: int | None = None,
    progress: Progress | None = None,
) -> GridSearch:
    """Score `options.grid_views` views of RandAugment at each magnitude of the grid.

    All magnitudes share their transforms and directions, so they differ in strength alone.
    Predictions are kept in `store_path`, a directory with one store for each magnitude.
    """
    count = options.grid_views
    passes = count * len(validation)
    scores = []
    for place, magnitude in enumerate(grid):
        subpolicies = randaugment(recipe, count, seed, draws, options.length, magnitude)
        log_probs = predict_views(
            predictor,
            validation.images,
            [View(sub, index) for index, sub in enumerate(subpolicies)],
            seed=seed,
            store_path=None if store_path is None else Path(store_path) / f"{magnitude:g}.zarr",
            batch=batch,
            progress=_part(progress, place * passes, len(grid) * passes),
        )
        mean = mean_log_probs(log_probs)
        scores.append((magnitude, calibrated_log_likelihood(mean, validation.labels)[0]))
    return GridSearch(tuple(scores))


def _part(progress: Progress | None, before: int, total: int) -> Progress | None:
    """Report a part of the work as part of the whole."""
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)
