import numpy as np
import pytest
import torch
from tests.support import refused
from torch import Tensor

from relook import Policy, RelookError, Step, SubPolicy
from relook.policy.pool import sample_pool
from relook.policy.views import apply_subpolicy, make_views

BUSY = SubPolicy(
    (Step("rotate", 20), Step("shear_x", 12), Step("cutout", 30)), Step("crop_flip", 4)
)


@pytest.mark.parametrize("draws", ["fresh", "fixed"])
@pytest.mark.parametrize("batch", [1, 7, 256])
def test_views_are_the_same_bytes_for_every_batch_size(
    images: Tensor, batch: int, draws: str
) -> None:
    for view, sub in enumerate(sample_pool("cifar", 12, seed=5, draws=draws)):  # type: ignore[arg-type]
        whole = make_views(sub, images, seed=3, view=view)
        parts = [
            make_views(sub, part, seed=3, view=view, first_index=i * batch)
            for i, part in enumerate(torch.split(images, batch))
        ]
        assert torch.equal(torch.cat(parts), whole), sub


def test_a_view_belongs_to_the_image_index_not_to_its_place_in_the_batch(images: Tensor) -> None:
    order = np.array([9, 2, 11])
    whole = make_views(BUSY, images, seed=1)
    some = apply_subpolicy(BUSY, images[order], order, 1, 0)
    assert torch.equal(some, whole[order])


def test_fresh_draws_differ_between_images_views_and_seeds(images: Tensor) -> None:
    same = images[:1].expand(16, -1, -1, -1)
    views = make_views(BUSY, same, seed=0)
    assert len({v.numpy().tobytes() for v in views}) == 16
    assert not torch.equal(views, make_views(BUSY, same, seed=0, view=1))
    assert not torch.equal(views, make_views(BUSY, same, seed=1))


def test_fixed_draws_are_one_operation_for_all_images_views_and_seeds(images: Tensor) -> None:
    same = images[:1].expand(16, -1, -1, -1)
    frozen = Policy((BUSY,)).freeze(seed=4)[0]
    views = make_views(frozen, same, seed=0)
    assert len({v.numpy().tobytes() for v in views}) == 1
    assert torch.equal(views, make_views(frozen, same, seed=8, view=3))


def test_the_recipe_adds_its_finish_where_the_sub_policy_has_none(images: Tensor) -> None:
    steps = SubPolicy((Step("invert", 0),))
    finished = SubPolicy((Step("invert", 0),), Step("crop_flip", 4))
    assert torch.equal(make_views(steps, images, seed=0), 255 - images)
    assert torch.equal(
        make_views(steps, images, seed=0, recipe="cifar"), make_views(finished, images, seed=0)
    )


def test_the_plain_image_stays_plain_under_every_recipe(images: Tensor) -> None:
    for recipe in (None, "cifar", "imagenet", "small"):
        view = make_views(SubPolicy(), images, seed=0, recipe=recipe)
        assert torch.equal(view, images)
        assert view.data_ptr() != images.data_ptr()


def test_the_centre_of_the_crop_is_the_plain_image(images: Tensor) -> None:
    centre = Step("crop_flip", 4, draws={"x": 0.5, "y": 0.5, "flip": 0})
    assert torch.equal(make_views(SubPolicy((centre,)), images, seed=0), images)


def test_errors_name_the_sub_policy_and_the_step() -> None:
    tall = torch.zeros(1, 3, 16, 8, dtype=torch.uint8)
    with pytest.raises(RelookError, match="step 2 of “invert · turned left by 90°”"):
        make_views(SubPolicy((Step("invert", 0), Step("quarter_turn", 1))), tall, seed=0)


@pytest.mark.parametrize(
    "bad", [torch.zeros(2, 3, 8, 8), torch.zeros(3, 8, 8, dtype=torch.uint8), "image"]
)
def test_images_that_are_none_are_refused(bad: object) -> None:
    refused("expected", make_views, BUSY, bad, seed=0)
