"""What a comparison will cost: its passes, the engine that makes them, and their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relook.data.base import Dataset
from relook.evaluation.baselines import GRID
from relook.evaluation.compare import ComparisonKeywords, ComparisonSettings, available_methods
from relook.evaluation.scoring import check_policies, lines_of
from relook.foundation.registry import check_names
from relook.foundation.wording import duration
from relook.models import Predictor
from relook.models.accelerate import Accelerated, accelerate_run
from relook.policy import Policy
from relook.policy.recipes import Recipe
from relook.predictions.passes import distinct_views, estimate


@dataclass(frozen=True)
class ComparisonPlan:
    """The model on its engine; the passes to find MGrid's magnitude, and of all methods' views."""

    model: Accelerated
    grid_passes: int
    passes: int
    seconds_a_pass: float

    def to_json(self) -> dict[str, Any]:
        """Return the engine's name and the numbers."""
        numbers = {name: value for name, value in vars(self).items() if name != "model"}
        return {"engine": self.model.engine, **numbers}

    def __str__(self) -> str:
        total = self.grid_passes + self.passes
        grid = f", {self.grid_passes:,} of them for MGrid's magnitude" if self.grid_passes else ""
        time = duration(total * self.seconds_a_pass)
        return f"{total:,} model passes at most{grid}: about {time}"


def plan_comparison(
    predictor: Predictor,
    dataset: Dataset,
    policies: Sequence[Policy],
    *,
    recipe: Recipe,
    validation: Dataset | None,
    keywords: ComparisonKeywords,
    engine: Mapping[str, Any],
) -> ComparisonPlan:
    """Count the passes, choose an engine for them, and measure a few.

    `keywords` are those of `compare`, `engine` those of `accelerate_run`.
    """
    check_names("keyword of compare", keywords, ComparisonKeywords.__annotations__)
    settings = ComparisonSettings(**keywords)
    check_policies(policies, settings.runs)
    runs = max(settings.runs, len(policies))
    setup = replace(settings, runs=runs).setup(predictor, dataset, recipe)
    methods, _ = available_methods(setup, settings.methods, validation)
    # Any magnitude will do: their views are equally many.
    setup = replace(setup, options=replace(setup.options, grid_magnitude=GRID[-1]))
    lines = [line for method in methods for line in lines_of(setup, method, policies)]
    views, _ = distinct_views([view for line in lines for view in line.views])
    grid = 0
    if validation is not None and "mgrid" in methods:
        grid = len(GRID) * setup.options.grid_views * len(validation)
    passes = len(views) * len(dataset)
    model = accelerate_run(predictor, dataset.images, passes=grid + passes, **engine)
    seconds = estimate(
        model.predictor, dataset.images, views, seed=settings.seed, batch=settings.batch
    )
    return ComparisonPlan(model, grid, passes, seconds)
