"""What the interval of a difference in cLL shows, of one comparison or of the best of several."""

from __future__ import annotations

from statistics import NormalDist

from relook.numerics.intervals import Interval

MARGIN = 0.001
"""The default margin of indifference: a difference in cLL that nobody should care about."""

RELEVANT_GAIN = 0.01
"""The smallest gain in cLL worth looking for: images whose interval may hide it are too few."""

HELPS, AVERAGING, NO_DIFFERENCE, HURTS = "helps", "averaging helps", "no difference", "hurts"
TOO_FEW = "too few images to tell"


def outcome_of(difference: Interval, margin: float = MARGIN) -> str:
    """Return the outcome for a difference in cLL to the plain image."""
    if difference.low > 0 and difference.estimate > margin:
        return HELPS
    if difference.high < 0 and difference.estimate < -margin:
        return HURTS
    unsure = difference.low <= 0 and difference.high > max(RELEVANT_GAIN, margin)
    return TOO_FEW if unsure else NO_DIFFERENCE


def corrected(found: Interval, number: int) -> Interval:
    """Widen an interval so that it holds for the best of `number` (Bonferroni, normal tails)."""
    level = (1 - found.confidence) / max(1, number)
    normal = NormalDist()
    wider = normal.inv_cdf(1 - level / 2) / normal.inv_cdf((1 + found.confidence) / 2)
    return Interval(
        found.estimate,
        found.estimate - wider * (found.estimate - found.low),
        found.estimate + wider * (found.high - found.estimate),
        1 - level,
    )
