import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support import refused
from tests.unit.predictions.passes_cases import done_blocks

from relook.errors import RelookError, RunError
from relook.io.fingerprint import JSON
from relook.predictions.store import BatchPlan, PredictionBlock, PredictionStore

PLAN = BatchPlan(views=5, images=7, classes=3, batch=3, group=2)
MANIFEST: dict[str, JSON] = {"pool": "p1", "model": "m1", "data": "d1", "seed": 0, "version": "1"}


def values(plan: BatchPlan = PLAN) -> NDArray[np.float32]:
    generator = np.random.default_rng(0)
    return -generator.random(plan.shape, dtype=np.float32)


def fill(store: PredictionStore, content: NDArray[np.float32]) -> None:
    for block in store.plan.blocks():
        store.write(block, content[block.views, block.images])


@pytest.fixture
def filled(tmp_path: Path) -> PredictionStore:
    store = PredictionStore.open(tmp_path / "predictions.zarr", MANIFEST, PLAN)
    fill(store, values())
    return store


def chunk_file(store: PredictionStore, block: PredictionBlock) -> Path:
    views, images, _ = store.plan.chunk
    return store.path / f"c/{block.views.start // views}/{block.images.start // images}/0"


sizes = st.integers(1, 9)


@given(views=sizes, images=sizes, batch=sizes, group=sizes)
@settings(deadline=None)
def test_blocks_cover_everything_once_batch_after_batch(
    views: int, images: int, batch: int, group: int
) -> None:
    plan = BatchPlan(views, images, 2, batch, group)
    covered = np.zeros((views, images), dtype=int)
    blocks = list(plan.blocks())
    for block in blocks:
        covered[block.views, block.images] += 1
        assert covered[block.views, block.images].shape == block.shape
        assert block.shape[0] <= group
        assert block.shape[1] <= batch
    assert (covered == 1).all()
    starts = [(block.images.start, block.views.start) for block in blocks]
    assert starts == sorted(starts)


@pytest.mark.parametrize("field", ["views", "images", "classes", "batch", "group"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True])
def test_a_plan_of_nothing_is_refused(field: str, value: int) -> None:
    good = {"views": 1, "images": 1, "classes": 1, "batch": 1, "group": 1}
    refused(f"expected {field} to be at least 1", BatchPlan, **{**good, field: value})


@pytest.mark.parametrize(
    "plan", [PLAN, BatchPlan(1, 1, 1, 1, 1), BatchPlan(3, 2, 4, 100, 100), BatchPlan(4, 6, 2, 3, 2)]
)
def test_what_is_written_is_read_and_reopened(tmp_path: Path, plan: BatchPlan) -> None:
    content = values(plan)
    store = PredictionStore.open(tmp_path / "s", MANIFEST, plan)
    blocks = list(plan.blocks())
    for done, block in enumerate(blocks):
        assert done_blocks(store) == (done, len(blocks))
        assert not store.is_done(block)
        store.write(block, content[block.views, block.images])
        assert store.is_done(block)
    for opened in (store, PredictionStore.open(tmp_path / "s", MANIFEST, plan)):
        assert done_blocks(opened) == (len(blocks), len(blocks))
        result = opened.read()
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, content)


def test_some_views_are_read_in_any_order_with_repeats(filled: PredictionStore) -> None:
    for views in ([4, 0, 4, 2], [3], [], range(1, 4)):
        np.testing.assert_array_equal(filled.read(views), values()[list(views)])


@pytest.mark.parametrize("views", [[5], [-1], [0, 17]])
def test_views_out_of_range_are_refused(filled: PredictionStore, views: list[int]) -> None:
    refused("views from 0 to 4", filled.read, views)


