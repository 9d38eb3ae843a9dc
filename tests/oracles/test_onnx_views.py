"""Every transform in an ONNX graph: ONNX Runtime must give the bytes of relook's own views."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from tests.oracles.pictures import pictures
from tests.support import refused

import relook
from relook.deploy.onnx.model import as_model, to_bytes, write_view
from relook.models.onnx_runtime import is_installed, open_session
from relook.policy import Step, SubPolicy
from relook.policy.views import apply_subpolicy, freeze_subpolicy
from relook.transforms import TRANSFORMS
from relook.transforms.onnx.geometry import resize
from relook.transforms.onnx.graph import Graph, Shape
from relook.transforms.resampling import Box

pytestmark = pytest.mark.skipif(not is_installed(), reason="onnx or onnxruntime is not installed")

SHAPES = [Shape(3, 32, 32), Shape(1, 28, 28), Shape(3, 33, 47), Shape(3, 8, 8)]
MAGNITUDES = (0, 0.1, 7.5, 20, 45, 150)

Pixels = NDArray[np.uint8]


def run_graph(graph: Graph, names: Sequence[str], images: Pixels) -> list[Pixels]:
    """Run values of a graph of `images` in ONNX Runtime."""
    for i, name in enumerate(names):
        graph.name_output(name, f"view{i}")
    outputs = [graph.described(f"view{i}", np.uint8, None) for i in range(len(names))]
    described = graph.described("images", np.uint8, ["n", *images.shape[1:]])
    session = open_session(to_bytes(as_model(graph.proto("views", [described], outputs), [])))
    found: list[Pixels] = session.run(None, {"images": images})
    return found


def exported(subpolicies: Sequence[SubPolicy], shape: Shape, images: Pixels) -> list[Pixels]:
    graph = Graph()
    return run_graph(
        graph, [write_view(graph, "images", one, shape) for one in subpolicies], images
    )


def own(subpolicy: SubPolicy, images: Pixels) -> Pixels:
    made = apply_subpolicy(subpolicy, torch.from_numpy(images), np.arange(len(images)), 0, 0)
    pixels: Pixels = made.numpy()
    return pixels


def some_steps(name: str) -> list[SubPolicy]:
    """Several magnitudes, either direction, and three draws of what is drawn."""
    row = TRANSFORMS[name]
    return [
        freeze_subpolicy(SubPolicy((Step(name, magnitude, direction),)), seed, seed)
        for magnitude in MAGNITUDES
        for direction in ((1, -1) if row.signed else (None,))
        for seed in range(3 if row.draws else 1)
    ]


def fits(subpolicy: SubPolicy, shape: Shape) -> bool:
    """A quarter turn fits square images alone."""
    turns = [round(s.value) % 2 for s in subpolicy.all_steps if s.transform == "quarter_turn"]
    return shape.height == shape.width or not any(turns)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s.channels}x{s.height}x{s.width}")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_gives_the_bytes_of_relooks_views(name: str, shape: Shape) -> None:
    images = pictures(shape.channels, shape.height, shape.width, seed=1)
    wanted = [one for one in some_steps(name) if fits(one, shape)]
    for subpolicy, found in zip(wanted, exported(wanted, shape, images), strict=True):
        assert np.array_equal(found, own(subpolicy, images)), str(subpolicy)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_gives_the_same_bytes_at_224_pixels(name: str) -> None:
    shape = Shape(3, 224, 224)
    images = pictures(3, 224, 224, seed=2)
    wanted = some_steps(name)
    for subpolicy in wanted:
        (found,) = exported([subpolicy], shape, images)
        assert np.array_equal(found, own(subpolicy, images)), str(subpolicy)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), recipe=st.sampled_from(["cifar", "imagenet"]))
def test_whole_subpolicies_of_the_recipes_give_the_same_bytes(seed: int, recipe: str) -> None:
    shape = Shape(3, 33, 47)
    images = pictures(3, 33, 47, seed=3)
    pool = [freeze_subpolicy(one, seed, i) for i, one in enumerate(relook.sample_pool(recipe, 4))]
    for subpolicy, found in zip(pool, exported(pool, shape, images), strict=True):
        assert np.array_equal(found, own(subpolicy, images)), str(subpolicy)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_number_of_images_is_free(count: int) -> None:
    shape = Shape(3, 24, 24)
    images = np.concatenate([pictures(3, 24, 24, seed=s) for s in (4, 5)])[:count]
    wanted = [some_steps(name)[-1] for name in ("rotate", "equalize", "zoom", "contrast")]
    for subpolicy, found in zip(wanted, exported(wanted, shape, images), strict=True):
        assert np.array_equal(found, own(subpolicy, images))


def test_neighbours_that_move_pixels_or_map_levels_become_one() -> None:
    steps = (
        Step("crop", 4, draws={"x": 0.1, "y": 0.9}),
        Step("translate_x", 12, draws={"sign": -1}),
        Step("flip", 0),
        Step("invert", 0),
        Step("posterize", 12),
    )
    images = pictures(3, 20, 26, seed=6)
    subpolicy, shape = SubPolicy(steps), Shape(3, 20, 26)
    (found,) = exported([subpolicy], shape, images)
    assert np.array_equal(found, own(subpolicy, images))
    graph = Graph()
    write_view(graph, "images", subpolicy, shape)
    operators = Counter(node.op_type for node in graph.proto("views", [], []).node)
    # One choice of rows and one of columns, one black border, one table.
    assert (operators["Gather"], operators["Where"], operators["GatherElements"]) == (2, 1, 1)


def resized(image: Pixels, size: tuple[int, int], how: Image.Resampling) -> Pixels:
    picture = Image.fromarray(np.moveaxis(image, 0, 2)).resize((size[1], size[0]), how)
    return np.moveaxis(np.asarray(picture), 2, 0)


@pytest.mark.parametrize("size", [(20, 31), (64, 90), (50, 31), (20, 70), (33, 47)])
@pytest.mark.parametrize("how", ["bicubic", "bilinear", "lanczos", "box", "hamming", "nearest"])
def test_a_resize_gives_the_bytes_of_pillow(how: str, size: tuple[int, int]) -> None:
    images = pictures(3, 33, 47, seed=7)
    graph = Graph()
    name = resize(graph, "images", Shape(3, 33, 47), Box(0, 0, 47, 33), size, how)
    (found,) = run_graph(graph, [name], images)
    filters: Any = Image.Resampling
    wanted = [resized(image, size, filters[how.upper()]) for image in images]
    assert np.array_equal(found, np.stack(wanted))


def test_a_fresh_subpolicy_is_refused() -> None:
    with pytest.raises(relook.RelookError, match=r"fixed sub-policy to export.*policy.freeze"):
        write_view(Graph(), "images", SubPolicy((Step("rotate", 3),)), Shape(3, 32, 32))


def test_a_step_that_does_not_fit_is_named() -> None:
    turn = SubPolicy((Step("flip", 0), Step("quarter_turn", 1)))
    refused(r"step 2 of .*square", write_view, Graph(), "images", turn, Shape(3, 32, 40))
