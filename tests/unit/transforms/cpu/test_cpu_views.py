"""The fast path against the torch kernels: the same bytes, whatever the batch or the threads."""

import multiprocessing
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.pictures import pictures
from tests.oracles.pillow_transforms import random_draws
from torch import Tensor

from relook import Step, SubPolicy
from relook.policy.pool import sample_pool
from relook.policy.views import apply_subpolicy, make_views
from relook.transforms import TRANSFORMS
from relook.transforms.apply import apply_kernels, apply_steps, make_plan
from relook.transforms.cpu.instructions import compiled
from relook.transforms.steps import AppliedStep

ROOT = Path(__file__).resolve().parents[4]
FAST = [name for name, row in TRANSFORMS.items() if row.cpu is not None]
SIZES = [(3, 8, 8), (1, 28, 28), (3, 32, 32), (3, 33, 47), (3, 224, 224)]


def images_of(size: tuple[int, int, int], copies: int = 3) -> Tensor:
    """Noise, photographs, a gradient, a flat image, and one of 0 and 255 alone."""
    found = np.concatenate([pictures(*size, seed=sum(size) + i) for i in range(copies)])
    extremes = np.random.default_rng(0).choice(np.array([0, 255], np.uint8), (2, *size))
    return torch.from_numpy(np.concatenate([found, extremes]))


def applied(name: str, magnitudes: Sequence[float], generator: np.random.Generator) -> AppliedStep:
    row = TRANSFORMS[name]
    signs = generator.choice([-1.0, 1.0], len(magnitudes)) if row.signed else 1.0
    values = np.array([row.value(m) for m in magnitudes], dtype=np.float64) * signs
    return AppliedStep(name, values, random_draws(row, len(magnitudes), generator))


def part_of(step: AppliedStep, part: slice) -> AppliedStep:
    draws = {name: draw[part] for name, draw in step.draws.items()}
    return AppliedStep(step.transform, step.values[part], draws)


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_every_transform_but_these_has_a_fast_form() -> None:
    assert set(TRANSFORMS) - set(FAST) == {"quarter_turn"}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("name", FAST)
def test_fast_is_the_torch_kernel(name: str, size: tuple[int, int, int]) -> None:
    images = images_of(size, copies=1 if size[1] > 100 else 3)
    generator = np.random.default_rng(zlib.crc32(name.encode()) + sum(size))
    count = len(images)
    spread = [np.zeros(count), np.full(count, 45.0), generator.uniform(0, 60, count)]
    # None, all, any, beyond all use; and no images at all.
    spread += [np.full(count, beyond) for beyond in (61.0, 1e4, 1e12, 1e300)]
    for magnitudes in spread if size[1] < 100 else spread[2:3]:
        step = applied(name, magnitudes.tolist(), generator)
        got = apply_steps(images, [step])
        assert torch.equal(got, apply_kernels(images, [step])), magnitudes
    assert apply_steps(images[:0], [applied(name, [], generator)]).shape == (0, *size)


SLOPES = (1.0, 2.0, 0.5, 1 / 3, 3.999, 41.3, 1000.0, 1e-12)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rotate", (30.0, 45.0, 90.0, 180.0, 359.9, 1e-9)),
        ("shear_x", SLOPES),
        ("shear_y", SLOPES),
    ],
)
def test_warps_that_meet_whole_pixels_are_the_torch_kernel(
    name: str, values: tuple[float, ...]
) -> None:
    for images in (images_of((3, 33, 47)), images_of((3, 32, 32))):
        draws = random_draws(TRANSFORMS[name], len(images), np.random.default_rng(1))
        for value in values:
            step = AppliedStep(name, np.full(len(images), value), draws)
            assert torch.equal(apply_steps(images, [step]), apply_kernels(images, [step])), value


@settings(max_examples=150)
@given(
    names=st.lists(st.sampled_from(sorted(FAST)), max_size=6),
    size=st.sampled_from([(3, 8, 11), (1, 12, 12), (3, 20, 16)]),
    seed=st.integers(0, 2**32 - 1),
)
def test_merged_steps_are_the_steps_apply_kernels(
    names: list[str], size: tuple[int, int, int], seed: int
) -> None:
    images = images_of(size, copies=1)
    generator = np.random.default_rng(seed)
    strongest = generator.choice([0, 5, 20, 60])
    steps = [
        applied(name, generator.uniform(0, strongest, len(images)).tolist(), generator)
        for name in names
    ]
    got = apply_steps(images, steps)
    assert torch.equal(got, apply_kernels(images, steps))


def test_neighbours_of_a_kind_become_one_kernel() -> None:
    generator = np.random.default_rng(0)
    names = ("invert", "solarize", "equalize", "flip", "identity", "crop", "translate_x", "color")
    plan = make_plan([applied(name, [10.0] * 4, generator) for name in names], (4, 3, 16, 16))
    assert [op.kernel.__name__ for op in plan] == ["_apply_points", "_apply_moves", "_color"]
    # The two tables in front of equalize are one.
    assert plan[0].for_each[0].shape == (4, 2)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("size", [(3, 32, 32), (1, 28, 28), (3, 96, 80)])