def test_it_is_a_zarr_v3_array_with_checksums_that_others_can_read(
    filled: PredictionStore,
) -> None:
    array = zarr.open_array(filled.path, mode="r")
    np.testing.assert_array_equal(np.asarray(array), values())
    metadata = json.loads((filled.path / "zarr.json").read_text())
    assert metadata["zarr_format"] == 3
    assert metadata["dimension_names"] == ["view", "image", "class"]
    assert [codec["name"] for codec in metadata["codecs"]] == ["bytes", "crc32c"]
    first = chunk_file(filled, next(PLAN.blocks()))
    assert first.stat().st_size == np.prod(PLAN.chunk) * 4 + 4


def flip(place: int) -> Callable[[bytes], bytes]:
    def damage(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[place] ^= 0x10
        return bytes(changed)

    return damage


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "first byte": flip(0),
    "middle": flip(30),
    "checksum": flip(-1),
    "cut": lambda data: data[:-7],
    "empty": lambda _: b"",
    "an empty chunk's checksum": lambda _: bytes(4),
    "zeros": lambda data: bytes(len(data)),
    "longer": lambda data: data + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("number", [0, 4, 8])  # a whole chunk, one at an edge, the corner
def test_a_damaged_chunk_is_found_and_written_again(
    filled: PredictionStore, damage: Callable[[bytes], bytes], number: int
) -> None:
    blocks = list(PLAN.blocks())
    file = chunk_file(filled, blocks[number])
    sound = file.read_bytes()
    file.write_bytes(damage(sound))
    store = PredictionStore.open(filled.path, MANIFEST, PLAN)
    assert [store.is_done(block) for block in blocks] == [i != number for i in range(9)]
    assert done_blocks(store) == (8, 9)
    refused("missing or damaged: run the same command again", store.read, error=RunError)
    block = blocks[number]
    store.write(block, values()[block.views, block.images])
    assert file.read_bytes() == sound
    np.testing.assert_array_equal(store.read(), values())


def test_damage_after_the_check_is_found_on_reading(filled: PredictionStore) -> None:
    blocks = list(PLAN.blocks())
    assert done_blocks(filled) == (9, 9)
    file = chunk_file(filled, blocks[1])
    file.write_bytes(flip(5)(file.read_bytes()))
    refused("views 2…3, images 0…2", filled.read, error=RunError)
    np.testing.assert_array_equal(filled.read([0, 4]), values()[[0, 4]])


def test_a_missing_chunk_is_not_done(filled: PredictionStore) -> None:
    blocks = list(PLAN.blocks())
    chunk_file(filled, blocks[3]).unlink()
    store = PredictionStore.open(filled.path, MANIFEST, PLAN)
    assert not store.is_done(blocks[3])
    assert done_blocks(store) == (8, 9)


def test_a_chunk_with_gaps_is_not_done(filled: PredictionStore) -> None:
    zarr.open_array(filled.path, mode="r+")[1, 4, 2] = np.nan
    store = PredictionStore.open(filled.path, MANIFEST, PLAN)
    assert done_blocks(store) == (8, 9)
    refused("views 0…1, images 3…5 are missing or damaged", store.read, error=RunError)


@pytest.mark.parametrize("content", [np.zeros((2, 3, 4)), np.zeros((2, 2, 3)), np.zeros(3)])
def test_a_block_of_another_shape_is_refused(tmp_path: Path, content: NDArray[np.float32]) -> None:
    store = PredictionStore.open(tmp_path, MANIFEST, PLAN)
    refused(r"expected a block of shape \(2, 3, 3\)", store.write, next(PLAN.blocks()), content)


def test_nan_is_refused_and_zeros_are_stored(tmp_path: Path) -> None:
    store = PredictionStore.open(tmp_path, MANIFEST, PLAN)
    block = next(PLAN.blocks())
    content = np.zeros((2, 3, 3), np.float32)
    content[1, 1, 1] = np.nan
    refused("NaN", store.write, block, content)
    assert not store.is_done(block)
    store.write(block, np.zeros((2, 3, 3), np.float32))
    assert PredictionStore.open(tmp_path, MANIFEST, PLAN).is_done(block)


@pytest.mark.parametrize(
    ("change", "plan", "says"),
    [
        ({"model": "m2"}, PLAN, 'model: "m1" there, "m2" here'),
        ({"data": "d2"}, PLAN, 'data: "d1" there, "d2" here'),
        ({"pool": "p2"}, PLAN, 'pool: "p1" there, "p2" here'),
        ({"seed": 1}, PLAN, "seed: 0 there, 1 here"),
        ({"version": "2"}, PLAN, 'version: "1" there, "2" here'),
        ({"recipe": "cifar"}, PLAN, 'recipe: nothing there, "cifar" here'),
        ({}, BatchPlan(5, 7, 3, 4, 2), "plan.batch: 3 there, 4 here"),
        ({}, BatchPlan(5, 7, 3, 3, 5), "plan.group: 2 there, 5 here"),
        ({"model": "m2", "seed": 9}, PLAN, 'model: "m1" there, "m2" here; seed: 0 there, 9 here'),
    ],
)
def test_a_store_of_something_else_is_refused_and_left_alone(
    filled: PredictionStore, change: dict[str, JSON], plan: BatchPlan, says: str
) -> None:
    with pytest.raises(RunError) as caught:
        PredictionStore.open(filled.path, {**MANIFEST, **change}, plan)
    message = str(caught.value)
    assert says in message
    assert f"use another directory or delete {filled.path}" in message
    assert "\n" not in message
    np.testing.assert_array_equal(
        PredictionStore.open(filled.path, MANIFEST, PLAN).read(), values()
    )


BAD_MANIFESTS = ["", "{", "[]", "null", "NaN", '{"format": 3}', "[" * 100_000, '{"a": 1, "a": 2}']


@pytest.mark.parametrize("text", BAD_MANIFESTS, ids=range(len(BAD_MANIFESTS)))
def test_a_damaged_manifest_is_one_line(filled: PredictionStore, text: str) -> None:
    (filled.path / "manifest.json").write_text(text)
    with pytest.raises(RunError) as caught:
        PredictionStore.open(filled.path, MANIFEST, PLAN)
    assert "\n" not in str(caught.value)
    assert f"delete {filled.path}" in str(caught.value)


def bad_array_files(sound: str) -> list[str]:
    edits: list[tuple[str, object]] = [
        ("shape", [5, 7, 300000000]),
        ("shape", [1e99]),
        ("data_type", "float64"),
        ("codecs", [{"name": "bytes", "configuration": {"endian": "little"}}]),
        ("codecs", [{"name": "no such codec"}]),
        ("fill_value", 0.0),
        ("chunk_grid", {"name": "regular", "configuration": {"chunk_shape": [0, 3, 3]}}),
        ("chunk_grid", None),
        ("zarr_format", 2),
        ("node_type", "group"),
    ]
    changed = [json.dumps({**json.loads(sound), key: value}) for key, value in edits]
    return ["", sound[:-20], "[]", "null", "{}", "[" * 100_000, *changed]


def test_a_damaged_array_file_is_one_line(filled: PredictionStore) -> None:
    file = filled.path / "zarr.json"
    for text in bad_array_files(file.read_text()):
        file.write_text(text)
        with pytest.raises(RunError) as caught:
            PredictionStore.open(filled.path, MANIFEST, PLAN)
        assert "\n" not in str(caught.value)
        assert "zarr.json is damaged" in str(caught.value)


def test_a_crash_between_manifest_and_array_is_survived(tmp_path: Path) -> None:
    PredictionStore.open(tmp_path, MANIFEST, PLAN)
    (tmp_path / "zarr.json").unlink()
    store = PredictionStore.open(tmp_path, MANIFEST, PLAN)
    fill(store, values())
    np.testing.assert_array_equal(store.read(), values())


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match=r"got 'thesis.tex' without a manifest.json"):
        PredictionStore.open(tmp_path, MANIFEST, PLAN)
    assert not (tmp_path / "manifest.json").exists()


