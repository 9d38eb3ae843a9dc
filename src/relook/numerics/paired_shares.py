"""How far two predictions of the same images may differ in accuracy.

T. Tango's score bound for the difference of two paired proportions (1998), the usual test of
non-inferiority. Unlike the bootstrap it knows that images without a loss do not prove that
there is none. Counts may be fractions: images that are not independent count for less.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from relook.errors import RelookError

CONFIDENCE = 0.95
"""Of the one-sided bound."""

_HALVINGS = 60


def loss_bound(lost: float, gained: float, images: float, confidence: float = CONFIDENCE) -> float:
    """Return the largest share of accuracy that may be lost, by what `images` images say.

    `lost` counts images that only the dearer prediction gets right, `gained` those that only
    the cheaper one does.
    """
    if images < 1 or lost < 0 or gained < 0 or lost + gained > images:
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


def images_needed(loss: float, confidence: float = CONFIDENCE) -> int:
    """Return how many images can support a loss at all: those that show none."""
    z = NormalDist().inv_cdf(confidence)
    return math.ceil(z * z * (1 - loss) / loss)


def _score(loss: float, lost: float, gained: float, images: float) -> float:
    """Return how many standard errors the observed loss is above `loss`."""
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
