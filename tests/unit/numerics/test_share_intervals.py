import math

import numpy as np
import pytest
from scipy import optimize, stats
from tests.support import refused

from relook.numerics.intervals import images_needed, loss_bound, share_interval


def _reference(lost: int, gained: int, images: int) -> float:
    """Tango's bound by brute force: the constrained likelihood is maximised numerically."""

    def score(loss: float) -> float:
        def unlikely(share: float) -> float:
            rest = 1 - 2 * share - loss
            return -float(
                stats.multinomial.logpmf(
                    [lost, gained, images - lost - gained],
                    images,
                    [share + loss, share, rest],
                )
            )

        found = optimize.minimize_scalar(
            unlikely,
            bounds=(max(0, -loss) + 1e-12, (1 - loss) / 2 - 1e-12),
            method="bounded",
            options={"xatol": 1e-12},
        )
        spread = images * (2 * found.x + loss - loss**2)
        return float((lost - gained - images * loss) / math.sqrt(spread) + stats.norm.ppf(0.95))

    return float(optimize.brentq(score, (lost - gained) / images + 1e-9, 0.5))


@pytest.mark.parametrize(
    ("lost", "gained", "images"),
    [(3, 2, 1000), (0, 4, 500), (12, 0, 1250), (7, 7, 2500), (1, 0, 700), (40, 30, 300)],
)
def test_it_is_tangos_bound(lost: int, gained: int, images: int) -> None:
    expected = _reference(lost, gained, images)
    assert loss_bound(lost, gained, images) == pytest.approx(expected, abs=2e-6)


def test_without_a_loss_the_bound_is_that_of_one_share() -> None:
    z = stats.norm.ppf(0.95)
    assert loss_bound(0, 0, 600) == pytest.approx(z * z / (600 + z * z))


@pytest.mark.parametrize("loss", [0.001, 0.005, 0.02, 0.3])
def test_the_images_needed_are_the_fewest_that_could_do(loss: float) -> None:
    needed = images_needed(loss)
    assert loss_bound(0, 0, needed) <= loss < loss_bound(0, 0, needed - 1)


def test_it_covers_the_true_loss_about_as_often_as_promised() -> None:
    generator = np.random.default_rng(0)
    shares = [0.012, 0.006, 0.982]
    drawn = generator.multinomial(1000, shares, size=2000)
    bounds = [loss_bound(int(lost), int(gained), 1000) for lost, gained, _ in drawn]
    assert 0.93 < np.mean(np.array(bounds) >= 0.006) < 0.98


def test_more_losses_than_images_are_refused() -> None:
    refused("at most 10 images, got 8 lost and 3 gained", loss_bound, 8, 3, 10)


def test_a_shares_interval_has_both_bounds() -> None:
    changes = np.r_[np.ones(12), -np.ones(5), np.zeros(183)]
    found = share_interval(changes)
    assert found.estimate == pytest.approx(0.035)
    assert found.high == pytest.approx(loss_bound(12, 5, 200, 0.975))
    assert found.low == pytest.approx(-loss_bound(5, 12, 200, 0.975))
    assert share_interval(changes, weights=np.full(200, 3.0)) == found


def test_images_without_a_change_do_not_prove_that_there_is_none() -> None:
    found = share_interval(np.zeros(100))
    assert -found.low == found.high == pytest.approx(loss_bound(0, 0, 100, 0.975))


def test_copies_of_images_say_no_more_about_shares() -> None:
    generator = np.random.default_rng(0)
    changes = generator.choice([-1.0, 0.0, 1.0], p=[0.1, 0.7, 0.2], size=200)
    alone = share_interval(changes)
    groups = np.repeat(np.arange(200), 5)
    copies = share_interval(np.repeat(changes, 5), groups=groups)
    assert (copies.low, copies.high) == pytest.approx((alone.low, alone.high), rel=0.05)
    # Groups whose images have nothing in common say nearly what their images do.
    loose = generator.choice([-1.0, 0.0, 1.0], p=[0.1, 0.7, 0.2], size=1000)
    apart, grouped = share_interval(loose), share_interval(loose, groups=groups)
    assert 0.9 < (grouped.high - grouped.low) / (apart.high - apart.low) < 1.2