def test_a_path_that_cannot_be_a_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunError, match="cannot keep predictions in"):
            PredictionStore.open(path, MANIFEST, PLAN)


def test_a_write_that_fails_is_one_line_and_not_done(filled: PredictionStore) -> None:
    store = PredictionStore.open(filled.path, MANIFEST, PLAN)
    shutil.rmtree(filled.path / "c")
    (filled.path / "c").write_text("in the way")
    block = next(PLAN.blocks())
    with pytest.raises(RunError, match="cannot write to"):
        store.write(block, values()[block.views, block.images])
    assert not store.is_done(block)


def test_only_old_leftovers_are_removed(filled: PredictionStore) -> None:
    old, young = (filled.path / f"c/0/0/0.{name}.partial" for name in ("old", "young"))
    for file in (old, young):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    store = PredictionStore.open(filled.path, MANIFEST, PLAN)
    assert not old.exists()
    assert young.exists()
    np.testing.assert_array_equal(store.read(), values())


def test_of_many_openers_the_first_decides_what_the_store_is_for(tmp_path: Path) -> None:
    def attempt(seed: int) -> bool:
        try:
            PredictionStore.open(tmp_path / "s", {**MANIFEST, "seed": seed % 2}, PLAN)
        except RunError as error:
            assert "seed" in str(error)  # noqa: PT017
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(attempt, range(16)))
    assert sorted([sum(opened[0::2]), sum(opened[1::2])]) == [0, 8]


