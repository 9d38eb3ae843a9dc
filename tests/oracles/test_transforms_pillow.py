"""Every kernel against Pillow: single transforms, and whole sub-policies with their finish."""

import platform
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from tests.oracles import pillow_transforms as oracle
from tests.oracles.pictures import pictures
from tests.oracles.pillow_transforms import Matrix, Pixels, random_draws

from relook import Step, SubPolicy
from relook.policy.views import make_views
from relook.transforms import TRANSFORMS
from relook.transforms.geometry import resize
from relook.transforms.resampling import Box

SIZES = [(3, 8, 8), (1, 28, 28), (3, 32, 32), (3, 33, 47), (3, 224, 224)]
MAGNITUDES = (0, 0.1, 10, 20, 45, 60)
# In a padded image the same coordinate is rounded elsewhere, so a value that should be a whole
# number may fall just below it and be truncated to one level less.
ROUNDED_APART = {"shear_x", "shear_y", "rotate"}
# Compilers for other processors fuse Pillow's multiplications with its additions.
SAME_ARITHMETIC = platform.machine() in ("x86_64", "AMD64")


def difference(
    name: str, images: Pixels, values: NDArray[np.float64], draws: dict[str, NDArray[np.float64]]
) -> NDArray[np.int64]:
    """Run the kernel on the batch and Pillow image by image; grey levels, kernel − Pillow."""
    tensors = {key: torch.from_numpy(draw) for key, draw in draws.items()}
    got = TRANSFORMS[name].kernel(torch.from_numpy(images), torch.from_numpy(values), **tensors)
    want = [
        oracle.apply(name, image, values[i], {key: draw[i] for key, draw in draws.items()})
        for i, image in enumerate(images)
    ]
    return got.numpy().astype(np.int64) - np.stack(want)


def allowed(name: str) -> int:
    return 0 if SAME_ARITHMETIC and name not in ROUNDED_APART else 1


def test_every_transform_has_an_oracle() -> None:
    assert set(oracle.ORACLES) == set(TRANSFORMS)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("name", TRANSFORMS)
def test_kernel_is_pillow(name: str, size: tuple[int, int, int]) -> None:
    row = TRANSFORMS[name]
    generator = np.random.default_rng(zlib.crc32(name.encode()) + sum(size))
    images = pictures(*size, seed=sum(size))
    for magnitude in MAGNITUDES:
        if name == "quarter_turn" and size[1] != size[2] and round(magnitude) % 2:
            continue
        draws = random_draws(row, len(images), generator)
        for direction in (-1.0, 1.0) if row.signed else (1.0,):
            values = np.full(len(images), direction * row.value(magnitude))
            apart = np.abs(difference(name, images, values, draws))
            assert apart.max() <= allowed(name), f"magnitude {magnitude}, draws {draws}"


@pytest.mark.parametrize("name", TRANSFORMS)
@settings(max_examples=15)
@given(data=st.data())
def test_kernel_is_pillow_at_any_size_and_magnitude(name: str, data: st.DataObject) -> None:
    row = TRANSFORMS[name]
    height = data.draw(st.integers(8, 40), "height")
    width = height if name == "quarter_turn" else data.draw(st.integers(8, 40), "width")
    value = row.value(data.draw(st.floats(0, 60), "magnitude"))
    if row.signed:
        value *= data.draw(st.sampled_from((-1, 1)), "direction")
    outcomes = {"sign": (-1.0, 1.0), "edge": (0.0, 1.0), "flip": (0.0, 1.0)}
    draws = {
        draw: np.array(
            [data.draw(st.sampled_from(outcomes[draw]) if draw in outcomes else st.floats(0, 1))]
        )
        for draw in row.draws
    }
    images = pictures(data.draw(st.sampled_from((1, 3)), "channels"), height, width, seed=1)
    image = images[data.draw(st.integers(0, len(images) - 1), "picture")][None]
    assert np.abs(difference(name, image, np.array([value]), draws)).max() <= allowed(name)


@pytest.mark.parametrize("magnitude", [15, 30, 45, 60])
@pytest.mark.parametrize("name", ["shear_x", "shear_y"])
def test_shears_by_quarters_are_byte_equal_in_the_surround(name: str, magnitude: int) -> None:
    # Quarters of a pixel are exact in floating point wherever they are counted from.
    generator = np.random.default_rng(magnitude)
    images = pictures(3, 33, 47, seed=magnitude)
    draws = random_draws(TRANSFORMS[name], len(images), generator)
    assert not difference(name, images, np.full(len(images), magnitude / 60), draws).any()


@pytest.mark.parametrize("magnitude", [150, 900.5])
@pytest.mark.parametrize("name", ["shear_x", "shear_y", "translate_x", "translate_y", "rotate"])
def test_the_surround_is_mirrored_at_any_distance(name: str, magnitude: float) -> None:
    images = pictures(3, 9, 12, seed=7)
    draws = random_draws(TRANSFORMS[name], len(images), np.random.default_rng(7))
    values = np.full(len(images), TRANSFORMS[name].value(magnitude))
    assert np.abs(difference(name, images, values, draws)).max() <= allowed(name)


