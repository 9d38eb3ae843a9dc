"""What a study of ensembles found, as frozen data: the one thing its tables and figures read."""

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

FORMAT = "relook-ensembles"
VERSION = 1

SINGLE, ENSEMBLE, PER_MEMBER = "single", "ensemble", "per-member"
WAYS: Mapping[str, str] = {
    SINGLE: "one member's policy (GPS single)",
    ENSEMBLE: "the ensemble's policy (GPS ensemble)",
    PER_MEMBER: "a policy for each member (GPS each)",
}
"""The ways to apply the search to an ensemble, with what tables call them."""


@dataclass(frozen=True)
class EnsembleRow:
    """One method at one budget on the held-out images.

    `members` says whose predictions: all of the ensemble together, or 1 for a single member,
    where metrics are means and deviations over the members. `views` is what a member sees of
    an image, at most `budget`; `passes` what the ensemble costs, model passes an image.
    `over_plain`, `over_rival` and `over_single` hold the differences in `cll` and `accuracy`:
    this row minus the plain image, the best baseline of the same budget, and the policy of a
    single member; None where there is nothing to compare with.
    """

    method: str
    label: str
    members: int
    budget: int
    views: int
    passes: int
    metrics: Mapping[str, Measured]
    over_plain: Mapping[str, Interval] | None = None
    over_rival: Mapping[str, Interval] | None = None
    over_single: Mapping[str, Interval] | None = None
    rival: str | None = None


@dataclass(frozen=True)
class Ensembles:
    """Three ways to search for an ensemble beside baselines, and the members alone.

    `policies` has one for each member, by name; `policy` was found on the ensemble; `single`
    is the member whose policy serves all in the way of that name.
    """

    rows: tuple[EnsembleRow, ...]
    budgets: tuple[int, ...]
    members: tuple[str, ...]
    single: str
    policies: Mapping[str, Policy]
    policy: Policy
    images: int
    searched: int
    settings: Mapping[str, Any]

    def together(self) -> list[EnsembleRow]:
        """Return the rows of the whole ensemble."""
        return [row for row in self.rows if row.members > 1]

    def alone(self) -> list[EnsembleRow]:
        """Return the rows of single members, means over the members."""
        return [row for row in self.rows if row.members == 1]

    def row(self, method: str, budget: int) -> EnsembleRow | None:
        """Return the ensemble's row of a method at a budget, if it was scored."""
        found = [row for row in self.together() if (row.method, row.budget) == (method, budget)]
        return found[0] if found else None

    @property
    def sentence(self) -> str:
        """The plain answer at the largest budget: which way is best, and against what."""
        last = {row.method: row for row in self.together()}
        best = max((last[way] for way in WAYS), key=lambda row: row.metrics["cll"].mean)
        text = (
            f"With at most {self.budgets[-1]} views for each of {len(self.members)} members, "
            f"{best.label} has the best cLL, {best.metrics['cll'].mean:.4f}"
        )
        if best.over_rival is not None and best.rival is not None:
            text += f"; {_held(best.over_rival['cll'], last[best.rival].label)}"
        if best.over_single is not None:
            text += f"; {_held(best.over_single['cll'], WAYS[SINGLE])}"
        return with_minus_signs(f"{text}.")

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data; `ensembles_from_json` is its inverse."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "rows": [asdict(row) for row in self.rows],
            "budgets": list(self.budgets),
            "members": list(self.members),
            "single": self.single,
            "policies": {name: policy_to_json(one) for name, one in self.policies.items()},
            "policy": policy_to_json(self.policy),
            "images": self.images,
            "searched": self.searched,
            "settings": dict(self.settings),
        }

    def save(self, path: str | Path) -> None:
        """Write the study as JSON, whole or not at all."""
        write_json_atomic(path, self.to_json())


def load_ensembles(path: str | Path) -> Ensembles:
    """Read what `Ensembles.save` wrote."""
    return load_saved(path, "a study of ensembles", "ensembles", ensembles_from_json)


def ensembles_from_json(content: Mapping[str, Any]) -> Ensembles:
    """Rebuild a study from JSON data."""
    check_format(content, FORMAT, VERSION)
    return Ensembles(
        rows=tuple(_row(row) for row in content["rows"]),
        budgets=tuple(int(budget) for budget in content["budgets"]),
        members=tuple(str(name) for name in content["members"]),
        single=str(content["single"]),
        policies={name: policy_from_json(one) for name, one in content["policies"].items()},
        policy=policy_from_json(content["policy"]),
        images=int(content["images"]),
        searched=int(content["searched"]),
        settings=dict(content["settings"]),
    )


def _row(content: Mapping[str, Any]) -> EnsembleRow:
    fields = {name: content[name] for name in EnsembleRow.__dataclass_fields__}
    fields["metrics"] = {name: Measured(**one) for name, one in content["metrics"].items()}
    for name in ("over_plain", "over_rival", "over_single"):
        if content[name] is not None:
            fields[name] = {key: Interval(**one) for key, one in content[name].items()}
    return EnsembleRow(**fields)


def _held(one: Interval, other: str) -> str:
    word = "no different from"
    if one.low > 0 or one.high < 0:
        word = "better than" if one.low > 0 else "worse than"
    return f"{word} {other}: {one}"