def test_a_leftover_that_goes_away_meanwhile_is_no_trouble(filled: PredictionStore) -> None:
    (filled.path / "c/gone.partial").symlink_to("nowhere")
    assert done_blocks(PredictionStore.open(filled.path, MANIFEST, PLAN)) == (9, 9)


def test_writers_side_by_side_lose_nothing(tmp_path: Path) -> None:
    content = values()

    def work(_: int) -> None:
        store = PredictionStore.open(tmp_path / "s", MANIFEST, PLAN)
        for block in PLAN.blocks():
            if not store.is_done(block):
                store.write(block, content[block.views, block.images])
        np.testing.assert_array_equal(store.read(), content)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize(
    ("precision", "classes", "stored"),
    [
        ("auto", 10, "float32"),
        ("auto", 200, "float32"),
        ("auto", 201, "float16"),
        ("float16", 10, "float16"),
        ("float32", 1000, "float32"),
    ],
)
def test_many_classes_are_stored_in_half_precision(
    tmp_path: Path, precision: str, classes: int, stored: str
) -> None:
    plan = BatchPlan(2, 2, classes, 2, 2)
    store = PredictionStore.open(tmp_path, MANIFEST, plan, precision)
    fill(store, values(plan))
    assert store.dtype == np.dtype(stored)
    assert store.read().dtype == np.float32
    assert store.read_all().dtype == np.dtype(stored)
    np.testing.assert_array_equal(store.read_all(), values(plan).astype(stored))
    assert json.loads((tmp_path / "manifest.json").read_text())["precision"] == stored
    again = PredictionStore.open(tmp_path, MANIFEST, plan, stored)
    assert done_blocks(again) == (1, 1)


def test_half_precision_keeps_log_probabilities_as_well_as_it_says(tmp_path: Path) -> None:
    plan = BatchPlan(1, 1, 8001, 1, 1)
    content = np.linspace(-80, 0, 8001, dtype=np.float32)[None, None]
    store = PredictionStore.open(tmp_path, MANIFEST, plan, "float16")
    fill(store, content)
    error = np.abs(store.read() - content)
    assert np.isfinite(store.read()).all()
    assert (error <= np.abs(content) * 2.0**-11).all()
    assert error.max() <= 0.04
    assert error[content >= -1].max() <= 5e-4


def test_another_precision_is_another_store(tmp_path: Path) -> None:
    PredictionStore.open(tmp_path, MANIFEST, PLAN)
    with pytest.raises(RunError, match='precision: "float32" there, "float16" here'):
        PredictionStore.open(tmp_path, MANIFEST, PLAN, "float16")
    with pytest.raises(RelookError, match="unknown precision of stored predictions 'float8'"):
        PredictionStore.open(tmp_path / "other", MANIFEST, PLAN, "float8")
