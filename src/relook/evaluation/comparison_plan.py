"""What a comparison will cost: its model passes, the engine for them, and the time they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relook.data.base import Dataset
from relook.evaluation.baselines import BASELINES, GRID, POLICY_METHOD
from relook.evaluation.scoring import lines_of
from relook.evaluation.setup import ComparisonKeywords, available_methods, settings_for
from relook.foundation.wording import duration
from relook.models import Predictor
from relook.models.accelerate import Accelerated, accelerate_run
from relook.policy import Policy
from relook.policy.recipes import Recipe
from relook.predictions.passes import View, distinct_views, estimate


@dataclass(frozen=True)
class ComparisonPlan:
    """The model on its engine, the passes to find MGrid's magnitude, and those of all methods.

    `baselines` has the passes of each by itself, the most first.
    """

    model: Accelerated
    grid_passes: int
    passes: int
    seconds_a_pass: float
    baselines: Mapping[str, int]

    def fewer(self, methods: Callable[[Sequence[str]], str]) -> str:
        """Return a hint on how to leave out a baseline that takes at least half of the passes.

        `methods` writes the option with the remaining methods.
        """
        total, costliest = self.grid_passes + self.passes, next(iter(self.baselines), "")
        left = [one for one in BASELINES if one in self.baselines and one != costliest]
        if not left or 2 * self.baselines[costliest] < total:
            return ""
        share = self.baselines[costliest] / total
        return (
            f"; {100 * share:.0f} % of them are for {costliest}, which {methods(left)} leaves out"
        )

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
    setup = settings_for(policies, keywords).setup(predictor, dataset, recipe)
    methods, _ = available_methods(setup, setup.methods, validation)
    # Any magnitude will do: all have the same number of views.
    setup = replace(setup, options=replace(setup.options, grid_magnitude=GRID[-1]))
    lines = [line for method in methods for line in lines_of(setup, method, policies)]

    def views_of(*chosen: str) -> tuple[View, ...]:
        own = [view for line in lines if line.method in chosen for view in line.views]
        return distinct_views(own)[0]

    views = views_of(*methods)
    grid = 0
    if validation is not None and "mgrid" in methods:
        grid = len(GRID) * setup.options.grid_views * len(validation)
    passes = len(views) * len(dataset)
    model = accelerate_run(predictor, dataset.images, passes=grid + passes, **engine)
    seconds = estimate(model.predictor, dataset.images, views, seed=setup.seed, batch=setup.batch)
    baselines = [method for method in methods if method not in ("plain", POLICY_METHOD)]
    costs = Counter({method: len(views_of(method)) * len(dataset) for method in baselines})
    if grid:
        costs["mgrid"] += grid
    return ComparisonPlan(model, grid, passes, seconds, dict(costs.most_common()))
