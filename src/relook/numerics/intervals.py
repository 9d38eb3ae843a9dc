"""The uncertainty of a mean over images: its standard error, and intervals of paired differences.

A few images of a good network show few of its errors, and then both the bootstrap and the sample
variance are too confident. The predictions themselves show what a difference would be for other
labels, and so how much it varies: that variance counts as if it came from `LIKELY_IMAGES` more
images. docs/concepts.md has the measurements of benchmarks/set_coverage.py.

Differences in accuracy have T. Tango's score bound for two paired proportions (1998), the usual
test of non-inferiority, for the same reason: images without a loss do not prove that there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.errors import RelookError
from relook.numerics.arrays import FloatArray, LogProbs

Groups = NDArray[np.int64]
"""Each image's group, `[image]`: numbers from 0 on."""

LIKELY_IMAGES = 30
"""The images that the variance expected by the predictions counts as."""

CONFIDENCE = 0.95
"""The confidence of the one-sided bound on a loss of accuracy."""

_HALVINGS = 60
_PRIOR_GROUPS = 5  # assumed groups that differ as one, besides the observed ones
_ROUNDING = 1e-9  # of shares that add up to one
_TINY = 1e-300  # a divisor instead of 0, when the dividend is 0 too


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float
    confidence: float

    def __str__(self) -> str:
        return f"{self.estimate:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


def paired_interval(
    differences: ArrayLike,
    *,
    confidence: float = 0.95,
    groups: ArrayLike | None = None,
    weights: FloatArray | None = None,
    likely: float | None = None,
) -> Interval:
    """Return the mean of per-image differences `[n]` with Student's interval.

    Images of one of the `groups` `[n]` count as one; `weights` `[n]` make it a weighted mean;
    `likely` is the variance expected by the predictions (`likely_variance`).
    """
    values = _checked(differences, confidence)
    own = np.ones(len(values)) if weights is None else weights
    numbers = None if groups is None else group_numbers(groups, len(values))
    units = len(values) if numbers is None else int(numbers.max()) + 1
    if units < 2:
        raise RelookError("expected at least 2 groups for an interval, got 1")
    mean, variance, freedom = _mean_variance_freedom(values, own, numbers)
    total = variance * freedom
    if likely is not None:
        known = independent_images(own, numbers)
        # Each of the two methods has a temperature fitted to such images.
        total = (total + LIKELY_IMAGES * likely / known) * (1 + 2 / known)
        freedom += LIKELY_IMAGES
    reach = student_quantile((1 + confidence) / 2, freedom) * math.sqrt(total / freedom)
    return Interval(mean, mean - reach, mean + reach, confidence)


def likely_variance(one: LogProbs, other: LogProbs) -> float:
    """Return the variance of one − other over images and their possible labels.

    Both are calibrated log-probabilities `[n, c]`; their mean is the probability of a label.
    """
    change = np.subtract(one, other, dtype=np.float64)
    chance = (np.exp(one, dtype=np.float64) + np.exp(other, dtype=np.float64)) / 2
    mean = (chance * change).sum(axis=1).mean()
    return float((chance * (change - mean) ** 2).sum(axis=1).mean())


def student_quantile(share: float, freedom: float) -> float:
    """Return the quantile of Student's t by its expansion around the normal one (Hill 1970).

    With at least 10 degrees of freedom it is exact to 4 digits up to a share of 0.9999.
    """
    z = NormalDist().inv_cdf(share)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def share_interval(
    differences: ArrayLike,
    *,
    confidence: float = 0.95,
    groups: ArrayLike | None = None,
    weights: FloatArray | None = None,
) -> Interval:
    """Return the mean of differences in correctness `[n]`, each from −1 to 1, with its interval.

    `groups` and `weights` are as in `paired_interval`.
    """
    values = _checked(differences, confidence)
    own = np.ones(len(values)) if weights is None else weights
    shares = own / own.sum()
    lost, gained = (float((shares * np.maximum(one, 0)).sum()) for one in (-values, values))
    images = independent_images(own)
    if groups is not None:
        images /= _design_effect(values, own, group_numbers(groups, len(values)), lost + gained)
    level = (1 + confidence) / 2
    low = -loss_bound(lost * images, gained * images, images, level)
    high = loss_bound(gained * images, lost * images, images, level)
    return Interval(gained - lost, low, high, confidence)


def loss_bound(lost: float, gained: float, images: float, confidence: float = CONFIDENCE) -> float:
    """Return the largest loss of accuracy that is compatible with `images` images.

    `lost` counts images that only the more expensive prediction gets right, `gained` those that
    only the cheaper one does.
    """
    if images < 1 or lost < 0 or gained < 0 or lost + gained > images * (1 + _ROUNDING):
        raise RelookError(
            f"expected counts of at most {images} images, got {lost} lost and {gained} gained"
        )
    z = NormalDist().inv_cdf(confidence)
    low, high = (lost - gained) / images, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _score(middle, lost, gained, images) > -z:
            low = middle
        else:
            high = middle
    return high


