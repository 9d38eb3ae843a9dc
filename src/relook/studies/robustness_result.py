"""What a study of robustness found, as frozen data: the one thing its tables and figures read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relook.evaluation.baselines import POLICY_METHOD
from relook.evaluation.comparison import Measured
from relook.foundation.wording import views_text, with_minus_signs
from relook.io.files import write_json_atomic
from relook.io.saved import check_format, load_saved
from relook.numerics.intervals import Interval
from relook.studies.corruption_error import mean_over_corruptions, normalised, unnormalised

FORMAT = "relook-robustness"
VERSION = 1

MEAN = "mean"
"""The key of the mean over corruptions, beside the corruptions' names."""


@dataclass(frozen=True)
class ShiftRow:
    """One method at one budget on all corruptions; errors are rates 0 … 1, means over runs.

    `errors` and `clls` hold one value a severity for each corruption. `muce` has the deviation
    over runs. `over_plain` and `over_rival` are the differences in uCE by corruption, and in
    muCE under "mean": this row minus the plain image, and minus the best baseline that costs
    at most the same; None where there is nothing to compare with.
    """

    method: str
    label: str
    budget: int
    views: int
    clean_error: float
    clean_cll: float
    errors: Mapping[str, tuple[float, ...]]
    clls: Mapping[str, tuple[float, ...]]
    muce: Measured
    over_plain: Mapping[str, Interval] | None = None
    over_rival: Mapping[str, Interval] | None = None
    rival: str | None = None

    @property
    def uce(self) -> dict[str, float]:
        """The unnormalised corruption errors."""
        return unnormalised(self.errors)

    @property
    def ce(self) -> dict[str, float]:
        """The corruption errors over AlexNet's; for ImageNet's five severities alone."""
        return normalised(self.errors)

    @property
    def mce(self) -> float:
        """The mean corruption error over AlexNet's."""
        return mean_over_corruptions(self.ce)

    @property
    def cll(self) -> float:
        """The mean calibrated log-likelihood over corruptions and severities."""
        return mean_over_corruptions(unnormalised(self.clls))


@dataclass(frozen=True)
class Robustness:
    """Every method at every budget under the same corruptions of the same images.

    `normalised` says that CE and mCE are defined; `made` that the corruptions were made here,
    not read from the published files.
    """

    rows: tuple[ShiftRow, ...]
    budgets: tuple[int, ...]
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    images: int
    normalised: bool
    made: bool
    settings: Mapping[str, Any]

    def row(self, method: str, budget: int) -> ShiftRow | None:
        """Return the row of a method at a budget, if it was scored."""
        found = [row for row in self.rows if (row.method, row.budget) == (method, budget)]
        return found[0] if found else None

    def largest(self) -> list[ShiftRow]:
        """Return each method's row at its largest budget."""
        return list({row.method: row for row in self.rows}.values())

    @property
    def sentence(self) -> str:
        """The plain answer for the policy at its largest budget."""
        row = next(row for row in self.largest() if row.method == POLICY_METHOD)
        if row.over_rival is None or row.rival is None:
            return f"Mean error under corruption: {100 * row.muce.mean:.2f} %."
        change = row.over_rival[MEAN]
        rival = next(one.label for one in self.rows if one.method == row.rival)
        span = f"{100 * change.estimate:+.2f} points of error, 95 % interval "
        span += f"{100 * change.low:+.2f} to {100 * change.high:+.2f}"
        if change.high < 0:
            outcome = "is more robust than"
        elif change.low > 0:
            outcome = "is less robust than"
        else:
            outcome = "shows no difference from"
        text = f"With {views_text(row.views)} the policy {outcome} {rival}: {span}."
        return with_minus_signs(text)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data; `robustness_from_json` is its inverse, but for the means."""
        content: dict[str, Any] = {"format": FORMAT, "version": VERSION, **asdict(self)}
        content["rows"] = [self._row_json(row) for row in self.rows]
        return content

    def save(self, path: str | Path) -> None:
        """Write the study as JSON, whole or not at all."""
        write_json_atomic(path, self.to_json())

    def _row_json(self, row: ShiftRow) -> dict[str, Any]:
        means: dict[str, Any] = {"uce": row.uce, "cll": row.cll}
        if self.normalised:
            means |= {"ce": row.ce, "mce": row.mce}
        return {**asdict(row), **means}


def load_robustness(path: str | Path) -> Robustness:
    """Read what `Robustness.save` wrote."""
    return load_saved(path, "a study of robustness", "robustness", robustness_from_json)


def robustness_from_json(content: Mapping[str, Any]) -> Robustness:
    """Rebuild a study from JSON data; means are computed anew."""
    check_format(content, FORMAT, VERSION)
    return Robustness(
        rows=tuple(_row(row) for row in content["rows"]),
        budgets=tuple(int(budget) for budget in content["budgets"]),
        corruptions=tuple(str(name) for name in content["corruptions"]),
        severities=tuple(int(severity) for severity in content["severities"]),
        images=int(content["images"]),
        normalised=bool(content["normalised"]),
        made=bool(content["made"]),
        settings=dict(content["settings"]),
    )


def _row(content: Mapping[str, Any]) -> ShiftRow:
    fields = {name: content[name] for name in ShiftRow.__dataclass_fields__}
    for name in ("errors", "clls"):
        fields[name] = {key: tuple(map(float, one)) for key, one in content[name].items()}
    fields["muce"] = Measured(**content["muce"])
    for name in ("over_plain", "over_rival"):
        if content[name] is not None:
            fields[name] = {key: Interval(**one) for key, one in content[name].items()}
    return ShiftRow(**fields)
