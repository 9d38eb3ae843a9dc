"""What every engine promises: the local engine's bytes, stored or not; a new one enrols here."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.predictions.passes_cases import VIEWS, Toy, contents
from torch import Tensor

from relook.errors import RelookError
from relook.models import TorchPredictor
from relook.models.small import new_small
from relook.predictions.model_calls import ENGINES, Engine, running_on
from relook.predictions.passes import predict_views


def ray_engine() -> AbstractContextManager[Engine]:
    pytest.importorskip("ray")
    from relook.predictions.engines.ray import RayEngine

    return RayEngine(workers=1)


MAKERS: dict[str, Callable[[], AbstractContextManager[Engine | None]]] = {
    "local": nullcontext,
    "ray": ray_engine,
}


def test_every_engine_is_here() -> None:
    assert set(MAKERS) == set(ENGINES)


@pytest.fixture(scope="module")
def images() -> Tensor:
    pixels = np.random.default_rng(1).integers(0, 256, (11, 1, 16, 18), dtype=np.uint8)
    return torch.from_numpy(pixels)


@pytest.fixture(scope="module", params=["local", pytest.param("ray", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine | None]:
    with MAKERS[request.param]() as made:
        yield made


def test_it_gives_the_local_engines_bytes(
    engine: Engine | None, images: Tensor, tmp_path: Path
) -> None:
    model = TorchPredictor(new_small(seed=1), classes=10)
    expected = predict_views(model, images, VIEWS, seed=7, batch=4, store_path=tmp_path / "here")
    with running_on(engine):
        found = predict_views(model, images, VIEWS, seed=7, batch=4)
        stored = predict_views(model, images, VIEWS, seed=7, batch=4, store_path=tmp_path / "there")
    assert found.tobytes() == stored.tobytes() == expected.tobytes()
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_it_asks_a_model_that_does_not_say_how_many_classes_it_has(
    engine: Engine | None, images: Tensor
) -> None:
    model = TorchPredictor(new_small(seed=1))
    with running_on(engine):
        assert predict_views(model, images, VIEWS, seed=7, batch=4).shape == (len(VIEWS), 11, 10)


def test_it_counts_every_pass(engine: Engine | None, images: Tensor) -> None:
    reported: list[tuple[int, int]] = []
    with running_on(engine):
        predict_views(
            Toy(), images, VIEWS, seed=7, batch=4, progress=lambda *now: reported.append(now)
        )
    total = len(VIEWS) * len(images)
    assert reported[0] == (0, total)
    assert reported[-1] == (total, total)
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)


def test_it_ends_with_the_local_engines_error(engine: Engine | None, images: Tensor) -> None:
    with pytest.raises(RelookError) as here:
        predict_views(Toy(fail_after=0), images, VIEWS, seed=7, batch=4)
    with running_on(engine), pytest.raises(RelookError) as there:
        predict_views(Toy(fail_after=0), images, VIEWS, seed=7, batch=4)
    assert str(there.value) == str(here.value)
    assert "\n" not in str(there.value)
