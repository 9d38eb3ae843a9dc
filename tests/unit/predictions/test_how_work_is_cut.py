"""Results do not depend on how work is cut up: batches, threads, blocks, or who does it."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from tests.unit.evaluation.compare_cases import QUICK, pictures
from tests.unit.predictions.passes_cases import VIEWS, Toy
from torch import Tensor, nn

import relook.data.decode
import relook.predictions.model_calls
from relook.data import Preparation
from relook.deploy import TTA
from relook.deploy.batch.image_source import open_source
from relook.deploy.batch.prediction import predict_source
from relook.evaluation.baselines import BASELINES
from relook.evaluation.compare import compare
from relook.models import CallablePredictor
from relook.policy import Policy
from relook.policy.pool import sample_pool
from relook.policy.recipes import RECIPES
from relook.predictions.model_calls import Passes, running_on
from relook.predictions.passes import fill_store, predict_views
from relook.predictions.store import BatchPlan, PredictionBlock, PredictionStore

THREADS = st.sampled_from([1, 2, 3])


class Backwards:
    """An engine that computes each block apart, the last one first."""

    gpu = False

    def blocks(
        self,
        passes: Passes,
        blocks: Sequence[PredictionBlock],
        plan: BatchPlan,
        add: Callable[[int], None],
        store: PredictionStore | None,
    ) -> Any:
        for block in reversed(blocks):
            yield from passes.blocks([block], plan, add)


ENGINES = st.sampled_from([None, Backwards()])


def exact_logits(images: Tensor) -> Tensor:
    """Whole numbers in float64: an image's outputs do not depend on its batch."""
    flat = images.flatten(1).double()
    places = torch.arange(flat.shape[1])
    weights = torch.stack([(places * k + k) % 7 for k in (1, 2, 3)]).double()
    return (flat @ weights.T) / 5000


class Exact(nn.Module):
    """The same as a network, which is given levels from 0 to 1."""

    def forward(self, images: Tensor) -> Tensor:
        return exact_logits((images.double() * 255).round()).float()


@contextmanager
def cut(threads: int, group: int) -> Iterator[None]:
    """Compute with so many threads, in blocks of so many views."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relook.predictions.model_calls, "_GROUP", group)
        patch.setattr(relook.data.decode, "_MOST_THREADS", threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@settings(max_examples=15)
@given(st.integers(1, 12), THREADS, st.integers(1, 9), ENGINES)
def test_predictions_of_a_pool(
    batch: int, threads: int, group: int, engine: Backwards | None
) -> None:
    images = torch.from_numpy(
        np.random.default_rng(1).integers(0, 256, (7, 1, 9, 8), dtype=np.uint8)
    )
    expected = predict_views(Toy(), images, VIEWS, seed=7, batch=3)
    with cut(threads, group), running_on(engine), TemporaryDirectory() as folder:
        found = predict_views(Toy(), images, VIEWS, seed=7, batch=batch)
        store = fill_store(Toy(), images, VIEWS, f"{folder}/s", seed=7, batch=batch)
        stored = store.read_all()
    assert found.tobytes() == expected.tobytes()
    assert stored.tobytes() == expected.tobytes()


def compared(**more: Any) -> str:
    predictor = CallablePredictor(exact_logits, outputs="logits", classes=3)
    policy = BASELINES["cf"].policy(RECIPES["small"], 3, seed=9)
    options = {**QUICK, "budgets": (1, 3), "methods": ("flip", "cf"), **more}
    found = compare(predictor, pictures(), policy, **options).to_json()
    assert found["rows"]
    return json.dumps({name: found[name] for name in found if name != "settings"})


@pytest.fixture(scope="module")
def comparison() -> str:
    return compared(batch=8)


@settings(max_examples=10)
@given(st.integers(1, 40), THREADS, st.integers(1, 9), ENGINES)
def test_a_comparison(
    comparison: str, batch: int, threads: int, group: int, engine: Backwards | None
) -> None:
    with cut(threads, group), running_on(engine):
        assert compared(batch=batch) == comparison


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures")
    levels: NDArray[np.uint8] = np.random.default_rng(2).integers(0, 256, (13, 28, 28), np.uint8)
    for number, picture in enumerate(levels):
        Image.fromarray(picture).save(path / f"{number:02d}.png")
    return path


def predicted(folder: Path, block: int, batch: int) -> bytes:
    policy = Policy(sample_pool("small", 8, 0)[:3], temperatures=(1.0, 1.1, 1.2), recipe="small")
    tta = TTA(Exact(), policy, classes=tuple("abc"), max_batch=batch)
    source = replace(open_source(f"folder:{folder}", Preparation()), block=block)
    with TemporaryDirectory() as out:
        predict_source(tta, source, Path(out) / "out.csv", model="m")
        return (Path(out) / "out.csv").read_bytes()


@settings(max_examples=10)
@given(st.integers(1, 20), st.integers(1, 40), THREADS)
def test_a_file_of_predictions(folder: Path, block: int, batch: int, threads: int) -> None:
    expected = predicted(folder, 5, 8)
    with cut(threads, 16):
        assert predicted(folder, block, batch) == expected
