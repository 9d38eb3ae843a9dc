"""The settings, images and methods of a comparison, checked, and MGrid's magnitude."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluation.baselines import BASELINES, GRID, Options, check_methods, randaugment
from relook.evaluation.comparison import LEARNED, MARGIN
from relook.evaluation.cross_validation import (
    Averages,
    Evaluation,
    check_protocol,
    cross_calibrated,
    cross_validated,
    differences,
)
from relook.evaluation.unseen import apart
from relook.foundation.progress import Progress, part_of
from relook.foundation.registry import check_names
from relook.models import Predictor
from relook.numerics.arrays import FloatArray, Indices
from relook.numerics.calibration import calibrated_log_likelihood, fit_temperature, prefix_log_probs
from relook.numerics.intervals import Interval, paired_interval
from relook.numerics.randomness import check_seed
from relook.policy import DrawKind, Policy
from relook.policy.recipes import Recipe, get_recipe
from relook.predictions.locations import is_url
from relook.predictions.passes import KnownViews, View, predict_views
from relook.selection.objectives import class_weights

BASELINE_DRAWS: DrawKind = "fresh"
"""A crop for each image, as is common practice: one for all images may be a lucky one."""

GridScores = list[list[float]]
"""The validation cLL of RandAugment at each magnitude tried, `[magnitude, cLL]`."""


class ComparisonKeywords(TypedDict, total=False):
    """The fields of `ComparisonSettings`, as keywords."""

    budgets: Sequence[int]
    methods: Sequence[str] | None
    options: Options | None
    seed: int
    runs: int
    margin: float
    batch: int | None
    halvings: int
    protocol: str
    balanced: bool
    measure_cost: bool
    learned_averages: bool


@dataclass(frozen=True)
class ComparisonSettings:
    """What is compared and how, besides policy, model and images.

    `methods` names the baselines (default: all); the plain image and the policy are always
    included. A budget counts distinct views. `runs` > 1 draws the random methods anew, with the
    seeds seed, seed + 1, …; a policy under fresh draws gets other draws. `margin` is a difference
    in cLL that nobody should care about. `protocol` "paper" fits temperatures as the paper does,
    whatever the number of images; `balanced` gives each class the same weight in all figures.
    Without `learned_averages` baselines have only the usual average, as in the paper.
    """

    budgets: Sequence[int] = (1, 5, 10, 20)
    methods: Sequence[str] | None = None
    options: Options | None = None
    seed: int = 0
    runs: int = 1
    margin: float = MARGIN
    batch: int | None = None
    halvings: int = 5
    protocol: str = "standard"
    balanced: bool = False
    measure_cost: bool = True
    learned_averages: bool = True

    def setup(
        self,
        predictor: Predictor,
        dataset: Dataset,
        recipe: Recipe | str,
        *,
        indices: ArrayLike | None = None,
        store_path: str | Path | None = None,
        progress: Progress | None = None,
        known: KnownViews | None = None,
    ) -> Setup:
        """Return everything that a comparison needs besides the policies, checked."""
        if self.runs < 1:
            raise RelookError(f"expected at least 1 run, got {self.runs}")
        checked = {
            "budgets": checked_budgets(self.budgets),
            "options": (self.options or Options()).for_images(dataset.images),
            "seed": check_seed(self.seed),
            "protocol": check_protocol(self.protocol),
        }
        return Setup(
            **{**vars(self), **checked},
            predictor=predictor,
            dataset=dataset,
            places=np.arange(len(dataset)) if indices is None else np.asarray(indices, np.int64),
            recipe=get_recipe(recipe),
            store=store_path,
            progress=progress,
            known=known,
        )


@dataclass(frozen=True, kw_only=True)
class Setup(ComparisonSettings):
    """Checked settings with model and images; `places` `[n]` are the images' own indices.

    `store` is where predictions are kept: a path, or a URL of an object store. Views that are
    `known` are not predicted again.
    """

    predictor: Predictor
    dataset: Dataset
    places: Indices
    recipe: Recipe
    budgets: tuple[int, ...]
    options: Options
    store: str | Path | None = None
    progress: Progress | None = None
    known: KnownViews | None = None

    def evaluated(
        self, log_probs: FloatArray, view_temperature: float = 1.0, averages: Averages | None = None
    ) -> Evaluation:
        """Return the cross-validated metrics of log-probabilities `[n, c]`."""
        return cross_validated(
            log_probs,
            self.dataset.labels,
            seed=self.seed,
            halvings=self.halvings,
            groups=self.dataset.units,
            weights=self.weights,
            protocol=self.protocol,
            view_temperature=view_temperature,
            averages=averages,
        )

    def calibrated(self, log_probs: FloatArray, view_temperature: float = 1.0) -> FloatArray:
        """Return log-probabilities `[n, c]`, each at a temperature fitted on other images."""
        return cross_calibrated(
            log_probs,
            self.dataset.labels,
            seed=self.seed,
            groups=self.dataset.units,
            weights=self.weights,
            protocol=self.protocol,
            view_temperature=view_temperature,
        )

    @property
    def metric_suffix(self) -> str:
        """The suffix of the metrics that methods are compared by: the learned average's, if any."""
        return LEARNED if self.learned_averages else ""

    @property
    def weights(self) -> FloatArray | None:
        """The images' weights `[n]`, equal for each class; None if all images count the same."""
        return class_weights(self.dataset.labels) if self.balanced else None

    def temperature(self, log_probs: FloatArray, view_temperature: float) -> float:
        """Return the temperature of an average `[n, c]`, fitted on all images."""
        return fit_temperature(
            log_probs,
            self.dataset.labels,
            self.weights,
            groups=self.dataset.units,
            view_temperature=view_temperature,
        )

    def paired(self, one: FloatArray, other: FloatArray) -> Interval:
        """Return the mean difference between two values of each image `[n]`, with its interval."""
        return paired_interval(one - other, groups=self.dataset.units, weights=self.weights)

    def differences(
        self, one: Sequence[Evaluation], other: Sequence[Evaluation], average: str = ""
    ) -> dict[str, Interval]:
        """Return the differences in cLL and accuracy between the runs of two methods.

        `average` is the suffix of the metrics that are compared.
        """
        return differences(one, other, self.dataset.units, self.weights, average)

    def record(self) -> dict[str, Any]:
        """Return the settings as a file of results has them."""
        return {
            "recipe": self.recipe.name,
            "budgets": list(self.budgets),
            "seed": self.seed,
            "runs": self.runs,
            "halvings": self.halvings,
            "protocol": self.protocol,
            "balanced": self.balanced,
            "randaugment": asdict(self.options),
            "model": {"fingerprint": self.predictor.fingerprint},
            "data": {
                "name": self.dataset.name,
                "fingerprint": self.dataset.fingerprint,
                "images": len(self.dataset),
            },
        }


