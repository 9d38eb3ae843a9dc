"""METRICS: the name and number format of each metric, in every table and figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from relook.evaluation.results import Result
from relook.foundation.wording import plain, signed


@dataclass(frozen=True)
class Metric:
    """A metric's head in tables, its title in figures, a factor and decimals.

    `paper_digits` are the decimals of tables like the paper's; `lowest`: lower is better;
    `counts`: whole numbers have no decimals.
    """

    head: str
    title: str
    scale: float = 1.0
    digits: int = 4
    paper_digits: int = 3
    lowest: bool = False
    counts: bool = False

    def number(self, value: float, digits: int | None = None) -> str:
        """Return a value with a true minus."""
        if self.counts and value == round(value):
            digits = 0
        return plain(self.scale * value, self.digits if digits is None else digits)

    def signed(self, value: float, digits: int | None = None) -> str:
        """Return a difference with its sign, a true minus."""
        return signed(self.scale * value, self.digits if digits is None else digits)

    def text(self, one: Result) -> str:
        """Return `−0.6231±0.0012`; the mean alone if there is no deviation."""
        spread = f"±{self.number(one.deviation)}" if one.deviation else ""
        return self.number(one.value) + spread


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "accuracy": Metric("acc. %", "Accuracy (%)", 100.0, 2, 2),
        "log_likelihood": Metric("LL", "Log-likelihood"),
        "cll": Metric("cLL", "Calibrated log-likelihood"),
        "cll_usual_average": Metric("cLL usual", "Calibrated log-likelihood, usual average"),
        "brier": Metric("Brier", "Brier score", lowest=True),
        "brier_calibrated": Metric("Brier cal.", "Calibrated Brier score", lowest=True),
        "ece": Metric("ECE %", "Expected calibration error (%)", 100.0, 2, lowest=True),
        "ece_calibrated": Metric("ECE % cal.", "Calibrated ECE (%)", 100.0, 2, lowest=True),
        "adaptive_ece": Metric("aECE %", "Adaptive ECE (%)", 100.0, 2, lowest=True),
        "classwise_ece": Metric("cwECE %", "Class-wise ECE (%)", 100.0, 2, lowest=True),
        "aurc": Metric("AURC", "Area under the risk-coverage curve", lowest=True),
        "auroc": Metric("AUROC", "AUROC of foreign images"),
        "fpr95": Metric("FPR95 %", "Foreign images that pass with 95 % (%)", 100.0, 2, lowest=True),
        "accuracy_at": Metric("acc. %", "Accuracy of what is answered (%)", 100.0, 2),
        "temperature": Metric("T", "Optimal temperature", digits=3),
        "slowdown": Metric("time ×", "Measured time", digits=1, lowest=True),
        "error": Metric("error %", "Error (%)", 100.0, 2, lowest=True),
        "clean_error": Metric("clean %", "Error on clean images (%)", 100.0, 2, lowest=True),
        "uce": Metric("uCE %", "Error (%)", 100.0, 2, lowest=True),
        "muce": Metric(
            "muCE %", "Mean unnormalized corruption error (muCE, %)", 100.0, 2, lowest=True
        ),
        "mce": Metric("mCE", "Mean corruption error (mCE)", 1.0, 3, lowest=True),
        "count": Metric("uses", "Uses in a policy", digits=1, counts=True),
        "magnitude": Metric("M", "Mean magnitude", digits=1),
    }
)


def metric_of(name: str) -> Metric:
    """Return a metric's format; one that is not in the table is shown by its name."""
    return METRICS.get(name) or Metric(name, name)