@pytest.mark.skipif(not SAME_ARITHMETIC, reason="Pillow's arithmetic is fused here")
@pytest.mark.parametrize("magnitude", [0.1, 3.7, 10, 20, 44.9, 60])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("name", ["shear_x", "shear_y", "rotate"])
def test_warps_are_byte_equal_inside_the_image(name: str, sign: float, magnitude: float) -> None:
    # Away from the border Pillow needs no surround, and the coordinates are rounded alike.
    value = TRANSFORMS[name].value(magnitude)
    compared = 0
    for image in pictures(3, 60, 48, seed=3):
        pillow = oracle.to_pillow(image)
        matrix: Matrix = {
            "shear_x": (1, sign * value, 0, 0, 1, 0),
            "shear_y": (1, 0, 0, sign * value, 1, 0),
            "rotate": _turn(sign * value, 48, 60),
        }[name]
        if name == "rotate":
            want = pillow.rotate(sign * value, Image.Resampling.BICUBIC)
        else:
            want = pillow.transform(
                pillow.size, Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC
            )
        inside = _reaches_no_border(matrix, 48, 60)
        draws = {"sign": torch.tensor([sign], dtype=torch.float64)}
        if name != "rotate":
            draws["edge"] = torch.zeros(1, dtype=torch.float64)
        got = TRANSFORMS[name].kernel(
            torch.from_numpy(image)[None], torch.tensor([value], dtype=torch.float64), **draws
        )
        assert np.array_equal(got[0].numpy()[:, inside], oracle.from_pillow(want)[:, inside])
        compared += int(inside.sum())
    assert compared > 1000


def _turn(degrees: float, width: int, height: int) -> Matrix:
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    x, y = width / 2, height / 2
    return (cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y)


def _reaches_no_border(matrix: Matrix, width: int, height: int) -> NDArray[np.bool_]:
    a, b, c, d, e, f = matrix
    y, x = np.mgrid[:height, :width] + 0.5
    x_in, y_in = a * x + b * y + c, d * x + e * y + f
    inside: NDArray[np.bool_] = (np.abs(x_in - width / 2) < width / 2 - 2) & (
        np.abs(y_in - height / 2) < height / 2 - 2
    )
    return inside


@pytest.mark.parametrize("name", ["shear_x", "shear_y"])
def test_a_shear_from_the_far_edge_is_the_mirror_image_of_one_from_the_near_edge(
    name: str,
) -> None:
    images = torch.from_numpy(pictures(3, 33, 47, seed=5))
    values = torch.linspace(0, 1, len(images), dtype=torch.float64)
    sign, axis = torch.ones_like(values), 2 if name == "shear_x" else 3
    kernel = TRANSFORMS[name].kernel
    far = kernel(images, values, sign=sign, edge=torch.ones_like(values))
    near = kernel(images.flip(axis), values, sign=sign, edge=torch.zeros_like(values))
    assert torch.equal(far, near.flip(axis))


@pytest.mark.parametrize("size", [(20, 64), (47, 33), (7, 90)])
def test_resize_is_pillow_when_it_shrinks_too(size: tuple[int, int]) -> None:
    images = pictures(3, 47, 64, seed=2)
    boxes = [Box(0, 0, 64, 47), Box(3, 5, 40, 41), Box(60, 2, 4, 9), Box(1, 1, 1, 1)]
    got = resize(torch.from_numpy(images[:4]), boxes, size).numpy()
    for image, box, found in zip(images, boxes, got, strict=False):
        corners = (box.left, box.top, box.left + box.width, box.top + box.height)
        cut = oracle.to_pillow(image).crop(corners)
        # In two calls: some versions of Pillow go down first when the height shrinks most.
        across = cut.resize((size[1], box.height), Image.Resampling.BICUBIC)
        want = across.resize(size[::-1], Image.Resampling.BICUBIC)
        assert np.array_equal(found, oracle.from_pillow(want))


def random_subpolicy(generator: np.random.Generator, names: list[str], paper: str) -> SubPolicy:
    """Three steps of fixed draws and the crop and flip of the paper's CIFAR or ImageNet."""
    picked = list(generator.choice(names, 3))
    if paper == "imagenet":
        picked = ["scale_crop_flip", *picked]
    steps = [
        random_step(generator, name, 30 if name == "scale_crop_flip" else 45) for name in picked
    ]
    finish = random_step(generator, "crop_flip", 0, at_least=4) if paper == "cifar" else None
    return SubPolicy(tuple(steps), finish)


def random_step(
    generator: np.random.Generator, name: str, strength: float, at_least: float = 0
) -> Step:
    row = TRANSFORMS[name]
    draws = {key: float(draw[0]) for key, draw in random_draws(row, 1, generator).items()}
    direction = int(generator.choice((-1, 1))) if row.signed else None
    return Step(name, max(at_least, generator.uniform(0, strength)), direction, draws)


@pytest.mark.parametrize(
    ("paper", "size", "count"),
    [
        ("cifar", (3, 32, 32), 150),
        ("cifar", (1, 28, 28), 50),
        ("cifar", (3, 8, 8), 50),
        ("imagenet", (3, 48, 48), 60),
        ("imagenet", (3, 224, 224), 4),
    ],
)
def test_whole_subpolicies_are_pillow(paper: str, size: tuple[int, int, int], count: int) -> None:
    generator = np.random.default_rng(11)
    images = pictures(*size, seed=11)
    near, pixels = 0, 0
    for _ in range(count):
        subpolicy = random_subpolicy(generator, sorted(TRANSFORMS), paper)
        got = make_views(subpolicy, torch.from_numpy(images), seed=0).numpy()
        for image, found in zip(images, got, strict=True):
            want = image
            for step in subpolicy.all_steps:
                want = oracle.apply(step.transform, want, step.value, step.fixed_draws or {})
            near += int((np.abs(want.astype(np.int64) - found) <= 1).sum())
            pixels += want.size
    assert near / pixels >= 0.999