def test_threads_and_splits_change_nothing(size: tuple[int, int, int]) -> None:
    images = images_of(size).repeat(12, 1, 1, 1)
    generator = np.random.default_rng(3)
    names = ("rotate", "autocontrast", "shear_y", "contrast", "scale_crop_flip", "crop_flip")
    steps = [applied(n, generator.uniform(0, 45, len(images)).tolist(), generator) for n in names]
    torch.set_num_threads(1)
    alone = apply_steps(images, steps)
    for threads in (2, 5):
        torch.set_num_threads(threads)
        together = apply_steps(images, steps)
        assert torch.equal(together, alone)
    for batch in (1, 13):
        for start in range(0, 30, batch):
            part = slice(start, start + batch)
            got = apply_steps(images[part], [part_of(step, part) for step in steps])
            assert torch.equal(got, alone[part])


@pytest.mark.usefixtures("_threads")
def test_callers_on_several_threads_do_not_disturb_each_other() -> None:
    torch.set_num_threads(2)
    images = images_of((3, 32, 32)).repeat(8, 1, 1, 1)
    subs = sample_pool("cifar", 12, seed=4)
    indices = np.arange(len(images))
    alone = [apply_subpolicy(sub, images, indices, 0, view) for view, sub in enumerate(subs)]
    with ThreadPoolExecutor(4) as callers:
        found = list(
            callers.map(
                lambda view: apply_subpolicy(subs[view], images, indices, 0, view),
                range(len(subs)),
            )
        )
    assert all(torch.equal(*pair) for pair in zip(alone, found, strict=True))


def _checksum(images: Tensor) -> int:
    step = Step("rotate", 20, draws={"sign": 1.0})
    return zlib.crc32(make_views(SubPolicy((step,)), images, seed=0).numpy().tobytes())


@pytest.mark.usefixtures("_threads")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_makes_the_same_views() -> None:
    torch.set_num_threads(2)
    images = images_of((3, 32, 32)).repeat(8, 1, 1, 1)
    here = _checksum(images)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_checksum, (images,)).get(timeout=60) == here


@pytest.mark.parametrize(
    ("name", "magnitude"), [("quarter_turn", 1.0), ("shear_x", 1e5), ("shear_y", 1e12)]
)
def test_what_has_no_fast_form_goes_through_the_torch_kernels(name: str, magnitude: float) -> None:
    images = images_of((3, 16, 16))
    generator = np.random.default_rng(0)
    steps = [
        applied("invert", [0.0] * len(images), generator),
        applied(name, [magnitude] * len(images), generator),
    ]
    plan = make_plan(steps, tuple(images.shape))
    assert [getattr(op.kernel, "__name__", "torch") for op in plan] == ["_apply_points", "torch"]
    assert torch.equal(apply_steps(images, steps), apply_kernels(images, steps))
    fixed = Step(name, magnitude, draws=dict.fromkeys(TRANSFORMS[name].draws, 1.0))
    view = make_views(SubPolicy((Step("invert", 0), fixed)), images, seed=0)
    ones = {d: np.ones(len(images)) for d in TRANSFORMS[name].draws}
    assert torch.equal(
        view, apply_kernels(images, [steps[0], AppliedStep(name, steps[1].values, ones)])
    )


@pytest.mark.parametrize("name", FAST)
def test_makes_new_images_from_any_layout_and_leaves_those_alone(name: str) -> None:
    images = images_of((3, 14, 14))
    strided = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    before = images.clone()
    step = applied(name, [20.0] * len(images), np.random.default_rng(5))
    got, from_strided = apply_steps(images, [step]), apply_steps(strided, [step])
    assert torch.equal(got, from_strided)
    got.fill_(7)
    assert torch.equal(images, before)


def test_code_that_cannot_be_kept_on_disk_is_compiled_all_the_same() -> None:
    space: dict[str, object] = {}
    exec("def doubled(number):\n    return 2 * number", space)  # noqa: S102
    assert compiled(space["doubled"])(21) == 42  # type: ignore[arg-type]


_WITHOUT_AVX512 = """
import sys
import numpy as np, torch
from tests.unit.transforms.cpu.test_cpu_views import applied, images_of
from relook.transforms.apply import apply_kernels, apply_steps
images, generator = images_of((3, 80, 72), copies=1), np.random.default_rng(0)
for name in ("zoom", "equalize", "rotate", "shear_y"):
    steps = [applied(name, generator.uniform(0, 45, len(images)).tolist(), generator)]
    assert torch.equal(apply_steps(images, steps), apply_kernels(images, steps)), name
"""


@pytest.mark.slow
def test_a_plain_processor_makes_the_same_bytes() -> None:
    """Compile for a processor without AVX, in a process of its own."""
    plain = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    subprocess.run([sys.executable, "-c", _WITHOUT_AVX512], env=plain, cwd=ROOT, check=True)
