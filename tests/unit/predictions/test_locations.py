"""Stores of predictions by URL: the same bytes under the same names, and one line for errors."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support import refused
from tests.unit.predictions.passes_cases import VIEWS, Toy, contents, done_blocks

from relook.errors import RunError
from relook.io.fingerprint import JSON
from relook.predictions.locations import Bucket, Directory, is_url, place_at
from relook.predictions.memmap import mapped_predictions
from relook.predictions.passes import fill_store
from relook.predictions.store import BatchPlan, PredictionStore

obstore = pytest.importorskip("obstore")

PLAN = BatchPlan(views=7, images=5, classes=4, batch=2, group=3)
MANIFEST: dict[str, JSON] = {"model": "toy", "seed": 0}


def predictions() -> NDArray[np.float32]:
    values = np.random.default_rng(0).dirichlet(np.ones(PLAN.classes), PLAN.shape[:2])
    return np.log(values.astype(np.float32))


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory://{request.node.name}"


def objects(url: str) -> dict[str, bytes]:
    place = place_at(url)
    assert isinstance(place, Bucket)
    held: Any = place._objects
    names = [each["path"] for page in obstore.list(held) for each in page]
    return {name: bytes(obstore.get(held, name).bytes()) for name in names}


def put(url: str, name: str, content: bytes) -> None:
    place = place_at(url)
    assert isinstance(place, Bucket)
    obstore.put(place._objects, name, content)


def filled(where: str | Path, **options: Any) -> PredictionStore:
    store = PredictionStore.open(where, MANIFEST, PLAN, **options)
    for block in PLAN.blocks():
        if not store.is_done(block):
            store.write(block, predictions()[block.views, block.images])
    return store


def test_paths_and_urls_are_told_apart(tmp_path: Path) -> None:
    for where in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
        place = place_at(where)
        assert isinstance(place, Directory)
        assert place.path == tmp_path
    assert not is_url(f"file://{tmp_path}")
    assert isinstance(place_at("memory://a/b"), Bucket)
    refused("expected a store as a path or as s3://…", place_at, "ftp://host/place")
    refused("cannot use s3://", place_at, "s3://[", error=RunError)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_an_object_store_holds_the_bytes_of_a_directory(
    tmp_path: Path, url: str, precision: str
) -> None:
    here, there = filled(tmp_path, precision=precision), filled(url, precision=precision)
    assert objects(url) == contents(tmp_path)
    np.testing.assert_array_equal(there.read_all(), here.read_all())
    np.testing.assert_array_equal(there.read([6, 0, 0]), here.read([6, 0, 0]))


def test_what_is_stored_is_not_computed_again(url: str, images: Any) -> None:
    first, again = Toy(), Toy()
    for toy in (first, again):
        fill_store(toy, images[:5], VIEWS, url, seed=7, batch=2)
    assert first.calls > 0
    assert again.calls == 1  # to see that the model still answers the same


def test_another_process_writes_to_an_open_store(url: str) -> None:
    store = PredictionStore.open(url, MANIFEST, PLAN)
    blocks = list(PLAN.blocks())
    other = PredictionStore.attach(url, PLAN, "float32")
    for block in blocks:
        other.write(block, predictions()[block.views, block.images])
        store.mark_done(block)
    np.testing.assert_array_equal(store.read_all(), predictions())
    assert done_blocks(PredictionStore.open(url, MANIFEST, PLAN)) == (len(blocks), len(blocks))


def test_a_store_of_something_else_is_refused(url: str) -> None:
    filled(url)
    with pytest.raises(RunError, match=f"{re.escape(url)} holds the predictions of something else"):
        PredictionStore.open(url, {**MANIFEST, "seed": 1}, PLAN)
    with pytest.raises(RunError, match=r"plan\.batch"):
        PredictionStore.open(url, MANIFEST, replace(PLAN, batch=5))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", b"hello", "expected relook's predictions or an empty directory"),
        ("manifest.json", b'{"model": ', "expected a manifest as JSON"),
        ("manifest.json", b"\xff\xfe", "expected a manifest as JSON"),
        ("manifest.json", b"[1]", "holds the predictions of something else"),
    ],
)
def test_what_is_no_store_is_refused(url: str, name: str, content: bytes, message: str) -> None:
    put(url, name, content)
    refused(message, PredictionStore.open, url, MANIFEST, PLAN, error=RunError)
    assert objects(url) == {name: content}


def test_damaged_metadata_is_refused(url: str) -> None:
    filled(url)
    put(url, "zarr.json", b"{}")
    refused(r"zarr\.json is damaged", PredictionStore.open, url, MANIFEST, PLAN, error=RunError)


def test_a_cut_chunk_is_computed_again_and_a_flipped_bit_is_named(url: str) -> None:
    filled(url)
    whole = objects(url)["c/1/1/0"]
    put(url, "c/1/1/0", whole[:-1])
    store = filled(url)
    assert objects(url)["c/1/1/0"] == whole
    put(url, "c/1/1/0", bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(RunError, match=r"views 3…5, images 2…3 are missing or .* delete c/1/1/0"):
        store.read_all()


def test_the_mapped_file_stands_beside(url: str, tmp_path: Path) -> None:
    mapped = mapped_predictions(filled(url, beside=tmp_path))
    np.testing.assert_array_equal(mapped, predictions())
    assert (tmp_path / "mapped.npy").is_file()
    refused("expected a directory for the local files of", mapped_predictions, filled(url))


def test_only_what_every_machine_reaches_is_written_by_workers(url: str, tmp_path: Path) -> None:
    assert filled(url).url is None
    assert filled(tmp_path).url is None
    assert isinstance(place_at("s3://bucket/prefix"), Bucket)
