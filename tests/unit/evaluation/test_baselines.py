import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from tests.support import refused
from torch import Tensor

from relook.evaluation.baselines import (
    BASELINES,
    GRID,
    Options,
    check_methods,
    label_of,
    randaugment,
)
from relook.policy import Policy
from relook.policy.pool import sample_pool
from relook.policy.recipes import RECIPES, Group, Recipe
from relook.policy.views import apply_subpolicy

CIFAR, IMAGENET, SMALL = (RECIPES[name] for name in ("cifar", "imagenet", "small"))


def views_of(policy: Policy, images: Tensor) -> list[Tensor]:
    indices = np.arange(len(images))
    return [apply_subpolicy(sub, images, indices, 0, i) for i, sub in enumerate(policy)]


def test_the_table_has_the_papers_baselines_and_the_usual_ones() -> None:
    budgets = {name: row.budget for name, row in BASELINES.items()}
    any_number = dict.fromkeys(("cf", "mtrain", "mgrid", "random"))
    assert budgets == {"plain": 1, "flip": 2, "5c": 5, "d4": 8, "10c": 10, **any_number}
    assert next(iter(BASELINES)) == "plain"
    assert GRID == (0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55)


def test_plain_and_flip_are_the_image_and_its_mirror_image(images: Tensor) -> None:
    (plain,) = views_of(BASELINES["plain"].policy(CIFAR), images)
    assert torch.equal(plain, images)
    first, second = views_of(BASELINES["flip"].policy(CIFAR), images)
    assert torch.equal(first, images)
    assert torch.equal(second, images.flip(-1))


def test_five_crops_are_corners_and_centre_of_seven_eighths_resized_back() -> None:
    picture = np.random.default_rng(1).integers(0, 256, (32, 32), dtype=np.uint8)
    images = torch.from_numpy(picture)[None, None]
    views = views_of(BASELINES["5c"].policy(SMALL), images)
    for view, (x, y) in zip(views, [(2, 2), (0, 0), (4, 0), (0, 4), (4, 4)], strict=True):
        crop = Image.fromarray(picture[y : y + 28, x : x + 28])
        expected = np.asarray(crop.resize((32, 32), Image.Resampling.BICUBIC), dtype=np.int64)
        assert np.abs(view[0, 0].numpy().astype(np.int64) - expected).max() <= 1


def test_ten_crops_are_the_five_and_their_mirror_images(images: Tensor) -> None:
    five = views_of(BASELINES["5c"].policy(CIFAR), images)
    ten = views_of(BASELINES["10c"].policy(CIFAR), images)
    expected = [*five, *(view.flip(-1) for view in five)]
    assert all(torch.equal(*pair) for pair in zip(ten, expected, strict=True))


def test_d4_is_the_whole_group_of_the_square(images: Tensor) -> None:
    views = views_of(BASELINES["d4"].policy(CIFAR), images)
    group = [
        torch.rot90(turned, quarters, dims=(-2, -1))
        for turned in (images, images.flip(-1))
        for quarters in range(4)
    ]
    for expected in group:
        assert sum(torch.equal(expected, view) for view in views) == 1


def test_cf_crops_and_flips_as_the_recipe_does() -> None:
    crops, small = (BASELINES["cf"].policy(recipe, 200) for recipe in (CIFAR, SMALL))
    finishes = [sub.finish for sub in crops if sub.finish]
    assert not any(sub.steps for sub in crops)
    assert {finish.transform for finish in finishes} == {"crop_flip"}
    # Fixed draws differ from view to view.
    assert 70 < sum(dict(finish.draws or ())["flip"] for finish in finishes) < 130
    assert {sub.finish.transform for sub in small if sub.finish} == {"crop"}


@pytest.mark.parametrize("left_out", [(), ("flip",)])
def test_cf_on_imagenet_is_the_usual_random_resized_crop(left_out: tuple[str, ...]) -> None:
    policy = BASELINES["cf"].policy(IMAGENET.without(left_out), 2000, seed=1)
    name = "resized_crop" if left_out else "resized_crop_flip"
    assert {(sub.steps[0].transform, sub.steps[0].value) for sub in policy} == {(name, 0.08)}
    areas = [dict(sub.steps[0].draws or ())["area"] for sub in policy]
    assert stats.kstest(areas, stats.uniform().cdf).pvalue > 0.01


def test_cf_without_any_crop_in_the_recipe_shifts_by_an_eighth() -> None:
    bare = Recipe("bare", ("rotate",), (Group(10, 1, 20),), image_size=64)
    finish = BASELINES["cf"].policy(bare, 3)[0].finish
    assert finish is not None
    assert (finish.transform, finish.magnitude) == ("crop", 8)


def test_randaugment_draws_n_steps_with_magnitudes_up_to_m() -> None:
    subs = randaugment(CIFAR, 400, 0, "fresh", 3, 45.0)
    magnitudes = [step.magnitude for sub in subs for step in sub.steps]
    assert {len(sub.steps) for sub in subs} == {3}
    assert stats.kstest(magnitudes, stats.uniform(0, 45).cdf).pvalue > 0.01
    assert {step.transform for sub in subs for step in sub.steps} == set(CIFAR.transforms)


def test_randaugment_at_another_magnitude_is_the_same_but_weaker() -> None:
    strong = randaugment(CIFAR, 30, 7, "fixed", 3, 40.0)
    weak = randaugment(CIFAR, 30, 7, "fixed", 3, 10.0)
    for one, other in zip(strong, weak, strict=True):
        assert one.finish == other.finish
        for a, b in zip(one.steps, other.steps, strict=True):
            assert (a.transform, a.direction, a.draws) == (b.transform, b.direction, b.draws)
            assert a.magnitude / 4 == pytest.approx(b.magnitude)


def test_mtrain_and_mgrid_take_their_own_magnitudes() -> None:
    options = Options(length=2, magnitude=30.0, grid_magnitude=5.0)
    train = BASELINES["mtrain"].policy(CIFAR, 50, 0, "fresh", options)
    grid = BASELINES["mgrid"].policy(CIFAR, 50, 0, "fresh", options)
    assert train.subpolicies == randaugment(CIFAR, 50, 0, "fresh", 2, 30.0)
    assert grid.subpolicies == randaugment(CIFAR, 50, 0, "fresh", 2, 5.0)


def test_mgrid_without_its_search_says_so() -> None:
    refused("expected a magnitude from the grid search", BASELINES["mgrid"].policy, CIFAR, 5)


def test_random_is_the_recipes_pool_in_another_order() -> None:
    pool = sample_pool(SMALL, seed=2)
    policy = BASELINES["random"].policy(SMALL, len(pool) + 50, seed=2)
    assert sorted(policy, key=repr) == sorted(pool, key=repr)
    assert policy.subpolicies != pool


def test_a_number_of_views_is_needed_where_any_is_possible() -> None:
    refused("'cf': expected a number of views", BASELINES["cf"].policy, CIFAR)
    refused("expected a number of views up to 10,000, got 0", BASELINES["cf"].policy, CIFAR, 0)


def test_methods_are_checked_and_always_hold_plain_and_policy() -> None:
    assert check_methods(None) == (*BASELINES, "gps")
    assert check_methods(["cf", "10c"]) == ("plain", "10c", "cf", "gps")
    assert len({label_of(method) for method in check_methods(None)}) == len(BASELINES) + 1
    refused(r"unknown method 'mgird': did you mean 'mgrid'\?", check_methods, ["mgird"])
