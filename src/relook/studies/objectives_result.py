"""What a study of objectives found, as frozen data: the one thing its tables and figures read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relook.evaluation.comparison import Measured
from relook.foundation.wording import with_minus_signs
from relook.io.files import write_json_atomic
from relook.io.saved import check_format, load_saved
from relook.numerics.intervals import Interval
from relook.policy import Policy
from relook.policy.file import policy_from_json, policy_to_json

FORMAT = "relook-objectives"
VERSION = 1

REFERENCE = "cll"
"""The objective that the others are held against: the paper's."""

PLAIN = "plain"
"""The name under which the plain image stands beside the objectives."""


@dataclass(frozen=True)
class ObjectiveRow:
    """Policies searched with one objective, on held-out images: means over runs.

    `views` is what they cost at most, at a budget of `budget`. `over_cll` holds the
    differences in accuracy, log_likelihood and cll to the policies searched with cLL, this
    row minus those; None for cLL itself and where it was not among the objectives.
    """

    objective: str
    label: str
    budget: int
    views: int
    metrics: Mapping[str, Measured]
    over_cll: Mapping[str, Interval] | None = None


@dataclass(frozen=True)
class Objectives:
    """The same pools searched with each objective, run by run.

    The plain image is the first row, under the name "plain". `images` is how many held-out
    images a run has; `policies` holds each objective's policies, one a run.
    """

    rows: tuple[ObjectiveRow, ...]
    objectives: tuple[str, ...]
    budgets: tuple[int, ...]
    runs: int
    images: int
    policies: Mapping[str, tuple[Policy, ...]]
    settings: Mapping[str, Any]

    def row(self, objective: str, budget: int | None = None) -> ObjectiveRow:
        """Return the row of an objective at a budget, by default the largest."""
        wanted = 1 if objective == PLAIN else budget or self.budgets[-1]
        return next(r for r in self.rows if (r.objective, r.budget) == (objective, wanted))

    @property
    def sentence(self) -> str:
        """The plain answer: what the other objectives lose in cLL at the largest budget."""
        best = max(self.objectives, key=lambda name: self.row(name).metrics["cll"].mean)
        text = f"The highest held-out cLL comes from searching with {self.row(best).label}"
        changes = []
        for name in self.objectives:
            row = self.row(name)
            if row.over_cll is not None:
                one = row.over_cll["cll"]
                span = f"{one.estimate:+.4f}, 95 % interval {one.low:+.4f} to {one.high:+.4f}"
                changes.append(with_minus_signs(f"{row.label} {span}"))
        if changes:
            text += f"; compared with cLL as the objective: {'; '.join(changes)}"
        return f"{text}."

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data; `objectives_from_json` is its inverse."""
        policies = {
            name: [policy_to_json(policy) for policy in own] for name, own in self.policies.items()
        }
        return {
            "format": FORMAT,
            "version": VERSION,
            "rows": [asdict(row) for row in self.rows],
            "objectives": list(self.objectives),
            "budgets": list(self.budgets),
            "runs": self.runs,
            "images": self.images,
            "settings": dict(self.settings),
            "policies": policies,
        }

    def save(self, path: str | Path) -> None:
        """Write the study as JSON, whole or not at all."""
        write_json_atomic(path, self.to_json())


def load_objectives(path: str | Path) -> Objectives:
    """Read what `Objectives.save` wrote."""
    return load_saved(path, "a study of objectives", "objectives", objectives_from_json)


def objectives_from_json(content: Mapping[str, Any]) -> Objectives:
    """Rebuild a study from JSON data."""
    check_format(content, FORMAT, VERSION)
    return Objectives(
        rows=tuple(_row(row) for row in content["rows"]),
        objectives=tuple(str(name) for name in content["objectives"]),
        budgets=tuple(int(budget) for budget in content["budgets"]),
        runs=int(content["runs"]),
        images=int(content["images"]),
        policies={
            str(name): tuple(policy_from_json(policy) for policy in own)
            for name, own in content["policies"].items()
        },
        settings=dict(content["settings"]),
    )


def _row(content: Mapping[str, Any]) -> ObjectiveRow:
    fields = {name: content[name] for name in ObjectiveRow.__dataclass_fields__}
    fields["metrics"] = {name: Measured(**one) for name, one in content["metrics"].items()}
    if content["over_cll"] is not None:
        fields["over_cll"] = {name: Interval(**one) for name, one in content["over_cll"].items()}
    return ObjectiveRow(**fields)
