"""How unsure a prediction is, and how much of that is disagreement between views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.numerics.calibration import mean_log_probs, temper
from relook.numerics.metrics import entropy

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Uncertainty:
    """Entropies in nats, float64 `[n]`.

    `entropy` is that of the calibrated prediction. The other three are of the views as they are
    averaged (at the policy's view temperature), before the temperature: `predictive_entropy` that
    of their mean, `expected_entropy` the mean of theirs, `mutual_information` the difference, at
    least 0: how much the views disagree.
    """

    entropy: Floats
    predictive_entropy: Floats
    expected_entropy: Floats

    @property
    def mutual_information(self) -> Floats:
        """How much of the uncertainty is disagreement between views."""
        return np.maximum(self.predictive_entropy - self.expected_entropy, 0.0)


def uncertainty(
    log_probs: NDArray[np.floating[Any]], counts: NDArray[Any], temperature: float
) -> Uncertainty:
    """Return the uncertainty of views' log-probabilities `[view, n, class]`, as they are averaged.

    `counts` `[view]` says how often each view counts.
    """
    average = mean_log_probs(log_probs, axis=0, counts=counts)
    shares = np.asarray(counts, dtype=np.float64) / np.sum(counts)
    return Uncertainty(
        entropy=entropy(temper(average, temperature)),
        predictive_entropy=entropy(average),
        expected_entropy=np.asarray(np.tensordot(shares, entropy(log_probs), axes=1)),
    )
