import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from relook.errors import RunError
from relook.io.fingerprint import JSON
from relook.predictions.memmap import CHECKSUMS, MAPPED, mapped_predictions
from relook.predictions.store import BatchPlan, PredictionStore

PLAN = BatchPlan(views=5, images=7, classes=3, batch=3, group=2)
MANIFEST: dict[str, JSON] = {"pool": "p", "seed": 0}


def values(plan: BatchPlan = PLAN) -> NDArray[np.float32]:
    return -80 * np.random.default_rng(1).random(plan.shape, dtype=np.float32)


def filled(path: Path, plan: BatchPlan = PLAN, precision: str = "float16") -> PredictionStore:
    store = PredictionStore.open(path, MANIFEST, plan, precision)
    for block in plan.blocks():
        store.write(block, values(plan)[block.views, block.images])
    return store


sizes = st.integers(1, 7)


@given(sizes, sizes, sizes, sizes, sizes, st.sampled_from(["float16", "float32"]))
@settings(deadline=None, max_examples=40)
def test_the_file_holds_what_the_store_holds(
    views: int, images: int, classes: int, batch: int, group: int, precision: str
) -> None:
    with TemporaryDirectory() as directory:
        plan = BatchPlan(views, images, classes, batch, group)
        store = filled(Path(directory) / "s", plan, precision)
        mapped = mapped_predictions(store)
        assert mapped.dtype == store.dtype == np.dtype(precision)
        np.testing.assert_array_equal(mapped, values(plan).astype(precision))
        np.testing.assert_array_equal(mapped, store.read_all())


def test_it_is_a_read_only_map_that_other_tools_read(tmp_path: Path) -> None:
    mapped = mapped_predictions(filled(tmp_path / "s"))
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable
    np.testing.assert_array_equal(np.load(tmp_path / "s" / MAPPED), mapped)


def test_a_sound_file_is_used_again_and_not_rewritten(tmp_path: Path) -> None:
    store = filled(tmp_path / "s")
    mapped_predictions(store)
    before = (tmp_path / "s" / MAPPED).stat()
    again = mapped_predictions(PredictionStore.open(tmp_path / "s", MANIFEST, PLAN, "float16"))
    after = (tmp_path / "s" / MAPPED).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    np.testing.assert_array_equal(again, store.read_all())


def edited(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        (path / MAPPED).write_bytes(change((path / MAPPED).read_bytes()))

    return edit


def checksums(text: str) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        (path / CHECKSUMS).write_text(text)

    return edit


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a bit": edited(lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]),
    "cut": edited(lambda data: data[:-6]),
    "longer": edited(lambda data: data + b"\0"),
    "empty": edited(lambda data: b""),
    "head": edited(lambda data: data.replace(b"(5, 7, 3)", b"(7, 5, 3)")),
    "no file": lambda path: (path / MAPPED).unlink(),
    "no checksums": lambda path: (path / CHECKSUMS).unlink(),
    "cut checksums": checksums('{"crc32": [1,'),
    "few checksums": checksums('{"crc32": [1]}'),
    "no list": checksums('{"crc32": 7}'),
    "a list": checksums("[]"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_written_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    store = filled(tmp_path / "s")
    mapped_predictions(store)
    damage(tmp_path / "s")
    np.testing.assert_array_equal(mapped_predictions(store), store.read_all())
    assert not list((tmp_path / "s").glob(".mapped*"))


def test_an_interrupted_copy_leaves_no_file_under_the_name(tmp_path: Path) -> None:
    store = filled(tmp_path / "s")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mapped_predictions(store, stop)
    assert not (tmp_path / "s" / MAPPED).exists()
    (tmp_path / "s" / f".{MAPPED}-dead.tmp").write_bytes(b"killed")
    seen: list[tuple[int, int]] = []
    mapped_predictions(store, lambda *done: seen.append(done))
    assert seen == [(2, 5), (4, 5), (5, 5)]
    assert not list((tmp_path / "s").glob(".mapped*"))


def test_what_is_missing_and_a_full_disk_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path / "s")
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=17))
        with pytest.raises(RunError, match=r"expected 210 bytes of free disk.* got 17 bytes"):
            mapped_predictions(store)
    shutil.rmtree(tmp_path / "s" / "c" / "1")
    with pytest.raises(RunError, match="views 2…3, images 0…2 are missing or damaged"):
        mapped_predictions(store)
    assert not (tmp_path / "s" / MAPPED).exists()
