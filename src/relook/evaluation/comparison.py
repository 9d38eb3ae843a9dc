"""What a comparison found, as frozen data: the one thing that tables and reports read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relook.evaluation.baselines import POLICY_METHOD, has_own_budget
from relook.evaluation.results import Result, Results, difference
from relook.foundation import notebook
from relook.io.records import Kind
from relook.numerics.intervals import Interval
from relook.policy import Policy
from relook.policy.file import POLICY_FORM

METRICS_OF_A_ROW = (
    "accuracy",
    "log_likelihood",
    "cll",
    "brier",
    "brier_calibrated",
    "ece",
    "ece_calibrated",
    "temperature",
)


@dataclass(frozen=True)
class Measured:
    """A metric's mean over runs and its standard deviation (0 for a single run)."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Row:
    """One method at one budget, scored on the held-out images.

    `views` is what it costs (model passes per image), at most `budget`; `slowdown` is its
    measured time relative to one pass over the plain image. `over_plain` and `over_rival`
    hold the differences in `cll` and `accuracy`, this row minus the plain image and minus
    the best baseline of the same budget; None where there is nothing to compare with.
    """

    method: str
    label: str
    budget: int
    views: int
    slowdown: float
    metrics: Mapping[str, Measured]
    over_plain: Mapping[str, Interval] | None = None
    over_rival: Mapping[str, Interval] | None = None
    rival: str | None = None


@dataclass(frozen=True)
class ReliabilityBin:
    """Images whose confidence falls into one bin: their share, mean confidence, accuracy."""

    share: float
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class ChangedImage:
    """An image whose predicted class the policy changed; probabilities are the true class's."""

    index: int
    label: int
    before: int
    after: int
    probability_before: float
    probability_after: float


@dataclass(frozen=True)
class Verdict:
    """The plain answer: `outcome` is "helps", "no difference" or "hurts"."""

    outcome: str
    sentence: str
    recommended_method: str
    recommended_views: int


@dataclass(frozen=True)
class Comparison:
    """Every method at every budget on the same images, and what follows from it.

    `rows` holds all prefixes that were scored; `budgets` are those asked for. `reliability`
    has the bins of "plain", "policy", "plain_calibrated" and "policy_calibrated". `gallery`,
    `gained` and `lost` name images by their index in the data set; those images are kept in
    `examples.npz` next to the comparison.
    """

    policy: Policy
    rows: tuple[Row, ...]
    budgets: tuple[int, ...]
    verdict: Verdict
    reliability: Mapping[str, tuple[ReliabilityBin, ...]]
    gained: tuple[ChangedImage, ...]
    lost: tuple[ChangedImage, ...]
    gained_count: int
    lost_count: int
    gallery: tuple[int, ...]
    images: int
    classes: tuple[str, ...]
    settings: Mapping[str, Any]

    def row(self, method: str, budget: int) -> Row | None:
        """Return the row of a method at a budget, if it was scored."""
        matches = [r for r in self.rows if r.method == method and r.budget == budget]
        return matches[0] if matches else None

    def results(self) -> Results:
        """Return every number as rows of one tidy table.

        `asked` flags the budgets asked for, and the methods with a budget of their own; the
        metric `search_temperature` is what the policy carries.
        """
        rows = [one for row in self.rows for one in self._results_of(row)]
        settings = {**self.settings, "budgets": list(self.budgets), "images": self.images}
        return Results("comparison", tuple(rows), settings, self.verdict.sentence)

    def _results_of(self, row: Row) -> Iterator[Result]:
        keys = {
            "method": row.method,
            "label": row.label,
            "budget": row.budget,
            "views": row.views,
            "asked": row.budget in self.budgets or has_own_budget(row.method),
        }
        for name, one in row.metrics.items():
            yield Result(name, one.mean, deviation=one.deviation, keys=keys)
        yield Result("slowdown", row.slowdown, keys=keys)
        if row.method == POLICY_METHOD and self.policy.temperatures is not None:
            carried = self.policy.for_budget(row.views).temperatures
            yield Result("search_temperature", (carried or self.policy.temperatures)[-1], keys=keys)
        for name, own in (row.over_rival or {}).items():
            yield difference(name, own, **keys, versus="rival", reference=row.rival)
        for name, own in (row.over_plain or {}).items():
            yield difference(name, own, **keys, versus="plain", reference="plain")

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data, as `save` writes it."""
        return COMPARISON.to_json(self)

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def save(self, path: Path) -> None:
        """Write the comparison as JSON, whole or not at all."""
        COMPARISON.write(path, self)


COMPARISON = Kind(
    Comparison,
    "relook-comparison",
    version=1,
    what="a comparison",
    command="compare",
    forms={"policy": POLICY_FORM},
)


def load_comparison(path: Path) -> Comparison:
    """Read what `Comparison.save` wrote."""
    return COMPARISON.read(path)
