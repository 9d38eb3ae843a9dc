"""A search on a Ray that is started on this machine: the bytes of the local engine."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.e2e.conftest import Relook
from tests.e2e.slow_network import Failing
from tests.unit.predictions.passes_cases import contents
from torch import Tensor

from relook.data import load_data
from relook.errors import RelookError, install_command
from relook.models import TorchPredictor
from relook.models.small import new_small
from relook.policy import SubPolicy
from relook.policy.recipes import get_recipe
from relook.policy_search.search import search_dataset
from relook.policy_search.settings import SearchSettings
from relook.predictions.model_calls import running_on
from relook.predictions.passes import View, predict_views

SETTINGS = SearchSettings(
    recipe=get_recipe("small"), length=4, pool_size=40, seed=3, batch=64, strategy="greedy"
)


@pytest.fixture(scope="module")
def cores() -> Iterator[None]:
    """A small Ray on this machine, for all tests of this file."""
    ray = pytest.importorskip("ray")
    ray.init(
        address="local",
        num_cpus=2,
        num_gpus=1,
        object_store_memory=200_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()


def search(run: Path) -> None:
    digits = load_data("digits").subset(np.arange(200))
    search_dataset(TorchPredictor(new_small(seed=1)), digits, SETTINGS, run=run)


@pytest.mark.usefixtures("cores")
def test_the_bytes_are_those_of_the_local_engine(tmp_path: Path) -> None:
    from relook.predictions.engines.ray import RayEngine

    search(tmp_path / "local")
    told: list[str] = []
    with RayEngine(workers=2, gpus_per_worker=0.5, log=told.append) as engine, running_on(engine):
        search(tmp_path / "ray")
    assert told == ["Ray: 2 workers, each with 1 CPU and 0.5 GPUs"]
    for name in ("policy.json", "search.json"):
        ours, theirs = (tmp_path / where / name for where in ("ray", "local"))
        assert ours.read_bytes() == theirs.read_bytes()
    for name in ("predictions.zarr", "heldout.zarr"):
        assert contents(tmp_path / "ray" / name) == contents(tmp_path / "local" / name)


@pytest.mark.slow
@pytest.mark.usefixtures("cores")
def test_a_models_error_is_the_same_line_and_no_retry(images: Tensor) -> None:
    from relook.predictions.engines.ray import RayEngine

    grey, model = images[:, :1], TorchPredictor(Failing(seconds=0), classes=10)
    views = [View(SubPolicy(), 0)]
    with pytest.raises(RelookError) as here:
        predict_views(model, grey, views, seed=0, batch=4)
    told: list[str] = []
    with RayEngine(workers=1, log=told.append) as engine, running_on(engine):
        with pytest.raises(RelookError) as there:
            predict_views(model, grey, views, seed=0, batch=4)
        good = TorchPredictor(new_small(seed=1))
        again = predict_views(good, grey, views, seed=0, batch=4)
    assert str(there.value) == str(here.value)
    assert str(here.value).count("\n") == 0
    assert len(told) == 2  # the workers of the first model, those of the second, and no loss
    np.testing.assert_array_equal(again, predict_views(good, grey, views, seed=0, batch=4))


@pytest.mark.usefixtures("cores")
def test_what_cannot_be_done_is_one_line(images: Tensor) -> None:
    from relook.predictions.engines.ray import RayEngine

    views = [View(SubPolicy(), 0)]
    model = TorchPredictor(new_small(seed=1))
    model.lock = sys.stdout  # type: ignore[attr-defined]  # what nobody can send
    with RayEngine() as engine, running_on(engine), pytest.raises(RelookError) as unsent:
        predict_views(model, images[:, :1], views, seed=0)
    assert "the model cannot be sent to workers: TypeError" in str(unsent.value)
    with (
        RayEngine(gpus_per_worker=8) as engine,
        running_on(engine),
        pytest.raises(RelookError) as no,
    ):
        predict_views(TorchPredictor(new_small(seed=1)), images[:, :1], views, seed=0)
    assert "no worker has started: each needs" in str(no.value)


def test_without_ray_the_command_names_the_extra(
    relook: Relook, model: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    given = ("search", "--model", model, "--data", data, "--recipe", "small", "--out", tmp_path)
    ended = relook.refused(*given, "--engine", "ray")
    assert "--engine ray needs Ray, which is not installed" in ended.err
    assert install_command("ray") in ended.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--engine", "rai"), "unknown engine 'rai': did you mean 'ray'?"),
        (("--workers", "2"), "--workers is for a cluster: give --engine ray too"),
        (("--engine", "ray", "--dry-run"), "--dry-run measures on this machine"),
        (("--engine", "ray", "--gpus-per-worker", "1.5"), "expected a part of a GPU"),
        (("--store", "ftp://a/b"), "expected a store as a path or as s3://"),
    ],
)
def test_options_that_make_no_sense_are_one_line(
    relook: Relook, model: str, data: str, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    out = tmp_path / "run"
    given = ("search", "--model", model, "--data", data, "--recipe", "small", "--out", out)
    assert message in relook.refused(*given, *options).err
