from collections import Counter
from functools import cache

import numpy as np
import pytest
from scipy import stats
from tests.support import refused

from relook import SubPolicy
from relook.policy.pool import sample_pool
from relook.policy.recipes import RECIPES

whole_pool = cache(sample_pool)


def test_the_cifar_pool_is_the_papers() -> None:
    pool = sample_pool("cifar", seed=0)
    assert len(pool) == 1101
    assert pool[-1] == SubPolicy()
    assert all(len(sub.steps) == 3 for sub in pool[:-1])
    assert all(sub.finish is not None and sub.finish.transform == "crop_flip" for sub in pool[:-1])
    for part, most in ((pool[:500], 45), (pool[500:1000], 20), (pool[1000:1100], 0)):
        magnitudes = np.array([step.magnitude for sub in part for step in sub.steps])
        assert magnitudes.max() <= most
        assert magnitudes.mean() == pytest.approx(most / 2, rel=0.05)


def test_the_imagenet_pool_is_the_papers_and_the_plain_image() -> None:
    assert len(sample_pool("imagenet", plain=False)) == 900
    pool = sample_pool("imagenet", seed=0)
    assert len(pool) == 901
    assert pool[-1].is_plain
    lengths = Counter(len(sub.steps) for sub in pool[:-1])
    assert lengths == {3: 600, 4: 100, 2: 100, 1: 100}
    starts = [sub.steps[0] for sub in pool[:-1]]
    assert {step.transform for step in starts} == {"scale_crop_flip"}
    scales = np.array([step.magnitude for step in starts])
    ends = np.cumsum([300, 300, 100, 100, 100])
    for part, largest in zip(np.split(scales, ends[:-1]), (45, 20, 10, 45, 30), strict=True):
        assert stats.kstest(part, stats.uniform(0, largest).cdf).pvalue > 0.01


def test_every_transform_direction_and_draw_occurs() -> None:
    pool = sample_pool("imagenet", seed=3)
    steps = [step for sub in pool for step in sub.steps]
    assert {s.transform for s in steps} == {"scale_crop_flip", *RECIPES["imagenet"].transforms}
    for name in ("contrast", "color", "brightness", "sharpness"):
        directions = Counter(s.direction for s in steps if s.transform == name)
        assert 0.3 < directions[1] / directions.total() < 0.7
    signs = Counter(dict(s.draws or ())["sign"] for s in steps if s.transform == "rotate")
    assert 0.3 < signs[1.0] / signs.total() < 0.7


@pytest.mark.parametrize("recipe", list(RECIPES))
@pytest.mark.parametrize("size", [1, 2, 3, 10, 150])
def test_a_smaller_pool_keeps_proportions_and_the_plain_image(recipe: str, size: int) -> None:
    pool = sample_pool(recipe, size, seed=1)
    assert len(pool) == size
    assert pool[-1].is_plain
    assert set(pool) <= set(whole_pool(recipe, seed=1))


def test_proportions_of_a_smaller_pool() -> None:
    groups = Counter(
        max(step.magnitude for step in sub.steps) > 20 for sub in sample_pool("cifar", 221)[:-1]
    )
    assert 90 <= groups[True] <= 100  # of the hundred drawn with M = 45, nearly all exceed 20


def test_draws_are_fixed_or_fresh_and_the_steps_the_same() -> None:
    fixed = sample_pool("cifar", 60, seed=2, draws="fixed")
    fresh = sample_pool("cifar", 60, seed=2, draws="fresh")
    assert all(sub.is_fixed for sub in fixed)
    assert not any(sub.is_fixed for sub in fresh[:-1])
    for one, other in zip(fixed, fresh, strict=True):
        names = [(s.transform, s.magnitude, s.direction) for s in one.all_steps]
        assert names == [(s.transform, s.magnitude, s.direction) for s in other.all_steps]


def test_fixed_places_spread_over_the_whole_range() -> None:
    places = [dict(sub.finish.draws or ())["x"] for sub in sample_pool("cifar")[:-1] if sub.finish]
    counts, _ = np.histogram(places, bins=10, range=(0, 1))
    assert counts.min() > 70


def test_bad_arguments_are_refused() -> None:
    refused("did you mean 'cifar'", sample_pool, "cifr")
    refused("at least 1", sample_pool, "cifar", 0)
    refused("'fixed' or 'fresh'", sample_pool, "cifar", draws="frozen")
