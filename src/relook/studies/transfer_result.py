"""What a study of transfer found, as frozen data: the one thing its tables and figures read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relook.evaluation.comparison import Measured
from relook.foundation.wording import views_text, with_minus_signs
from relook.io.files import write_json_atomic
from relook.io.saved import check_format, load_saved
from relook.numerics.intervals import Interval

FORMAT = "relook-transfer"
VERSION = 1

CROPS = "cf"
"""The baseline that a policy is held against where a target has no policy of its own."""

Intervals = Mapping[str, Interval]
"""Differences in "cll" and "accuracy", with their intervals."""


@dataclass(frozen=True)
class TransferTarget:
    """A model with its images: `own` is the policy that was searched for it, if there is one."""

    name: str
    data: str
    images: int
    classes: int
    own: str | None
    model: str


@dataclass(frozen=True)
class TransferCell:
    """One policy, or baseline, on one target at one budget; metrics are means over runs.

    `views` is what it costs, model passes an image: the budget for every policy. `change` is
    this policy minus the target's own, `over_crops` and `over_plain` this one minus random
    crops of the same budget and minus the plain image, each image under the temperature of
    the half that it is not in; None where there is nothing to compare with.
    """

    source: str
    target: str
    budget: int
    views: int
    metrics: Mapping[str, Measured]
    change: Intervals | None = None
    over_crops: Intervals | None = None
    over_plain: Intervals | None = None


@dataclass(frozen=True)
class Transfer:
    """Every policy, and some baselines, on every target, at equal numbers of distinct views."""

    policies: tuple[str, ...]
    baselines: tuple[str, ...]
    targets: tuple[TransferTarget, ...]
    budgets: tuple[int, ...]
    cells: tuple[TransferCell, ...]
    settings: Mapping[str, Any]

    def cell(self, source: str, target: str, budget: int) -> TransferCell | None:
        """Return what a policy or baseline does on a target at a budget, if it was scored."""
        key = (source, target, budget)
        found = [one for one in self.cells if (one.source, one.target, one.budget) == key]
        return found[0] if found else None

    def target(self, name: str) -> TransferTarget:
        """Return the target of that name."""
        return next(one for one in self.targets if one.name == name)

    def shown(self, cell: TransferCell) -> Intervals | None:
        """Return what the matrix shows: the change, or over crops where there is no own policy."""
        return cell.over_crops if self.target(cell.target).own is None else cell.change

    def standing(self, cell: TransferCell) -> str:
        """Return what a cell without a difference is: the own policy, or the reference."""
        target = self.target(cell.target)
        if cell.source == target.own:
            return "own"
        return "reference" if target.own is None and cell.source == CROPS else ""

    def foreign(self, budget: int) -> list[TransferCell]:
        """Return the cells of policies on targets that they were not searched for."""
        return [
            one
            for one in self.cells
            if one.budget == budget
            and one.source in self.policies
            and one.source != self.target(one.target).own
        ]

    @property
    def sentence(self) -> str:
        """The plain answer at the largest budget."""
        cells = self.foreign(self.budgets[-1])
        parts = [_changed(cells), _against_crops(cells)]
        text = "; ".join(part for part in parts if part) or "no policy met a foreign target"
        return with_minus_signs(f"With {views_text(self.budgets[-1])}: {text}.")

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data; `transfer_from_json` is its inverse."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    def save(self, path: str | Path) -> None:
        """Write the study as JSON, whole or not at all."""
        write_json_atomic(path, self.to_json())


def load_transfer(path: str | Path) -> Transfer:
    """Read what `Transfer.save` wrote."""
    return load_saved(path, "a study of transfer", "transfer", transfer_from_json)


def transfer_from_json(content: Mapping[str, Any]) -> Transfer:
    """Rebuild a study from JSON data."""
    check_format(content, FORMAT, VERSION)
    return Transfer(
        policies=tuple(str(name) for name in content["policies"]),
        baselines=tuple(str(name) for name in content["baselines"]),
        targets=tuple(TransferTarget(**one) for one in content["targets"]),
        budgets=tuple(int(budget) for budget in content["budgets"]),
        cells=tuple(_cell(one) for one in content["cells"]),
        settings=dict(content["settings"]),
    )


def _cell(content: Mapping[str, Any]) -> TransferCell:
    fields = {name: content[name] for name in TransferCell.__dataclass_fields__}
    fields["metrics"] = {name: Measured(**one) for name, one in content["metrics"].items()}
    for name in ("change", "over_crops", "over_plain"):
        if content[name] is not None:
            fields[name] = {key: Interval(**one) for key, one in content[name].items()}
    return TransferCell(**fields)


def _changed(cells: list[TransferCell]) -> str:
    """Say what foreign policies cost where targets have policies of their own."""
    changed = [(one, one.change["cll"].estimate) for one in cells if one.change is not None]
    if not changed:
        return ""
    worst, least = min(changed, key=lambda one: one[1])
    mean = float(np.mean([change for _, change in changed]))
    return (
        f"a foreign policy changes cLL by {mean:+.4f} on average over {len(changed)} "
        f"{'pair' if len(changed) == 1 else 'pairs'}, {least:+.4f} at worst "
        f"({worst.source} on {worst.target})"
    )


def _against_crops(cells: list[TransferCell]) -> str:
    held = [(one, one.over_crops["cll"]) for one in cells if one.over_crops is not None]
    if not held:
        return ""
    if len(held) == 1:
        cell, one = held[0]
        return (
            f"the policy of {cell.source} on {cell.target} {_verb(one)} random crops: cLL {one}, "
            f"{100 * one.confidence:.0f} % interval"
        )
    better = sum(one.low > 0 for _, one in held)
    worse = sum(one.high < 0 for _, one in held)
    return (
        f"foreign policies are better than random crops on {better} of {len(held)}, worse on "
        f"{worse}, the rest shows no difference"
    )


def _verb(one: Interval) -> str:
    if one.low > 0:
        return "is better than"
    return "is worse than" if one.high < 0 else "shows no difference from"
