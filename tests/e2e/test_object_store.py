"""Predictions in S3: the same bytes when requests fail, and one line when all do."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.e2e.cluster_driver import CALLS, ROOT, SEARCH, calls_file, calls_of, driver, ended
from tests.e2e.faulty_s3 import Faults, faulty_proxy, request, s3_server
from tests.unit.predictions.passes_cases import VIEWS, Toy, contents
from torch import Tensor

from relook.errors import RelookError
from relook.predictions.passes import fill_store, predict_views

pytest.importorskip("obstore")


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with s3_server() as port:
        yield port


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def bucket(server: int, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have every process that is started here use the proxy."""
    with faulty_proxy(server, faults) as port:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "anyone",
            "AWS_SECRET_ACCESS_KEY": "anything",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that keeps everything in its directory."""
    out = tmp_path_factory.mktemp("local") / "run"
    with driver(out, "Quick") as child:
        assert ended(child)[0] == 0
    return out


def objects(server: int, prefix: str, keys: list[str]) -> dict[str, bytes]:
    return {key: request(server, "GET", f"/bucket/{prefix}/{key}")[1] for key in keys}


def check_same(out: Path, local: Path, server: int, prefix: str) -> None:
    for name in ("policy.json", "search.json", "selection.json"):
        assert (out / name).read_bytes() == (local / name).read_bytes()
    for name in ("predictions.zarr", "heldout.zarr"):
        assert not (out / name).exists()
        expected = contents(local / name)
        assert objects(server, f"{prefix}/{name}", list(expected)) == expected


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("after_work", [False, True])
def test_a_store_is_the_same_when_requests_fail(
    server: int, images: Tensor, tmp_path: Path, faults: Faults, after_work: bool
) -> None:
    prefix = f"quick-{after_work}"
    url = f"s3://bucket/{prefix}"
    fill_store(Toy(), images, VIEWS, tmp_path, seed=7, batch=2)
    faults.share, faults.after_work = 0.3, after_work
    fill_store(Toy(), images, VIEWS, url, seed=7, batch=2)
    assert faults.failed > 2
    expected = contents(tmp_path)
    assert objects(server, prefix, list(expected)) == expected
    again = Toy()
    found = predict_views(again, images, VIEWS, seed=7, batch=2, store_path=url)
    np.testing.assert_array_equal(found, predict_views(Toy(), images, VIEWS, seed=7, batch=2))
    assert again.calls == 1  # to see that the model still answers the same


@pytest.mark.usefixtures("bucket")
def test_what_is_in_the_bucket_is_not_computed_again(images: Tensor, faults: Faults) -> None:
    faults.share, whole, rest = 0.1, Toy(), Toy()
    fill_store(whole, images, VIEWS, "s3://bucket/whole", seed=7, batch=2)
    with pytest.raises(RelookError, match="the model failed"):
        fill_store(
            Toy(fail_after=whole.calls // 2), images, VIEWS, "s3://bucket/half", seed=7, batch=2
        )
    fill_store(rest, images, VIEWS, "s3://bucket/half", seed=7, batch=2)
    assert 0 < rest.calls < whole.calls


@pytest.mark.usefixtures("bucket")
def test_a_server_that_only_fails_is_one_line(
    images: Tensor, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relook.predictions.locations._RETRY_SECONDS", 1)
    faults.share = 1.0
    with pytest.raises(RelookError, match="cannot read s3://bucket/failing") as caught:
        fill_store(Toy(), images, VIEWS, "s3://bucket/failing", seed=7, batch=2)
    assert "\n" not in str(caught.value)
    assert faults.failed > 1  # it was tried again


@pytest.mark.slow
@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("after_work", [False, True])
def test_a_search_survives_a_fifth_of_all_requests(
    server: int, local: Path, tmp_path: Path, faults: Faults, after_work: bool
) -> None:
    faults.share, faults.after_work = 0.2, after_work
    out, prefix = tmp_path / "run", f"fifth-{after_work}"
    with driver(out, "Quick", "--store", f"s3://bucket/{prefix}") as child:
        code, said = ended(child)
    assert code == 0, said
    assert faults.failed > 5
    check_same(out, local, server, prefix)


@pytest.mark.slow
@pytest.mark.usefixtures("bucket")
def test_workers_write_to_the_bucket_and_a_second_driver_finds_it_all(
    server: int, local: Path, tmp_path: Path, faults: Faults
) -> None:
    pytest.importorskip("ray")
    faults.share = 0.1
    store = ("--store", "s3://bucket/workers", "--engine", "ray", "--workers", "2")
    with driver(tmp_path / "first", "Quick", *store) as child:
        code, said = ended(child)
    assert code == 0, said
    check_same(tmp_path / "first", local, server, "workers")
    with driver(tmp_path / "second", "Quick", *store[:2]) as child:
        code, said = ended(child)
    assert code == 0, said
    check_same(tmp_path / "second", local, server, "workers")
    assert len(calls_of(tmp_path / "second")) < CALLS / 2  # those that measure what a view costs


@pytest.mark.slow
@pytest.mark.usefixtures("bucket")
def test_a_driver_that_dies_loses_nothing(server: int, local: Path, tmp_path: Path) -> None:
    out, store = tmp_path / "run", ("--store", "s3://bucket/killed")
    with driver(out, "Slow", *store) as child:
        while request(server, "HEAD", "/bucket/killed/predictions.zarr/c/2/0/0")[0] != 200:
            assert child.poll() is None
        child.kill()
    calls_file(out).unlink()
    with driver(out, "Slow", *store) as child:
        code, said = ended(child)
    assert code == 0, said
    assert len(calls_of(out)) < len(calls_of(local))


@pytest.mark.slow
@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("s3://nowhere/run", "cannot list s3://nowhere/run/predictions.zarr"),
        ("s3://bucket", "something else"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_line(
    server: int, tmp_path: Path, store: str, message: str
) -> None:
    request(server, "PUT", "/bucket/predictions.zarr/manifest.json", body=b"{}")
    with driver(tmp_path / "run", "Quick", "--store", store) as child:
        code, said = ended(child)
    assert code == 2, said
    (line,) = [line for line in said.splitlines() if line.startswith("error:")]
    assert message in line


@pytest.mark.slow
def test_a_server_that_never_answers_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anyone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    program = (
        "import relook.predictions.locations as p; p._RETRY_SECONDS = 2; "
        "from relook.cli.app import main"
    )
    command = [
        *SEARCH,
        "--model",
        "torch:tests.e2e.slow_network:Quick",
        "--out",
        str(tmp_path / "r"),
    ]
    found = subprocess.run(
        [sys.executable, "-c", f"{program}; main()", *command, "--store", "s3://bucket/never"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2
    (line,) = [line for line in found.stderr.splitlines() if line.startswith("error:")]
    assert "cannot read s3://bucket/never/predictions.zarr" in line
