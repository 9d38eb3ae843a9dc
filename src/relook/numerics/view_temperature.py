"""Learning the view temperature κ: at what views are averaged, mean of softmax(log p / κ)."""

from __future__ import annotations

from numpy.typing import ArrayLike

from relook.numerics.arrays import FloatArray, Labels, LogProbs


def choose_view_temperature(
    log_probs: LogProbs,
    labels: Labels,
    weights: FloatArray | None = None,
    groups: ArrayLike | None = None,
) -> float:
    """Return the view temperature for predictions `[view, n, class]`, in the policy's order."""
    return 1.0
