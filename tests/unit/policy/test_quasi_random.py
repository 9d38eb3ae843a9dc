"""Evenly spread views: what they begin with, and how evenly they lie."""

import numpy as np
import pytest
import torch

from relook.policy import SubPolicy
from relook.policy.pool import conservative_pool, probe_views, quasi_random_views
from relook.policy.recipes import RECIPES, Recipe, variants
from relook.policy.views import make_views


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_views_are_fixed_distinct_and_begin_with_the_plain_image(recipe: Recipe) -> None:
    views = quasi_random_views(recipe, 40)
    assert len(set(views)) == 40
    assert all(view.is_fixed for view in views)
    assert views[0].is_plain
    assert quasi_random_views(recipe, 7) == views[:7]


def test_mirror_images_come_only_where_the_recipe_has_them() -> None:
    assert quasi_random_views("cifar", 2)[1].steps[0].transform == "flip"
    unflipped = RECIPES["cifar"].without(["flip"])
    assert "flip" not in " ".join(str(view) for view in quasi_random_views(unflipped, 20))


def test_half_of_the_views_are_mirrored() -> None:
    finishes = [view.finish for view in quasi_random_views("cifar", 42)[2:]]
    flips = [finish.fixed_draws["flip"] for finish in finishes if finish and finish.fixed_draws]
    assert sum(flips) == 20


def test_places_cover_the_range_more_evenly_than_random_ones() -> None:
    views = quasi_random_views("cifar", 34)[2:]
    places = np.array([[_draw(view, "x"), _draw(view, "y")] for view in views])
    assert abs(places.mean() - 0.5) < 0.03
    random = [np.random.default_rng(seed).random((32, 2)) for seed in range(200)]
    assert _largest_gap(places) < np.quantile([_largest_gap(each) for each in random], 0.05)


@pytest.mark.parametrize("number", [3, 5, 8, 13, 21, 34])
def test_the_crops_of_photos_have_all_scales_whatever_their_number(number: int) -> None:
    crops = [view.steps[0] for view in quasi_random_views("imagenet", number + 1)[1:]]
    scales = np.sort([crop.magnitude for crop in crops]) / 28
    assert np.diff(scales, prepend=0, append=1).max() < 2.2 / number
    assert crops[0].transform == "scale_crop_flip"


def test_a_recipe_without_crops_has_the_plain_image_alone() -> None:
    assert quasi_random_views(RECIPES["cifar"].without(["crop_flip"]), 5) == (SubPolicy(),)


def test_variants_share_the_views_that_are_equal() -> None:
    views = [set(probe_views(recipe, 6)) for recipe in variants(RECIPES["cifar"])]
    assert [len(own) for own in views] == [6] * 4
    # The plain image, its mirror image; of each border four crops, half mirrored, and three more.
    assert len(set().union(*views)) == 2 + 2 * (4 + 3)
    pixels = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    for own, same in zip(
        quasi_random_views("cifar", 6), probe_views(RECIPES["cifar"], 6), strict=True
    ):
        assert torch.equal(*(make_views(one, pixels, seed=0) for one in (own, same)))


def test_shifts_are_taken_in_their_order_and_crops_of_photos_are_chosen() -> None:
    assert conservative_pool("cifar", 20).in_order
    assert not conservative_pool("imagenet", 20).in_order


def _draw(view: SubPolicy, name: str) -> float:
    assert view.finish is not None
    draws = view.finish.fixed_draws
    assert draws is not None
    return draws[name]


def _largest_gap(places: np.ndarray) -> float:
    """The largest distance from a point of the middle to the nearest place."""
    grid = np.stack(np.meshgrid(*[np.linspace(0.2, 0.8, 25)] * 2), axis=-1).reshape(-1, 1, 2)
    return float(np.linalg.norm(grid - places, axis=-1).min(axis=1).max())
