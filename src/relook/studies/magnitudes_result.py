"""What a study of magnitudes found, as frozen data: the one thing its tables and figures read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relook.evaluation.comparison import Measured
from relook.evaluation.randaugment_magnitude import best_magnitude
from relook.io.files import write_json_atomic
from relook.io.saved import check_format, load_saved
from relook.numerics.intervals import mean_and_deviation

FORMAT = "relook-magnitudes"
VERSION = 1

CHOOSERS = {"accuracy": "accuracy", "log_likelihood": "log-likelihood", "cll": "cLL"}
"""The metrics that M* is found by, with what tables call them."""


@dataclass(frozen=True)
class MagnitudeRow:
    """RandAugment at one magnitude: each metric's value in every run."""

    magnitude: float
    values: Mapping[str, tuple[float, ...]]

    @property
    def metrics(self) -> dict[str, Measured]:
        """Each metric's mean and deviation over the runs."""
        return {name: Measured(*mean_and_deviation(own)) for name, own in self.values.items()}


@dataclass(frozen=True)
class Magnitudes:
    """RandAugment with `views` views at rising magnitudes, scored on the same images."""

    rows: tuple[MagnitudeRow, ...]
    views: int
    images: int
    settings: Mapping[str, Any]

    @property
    def runs(self) -> int:
        """How many draws of the transforms the figures are means over."""
        return len(self.rows[0].values["cll"])

    def best(self, metric: str) -> MagnitudeRow:
        """Return the row of M* by a metric's mean over the runs; of equals the weakest."""
        scores = [(row.magnitude, row.metrics[metric].mean) for row in self.rows]
        found = best_magnitude(scores)
        return next(row for row in self.rows if row.magnitude == found)

    def best_by_run(self, metric: str) -> tuple[float, ...]:
        """Return the M* that each run alone would have chosen by a metric."""
        return tuple(
            best_magnitude([(row.magnitude, row.values[metric][run]) for row in self.rows])
            for run in range(self.runs)
        )

    @property
    def sentence(self) -> str:
        """The plain answer: M* by each metric, and what trusting the wrong one costs in cLL."""
        chosen = {name: self.best(name) for name in CHOOSERS}
        if len({row.magnitude for row in chosen.values()}) == 1:
            return f"M* is {chosen['cll'].magnitude:g} by accuracy, log-likelihood and cLL alike."
        found = ", ".join(f"{row.magnitude:g} by {CHOOSERS[n]}" for n, row in chosen.items())
        top = chosen["cll"].metrics["cll"].mean
        losses = [
            f"{CHOOSERS[name]}'s choice loses {top - row.metrics['cll'].mean:.4f}"
            for name, row in chosen.items()
            if row.magnitude != chosen["cll"].magnitude
        ]
        return f"M* is {found}; in cLL, {' and '.join(losses)}."

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data; `magnitudes_from_json` is its inverse, but for the choices."""
        best = {
            name: {"magnitude": self.best(name).magnitude, "by_run": list(self.best_by_run(name))}
            for name in CHOOSERS
        }
        return {"format": FORMAT, "version": VERSION, **asdict(self), "best": best}

    def save(self, path: str | Path) -> None:
        """Write the study as JSON, whole or not at all."""
        write_json_atomic(path, self.to_json())


def load_magnitudes(path: str | Path) -> Magnitudes:
    """Read what `Magnitudes.save` wrote."""
    return load_saved(path, "a study of magnitudes", "magnitudes", magnitudes_from_json)


def magnitudes_from_json(content: Mapping[str, Any]) -> Magnitudes:
    """Rebuild a study from JSON data."""
    check_format(content, FORMAT, VERSION)
    return Magnitudes(
        rows=tuple(
            MagnitudeRow(
                float(row["magnitude"]),
                {name: tuple(map(float, own)) for name, own in row["values"].items()},
            )
            for row in content["rows"]
        ),
        views=int(content["views"]),
        images=int(content["images"]),
        settings=dict(content["settings"]),
    )
