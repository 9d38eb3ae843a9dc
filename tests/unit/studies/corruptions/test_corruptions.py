"""What every corruption promises; a new row of CORRUPTIONS enrols itself."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.support import refused
from tests.unit.studies.corruptions.photographs import photographs
from torch import Tensor

from relook.data.corrupted import FAMILIES
from relook.errors import RelookError
from relook.studies.corruptions import CORRUPTIONS, SEVERITIES, check_severities, corrupt_images
from relook.studies.corruptions.kernels import Draws, ripples

PUBLISHED = [
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
]
# By their published parameters, these grow in another sense than the distance of pixels.
OTHERWISE = {"glass_blur", "elastic_transform", "frost"}


def root_mean_square(corrupted: Tensor, clean: Tensor) -> float:
    return float((corrupted.double() - clean.double()).square().mean().sqrt())


def unlikeness(corrupted: Tensor, clean: Tensor) -> float:
    """One minus the correlation: blind to brightness and contrast."""
    pairs = zip(corrupted.flatten(1).numpy(), clean.flatten(1).numpy(), strict=True)
    return float(np.mean([1 - np.corrcoef(one, other)[0, 1] for one, other in pairs]))


def test_the_table_is_the_published_fifteen_in_four_families() -> None:
    assert list(CORRUPTIONS) == PUBLISHED
    assert [row.number for row in CORRUPTIONS.values()] == list(range(15))
    families = [FAMILIES[name] for name in CORRUPTIONS]
    assert [families.count(f) for f in ("noise", "blur", "weather", "digital")] == [3, 4, 4, 4]


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 9), (1, 40, 24), (3, 70, 64)])
def test_any_shape_comes_back_as_it_went(name: str, shape: tuple[int, int, int]) -> None:
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (1, *shape), np.uint8))
    before = images.clone()
    for severity in (1, 5):
        corrupted = corrupt_images(images, name, severity)
        assert corrupted.shape == images.shape
        assert corrupted.dtype == torch.uint8
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_flat_images_are_no_special_case(name: str) -> None:
    for level in (0, 255):
        corrupted = corrupt_images(torch.full((1, 3, 32, 32), level, dtype=torch.uint8), name, 3)
        assert corrupted.shape == (1, 3, 32, 32)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_depends_on_its_index_and_not_on_its_batch(name: str) -> None:
    images = photographs(32)[:16]
    whole = corrupt_images(images, name, 4, seed=3, indices=np.arange(100, 116))
    parts = [
        corrupt_images(images[part], name, 4, seed=3, indices=100 + np.arange(16)[part])
        for part in (slice(0, 1), slice(1, 6), slice(6, 16))
    ]
    assert torch.equal(torch.cat(parts), whole)
    backwards = corrupt_images(images.flip(0), name, 4, seed=3, indices=np.arange(115, 99, -1))
    assert torch.equal(backwards.flip(0), whole)


@pytest.mark.parametrize(
    "name", ["gaussian_noise", "shot_noise", "impulse_noise", "glass_blur", "motion_blur", "snow",
             "frost", "fog", "elastic_transform"]
)  # fmt: skip
def test_random_ones_follow_seed_and_index(name: str) -> None:
    images = photographs(32)[:1]
    first = corrupt_images(images, name, 3)
    assert not torch.equal(corrupt_images(images, name, 3, seed=1), first)
    assert not torch.equal(corrupt_images(images, name, 3, indices=[1]), first)
    assert torch.equal(corrupt_images(images, name, 3), first)


def test_no_global_generator_is_touched() -> None:
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    states = str(np.random.get_state()), torch.get_rng_state()  # noqa: NPY002
    for name in CORRUPTIONS:
        corrupt_images(photographs(32)[:1], name, 2)
    assert str(np.random.get_state()) == states[0]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[1])


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in OTHERWISE])
@pytest.mark.parametrize("side", [32, 64])
def test_a_higher_severity_is_farther_from_the_clean_image(name: str, side: int) -> None:
    images = photographs(side)
    far = [root_mean_square(corrupt_images(images, name, s), images) for s in SEVERITIES]
    # Two severities of motion blur differ in nothing but the draws, hence the slack.
    assert all(after > 0.97 * before for before, after in pairwise(far))
    assert far[0] > 0
    assert far[-1] > 1.2 * far[0]


def test_frost_hides_more_with_severity() -> None:
    images = photographs(32)
    far = [unlikeness(corrupt_images(images, "frost", s), images) for s in SEVERITIES]
    assert far == sorted(far)


def test_glass_is_worse_shaken_twice_than_once() -> None:
    images = photographs(32)
    far = [root_mean_square(corrupt_images(images, "glass_blur", s), images) for s in SEVERITIES]
    assert min(far[3:]) > max(far[:3])


@pytest.mark.parametrize("side", [32, 224])
def test_elastic_ripples_grow_with_severity(side: int) -> None:
    row = CORRUPTIONS["elastic_transform"]
    rough = []
    for severity in SEVERITIES:
        fields = [
            ripples(side, side, row.parameters(severity, side), Draws(0, i, row.number, severity))
            for i in range(3)
        ]
        rough.append(float(np.mean([np.abs(np.diff(one, axis=-1)).mean() for one in fields])))
    assert rough == sorted(rough)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_parameters_are_the_published_ones_at_their_sides(name: str) -> None:
    row = CORRUPTIONS[name]
    for severity in SEVERITIES:
        assert row.parameters(severity, 32) == pytest.approx(row.small[severity - 1])
        assert row.parameters(severity, 224) == pytest.approx(row.large[severity - 1])


def test_between_the_sides_lengths_change_by_steps_and_the_rest_by_factors() -> None:
    motion = CORRUPTIONS["motion_blur"]
    noise = CORRUPTIONS["gaussian_noise"]
    middle = round((32 * 224) ** 0.5)
    assert noise.parameters(1, middle)[0] == pytest.approx((0.04 * 0.08) ** 0.5, rel=0.01)
    assert motion.parameters(1, middle) == pytest.approx((8, 2), rel=0.01)
    # A strength of 0 is no factor of anything: steps instead.
    elastic = CORRUPTIONS["elastic_transform"]
    assert elastic.parameters(1, middle)[0] == pytest.approx(244 / 224, rel=0.01)


def test_outside_lengths_follow_the_side_and_the_rest_stays() -> None:
    motion, noise = CORRUPTIONS["motion_blur"], CORRUPTIONS["gaussian_noise"]
    assert motion.parameters(1, 448) == pytest.approx((20, 6))
    assert motion.parameters(1, 16) == pytest.approx((3, 0.5))
    assert noise.parameters(5, 448) == pytest.approx((0.38,))
    assert noise.parameters(5, 8) == pytest.approx((0.10,))


def test_recognisable_at_one_and_hard_at_five() -> None:
    images = photographs(32)
    changed: NDArray[np.float64] = np.array(
        [
            [unlikeness(corrupt_images(images, name, s), images) for s in (1, 5)]
            for name in ("gaussian_noise", "defocus_blur", "zoom_blur", "snow", "jpeg_compression")
        ]
    )
    assert (changed[:, 0] < 0.25).all()
    assert (changed[:, 1] > 2 * changed[:, 0]).all()


@pytest.mark.parametrize("severity", [0, 6, True, 2.5])
def test_a_wrong_severity_is_one_line(severity: int) -> None:
    refused("severities from 1 to 5", corrupt_images, photographs(32)[:1], "fog", severity)


def test_a_misspelt_corruption_is_suggested() -> None:
    with pytest.raises(RelookError, match="did you mean 'gaussian_noise'"):
        corrupt_images(photographs(32)[:1], "gausian_noise", 1)


def test_severities_are_sorted_and_each_once() -> None:
    assert check_severities([5, 1, 5]) == (1, 5)
    assert check_severities(None) == (1, 2, 3, 4, 5)


def test_indices_must_fit() -> None:
    refused("expected 1 indices", corrupt_images, photographs(32)[:1], "fog", 1, indices=[0, 1])
    refused("uint8", corrupt_images, photographs(32)[:1].float(), "fog", 1)