def settings_for(policies: Sequence[Policy], keywords: ComparisonKeywords) -> ComparisonSettings:
    """Return the settings that keywords ask for, with at least as many runs as policies."""
    check_names("keyword of compare", keywords, ComparisonKeywords.__annotations__)
    settings = ComparisonSettings(**keywords)
    check_policies(policies, settings.runs)
    return replace(settings, runs=max(settings.runs, len(policies)))


def check_policies(policies: Sequence[Policy], runs: int) -> None:
    """Raise unless there is something to compare."""
    if not policies or not all(isinstance(one, Policy) and len(one) for one in policies):
        raise RelookError("expected a policy with at least one sub-policy to compare, got none")
    if runs < 1:
        raise RelookError(f"expected at least 1 run, got {runs}")


def checked_budgets(budgets: Sequence[int]) -> tuple[int, ...]:
    """Return the distinct budgets in rising order, or raise."""
    whole = [isinstance(b, int | np.integer) and not isinstance(b, bool) for b in budgets]
    if not budgets or not all(whole) or min(budgets) < 1:
        raise RelookError(f"expected budgets of at least 1 view, got {list(budgets)}")
    return tuple(sorted({int(budget) for budget in budgets}))


def available_methods(
    setup: Setup, methods: Sequence[str] | None, validation: Dataset | None
) -> tuple[list[str], dict[str, str]]:
    """Return the methods that can be scored, and why others cannot."""
    height, width = setup.dataset.images.shape[2:]
    most, searched = setup.budgets[-1], setup.options.grid_magnitude is not None
    chosen, left_out = [], {}
    for method in check_methods(methods):
        row = BASELINES.get(method)
        if row is None or row.name == "plain":
            chosen.append(method)
        elif row.needs_validation and validation is None and not searched:
            left_out[method] = "no validation images to search its magnitude on"
        elif row.square and height != width:
            left_out[method] = f"the images are not square ({height} × {width})"
        elif row.budget is not None and row.budget > most:
            left_out[method] = f"takes {row.budget} views, more than the largest budget ({most})"
        else:
            chosen.append(method)
    return chosen, left_out


def with_magnitude(
    setup: Setup, validation: Dataset | None, progress: Progress | None = None
) -> tuple[Setup, GridScores | None]:
    """Find MGrid's magnitude by cLL, on validation images that are not scored, if there are any."""
    if validation is None:
        return setup, None
    images = apart(validation, setup.dataset)
    weights = class_weights(images.labels) if setup.balanced else None
    path = None if setup.store is None or is_url(setup.store) else Path(setup.store)
    predicted = grid_log_probs(
        setup.predictor,
        images,
        setup.recipe,
        views=setup.options.grid_views,
        length=setup.options.length,
        seed=setup.seed,
        draws=BASELINE_DRAWS,
        store_path=None if path is None else path.with_name(f"{path.stem}-grid"),
        batch=setup.batch,
        progress=progress or setup.progress,
    )
    scores = [
        [magnitude, calibrated_log_likelihood(mean, images.labels, weights)[0]]
        for magnitude, mean in predicted
    ]
    options = replace(setup.options, grid_magnitude=best_magnitude(scores))
    return replace(setup, options=options), scores


def best_magnitude(scores: Iterable[Sequence[float]]) -> float:
    """Return M*: the magnitude of the highest score, the smallest of equals."""
    return max(scores, key=lambda score: (score[1], -score[0]))[0]


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
    indices: Indices | None = None,
    store_path: str | Path | None = None,
    batch: int | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[float, FloatArray]]:
    """Yield each magnitude with the log of its views' mean probability `[n, c]`.

    All magnitudes have the same transforms and directions, so they differ only in strength.
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
