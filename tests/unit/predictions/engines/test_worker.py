"""A worker by itself, without Ray: it computes what this process would, and returns errors."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.unit.data.full_size_files import full, read_full, write_photos
from tests.unit.predictions.passes_cases import FRESH, VIEWS, Toy
from torch import Tensor

from relook.errors import RelookError
from relook.models import EnsemblePredictor, TorchPredictor
from relook.models.small import new_small
from relook.predictions.engines.worker import Answer, Failure, Task, Worker, part_of
from relook.predictions.passes import View, predict_views
from relook.predictions.store import BatchPlan, PredictionBlock
from relook.transforms.full_images import FullImages

PLAN = BatchPlan(views=7, images=5, classes=4, batch=2, group=3)


def started(predictor: object) -> Worker:
    worker = Worker(".")
    assert worker.start(predictor, "cpu", 1) is None  # type: ignore[arg-type]
    return worker


def task(block: PredictionBlock, plan: BatchPlan = PLAN, **changes: object) -> Task:
    views, indices = tuple(VIEWS[block.views]), np.arange(5)[block.images]
    made = Task(block, plan, views, indices, 7, None, "float32", None)
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def images() -> Tensor:
    generator = np.random.default_rng(1)
    return torch.from_numpy(generator.integers(0, 256, (5, 1, 9, 8), dtype=np.uint8))


def run(worker: Worker, images: Tensor, own: Task) -> Answer:
    return worker.run(own, part_of(images, own.block.images))


def as_array(answer: Answer) -> NDArray[np.float32]:
    assert isinstance(answer, np.ndarray)
    return answer


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_each_block_is_what_this_process_computes(images: Tensor, timeout: float | None) -> None:
    expected = predict_views(Toy(), images, VIEWS, seed=7, batch=2)
    worker = started(Toy())
    for block in PLAN.blocks():
        found = as_array(run(worker, images, task(block, timeout=timeout)))
        np.testing.assert_array_equal(found, expected[block.views, block.images])


def test_a_block_takes_the_same_model_calls(images: Tensor) -> None:
    here, there = Toy(), Toy()
    predict_views(here, images, FRESH_VIEWS, seed=7, batch=4)
    plan = BatchPlan(views=3, images=5, classes=4, batch=4, group=16)
    worker = started(there)
    for block in plan.blocks():
        run(worker, images, task(block, plan, views=tuple(FRESH_VIEWS[block.views])))
    assert there.sizes == here.sizes


FRESH_VIEWS = [View(sub, i) for i, sub in enumerate(FRESH)]
BLOCK = PredictionBlock(slice(0, 3), slice(2, 4))


def test_a_models_error_is_returned_as_the_one_line_that_it_is_here(images: Tensor) -> None:
    with pytest.raises(RelookError) as here:
        predict_views(Toy(fail_after=0), images[2:4], VIEWS[:3], seed=7, batch=2, indices=[2, 3])
    answer = run(started(Toy(fail_after=0)), images, task(BLOCK))
    assert answer == Failure(str(here.value))
    assert "images 2…3" in str(here.value)


def test_a_model_that_hangs_is_left_behind(images: Tensor) -> None:
    wait = threading.Event()

    class Hanging(Toy):
        def __call__(self, images: Tensor) -> Tensor:
            wait.wait(60)
            return super().__call__(images)

    answer = run(started(Hanging()), images, task(BLOCK, timeout=0.05))
    wait.set()
    assert isinstance(answer, Failure)
    assert answer.hung
    assert "images 2…3" in answer.text


def test_what_no_user_can_mend_is_raised(images: Tensor) -> None:
    broken = task(BLOCK, indices=np.arange(1))
    for own in (broken, replace(broken, timeout=60.0)):
        with pytest.raises((IndexError, ValueError)):
            run(started(Toy()), images, own)


def test_only_torch_modules_are_taken_to_a_gpu() -> None:
    member = TorchPredictor(new_small(seed=1))
    worker = Worker(".")
    failed = worker.start(EnsemblePredictor([member, Toy()]), "cuda", 1)
    assert isinstance(failed, Failure)
    failed = worker.start(Toy(), "meta", 1)
    assert failed is not None
    assert failed.text.startswith("expected a torch module to run on meta, got a Toy: leave")
    assert worker.start(EnsemblePredictor([member]), "meta", 1) is None
    assert member.device.type == "meta"


def test_a_part_of_full_size_images_brings_its_own_pixels_alone(tmp_path: Path) -> None:
    whole = full(read_full(write_photos(tmp_path)))
    part = part_of(whole, slice(2, 5))
    assert isinstance(part, FullImages)
    assert part.pixels.size == sum(whole.levels(place).size for place in range(2, 5))
    for place in range(3):
        np.testing.assert_array_equal(part.levels(place), whole.levels(place + 2))
    assert part.content == whole[2:5].content


def test_full_size_images_give_the_same_on_a_worker(tmp_path: Path) -> None:
    whole = full(read_full(write_photos(tmp_path)))
    expected = predict_views(Toy(), whole, VIEWS[:3], seed=7, batch=2)
    block = PredictionBlock(slice(0, 3), slice(2, 4))
    own = task(block, replace(PLAN, views=3, images=len(whole)))
    found = as_array(started(Toy()).run(own, part_of(whole, block.images)))
    np.testing.assert_array_equal(found, expected[:, 2:4])