def images_needed(loss: float) -> int:
    """Return the fewest images that can rule out a larger loss than `loss`, if none shows one."""
    z = NormalDist().inv_cdf(CONFIDENCE)
    return math.ceil(z * z * (1 - loss) / loss)


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


def mean_and_deviation(values: ArrayLike) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, which is 0 for a single value."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise RelookError(f"expected a list of at least 1 value, got shape {numbers.shape}")
    return float(numbers.mean()), float(numbers.std(ddof=1)) if len(numbers) > 1 else 0.0


def mean_and_error(
    values: FloatArray, weights: FloatArray, groups: Groups | None = None
) -> tuple[float, float]:
    """Return the weighted mean of `values` `[image]`, and its standard error.

    Images of one group tell little more than one of them: the error is that of groups.
    """
    values, shares = _units(values, weights, groups)
    mean = float((shares * values).sum())  # not a dot product: its sum depends on the threads
    return mean, math.sqrt(float((shares**2 * (values - mean) ** 2).sum()))


def independent_images(weights: FloatArray, groups: ArrayLike | None = None) -> float:
    """Return the number of independent images if those of a group count as one.

    That is the number of groups if all weigh the same, and less if some dominate (Kish's effective
    size).
    """
    if groups is not None:
        weights = np.bincount(group_numbers(groups, len(weights)), weights).astype(np.float64)
    return float(weights.sum() ** 2 / (weights**2).sum())


def group_numbers(groups: ArrayLike, images: int) -> Groups:
    """Return a number from 0 on for each image's group."""
    given = np.asarray(groups)
    if given.shape != (images,):
        raise RelookError(f"expected {images} groups, one per image, got shape {given.shape}")
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def _units(
    values: FloatArray, weights: FloatArray, groups: Groups | None
) -> tuple[FloatArray, FloatArray]:
    """Return the values of images, or the means of groups, and their shares of the whole mean."""
    if groups is not None:
        sums = np.bincount(groups, weights * values).astype(np.float64)
        weights = np.bincount(groups, weights).astype(np.float64)
        values = sums / np.maximum(weights, _TINY)
    return values, weights / weights.sum()


def _mean_variance_freedom(
    values: FloatArray, weights: FloatArray, groups: Groups | None
) -> tuple[float, float, float]:
    """Return the weighted mean, its variance without bias, and the degrees of freedom of that.

    A few large groups, or images of a rare class, pull the mean towards them and so hide their
    variance. If all units vary alike, each square has a known expectation, and the degrees of
    freedom are Satterthwaite's (Bell and McCaffrey 2002): n − 1 if all weigh the same.
    """
    values, shares = _units(values, weights, groups)
    mean = float((shares * values).sum())
    whole = float((shares**2).sum())
    parts = shares**2 / np.maximum(1 - 2 * shares + whole, _TINY)
    variance = float((parts * (values - mean) ** 2).sum())
    zeroth, first, second = (float((parts * shares**power).sum()) for power in range(3))
    mixed = (zeroth * whole) ** 2 + 2 * (zeroth * second + first**2 - 2 * whole * zeroth * first)
    alone = float((shares**4 - (parts * (whole - 2 * shares)) ** 2).sum())
    return mean, variance, whole**2 / (mixed + alone)


def _checked(differences: ArrayLike, confidence: float) -> FloatArray:
    """Return differences `[n]` in float64, or raise if they allow no interval."""
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise RelookError(
            f"expected differences of at least 2 images for an interval, got shape {values.shape}"
        )
    if not np.isfinite(values).all():
        raise RelookError("expected finite differences, got NaN or infinity")
    if not 0 < confidence < 1:
        raise RelookError(f"expected a confidence between 0 and 1, got {confidence}")
    return values


def _design_effect(
    values: FloatArray, weights: FloatArray, groups: Groups, differing: float
) -> float:
    """Return the variance of a mean, relative to that of independent images.

    If few groups have any difference, the estimate tends to its maximum: images of a group that
    all differ together.
    """
    alone = independent_images(weights)
    most = alone / independent_images(weights, groups)
    mean, error = mean_and_error(values, weights, groups)
    spread = (differing - mean**2) / alone
    found = float(np.clip(error**2 / spread, 1.0, most)) if spread > 0 else most
    known = len(np.unique(groups[values != 0]))
    return (known * found + _PRIOR_GROUPS * most) / (known + _PRIOR_GROUPS)


def _score(loss: float, lost: float, gained: float, images: float) -> float:
    """Return the distance of the observed loss above `loss`, in standard errors."""
    share = _gained_share(loss, lost, gained, images)
    spread = images * max(2 * share + loss - loss * loss, 0.0)
    surplus = lost - gained - images * loss
    return surplus / math.sqrt(spread) if spread > 0 else math.copysign(math.inf, surplus)


def _gained_share(loss: float, lost: float, gained: float, images: float) -> float:
    """Return the likeliest share of gained images if the true loss were `loss`."""
    a = 2 * images
    b = 2 * (images - lost) * loss - (lost + gained) * (1 - loss)
    c = -gained * loss * (1 - loss)
    return (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
