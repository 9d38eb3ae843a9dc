import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import refused
from tests.unit.data.cifar_files import (
    HUNDRED,
    TEN,
    batch,
    write_binary10,
    write_binary100,
    write_python10,
    write_python100,
)

from relook.data import Preparation, load_data
from relook.errors import RelookError


@pytest.mark.parametrize("write", [write_python10, write_binary10])
def test_cifar10_is_read_in_both_versions(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "set")
    loaded = load_data(f"cifar10:{tmp_path / 'set'}")
    pixels, labels, _ = batch(6, 0)
    assert loaded.images.shape == (6, 3, 32, 32)
    np.testing.assert_array_equal(loaded.plain.numpy().reshape(6, -1), pixels)
    assert loaded.labels.tolist() == labels
    assert loaded.classes == tuple(TEN)
    train = load_data(f"cifar10:{tmp_path / 'set'}?part=train")
    assert len(train) == 30
    np.testing.assert_array_equal(train.plain[6:12].numpy().reshape(6, -1), batch(6, 2)[0])
    assert len(load_data(f"cifar10:{tmp_path / 'set'}?part=all")) == 36


@pytest.mark.parametrize("write", [write_python100, write_binary100])
def test_cifar100_is_read_in_both_versions(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "set")
    loaded = load_data(f"cifar100:{tmp_path / 'set'}?part=train")
    pixels, coarse, fine = batch(6, 1)
    np.testing.assert_array_equal(loaded.plain.numpy().reshape(6, -1), pixels)
    assert loaded.labels.tolist() == fine
    assert loaded.columns["coarse"].tolist() == coarse
    assert loaded.classes == tuple(HUNDRED)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_of_other_pythons_are_read(tmp_path: Path, protocol: int) -> None:
    write_python10(tmp_path / "a")
    write_python10(tmp_path / "b", protocol=protocol, text=True)
    one, other = (load_data(f"cifar10:{tmp_path / name}") for name in "ab")
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize(
    ("source", "folder", "write"),
    [
        ("cifar10", "cifar-10-batches-py", write_python10),
        ("cifar10", "cifar-10-batches-bin", write_binary10),
        ("cifar100", "cifar-100-python", write_python100),
        ("cifar100", "cifar-100-binary", write_binary100),
    ],
)
def test_the_folder_that_the_archive_unpacks_to_is_found(
    tmp_path: Path, source: str, folder: str, write: Any
) -> None:
    write(tmp_path / folder)
    assert len(load_data(f"{source}:{tmp_path}")) == 6


def test_without_names_the_classes_are_numbers(tmp_path: Path) -> None:
    write_python10(tmp_path / "set")
    (tmp_path / "set" / "batches.meta").unlink()
    assert load_data(f"cifar10:{tmp_path / 'set'}").classes == tuple("0123456789")


def test_a_preparation_applies(tmp_path: Path) -> None:
    write_python10(tmp_path / "set")
    wanted = Preparation((48, 48), channels=1)
    assert load_data(f"cifar10:{tmp_path / 'set'}", wanted).images.shape == (6, 1, 48, 48)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("/tmp/relook-was-here",)  # noqa: S108


GOOD = {b"labels": [0, 1], b"data": np.zeros((2, 3072), np.uint8)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (Evil(), "expected a pickle of arrays"),
        ([1, 2], "expected a batch as a dict, got a list of 2"),
        ({}, "expected 'data' as uint8"),
        ({**GOOD, b"data": np.zeros((2, 3071), np.uint8)}, r"got uint8 \[2, 3071\]"),
        ({**GOOD, b"data": np.zeros((2, 3072))}, "got float64"),
        ({**GOOD, b"labels": [0]}, "'labels' as 2 small whole numbers"),
        ({**GOOD, b"labels": [0, "1"]}, "'labels' as 2 small whole numbers"),
        ({**GOOD, b"labels": [0, 10]}, r"labels from 0 to 9 \(10 classes\), got 10"),
        ({**GOOD, b"labels": [0, -1]}, "small whole numbers"),
        ({b"data": GOOD[b"data"]}, "got nothing"),
    ],
)
def test_a_batch_that_does_not_fit_gets_one_line(
    tmp_path: Path, content: object, message: str
) -> None:
    write_python10(tmp_path / "set")
    (tmp_path / "set" / "test_batch").write_bytes(pickle.dumps(content, 2))
    refused(message, load_data, f"cifar10:{tmp_path / 'set'}")
    assert not Path("/tmp/relook-was-here").exists()  # noqa: S108


def test_missing_and_cut_files_are_named(tmp_path: Path) -> None:
    refused(r"test_batch or test_batch\.bin, …", load_data, f"cifar10:{tmp_path}")
    write_binary10(tmp_path / "set")
    (tmp_path / "set" / "data_batch_3.bin").unlink()
    with pytest.raises(RelookError, match=r"data_batch_3 or data_batch_3\.bin"):
        load_data(f"cifar10:{tmp_path / 'set'}?part=train")
    path = tmp_path / "set" / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    refused("records of 3073 bytes, got 18,437 bytes", load_data, f"cifar10:{tmp_path / 'set'}")
    (tmp_path / "set" / "batches.meta.txt").write_text("a b c")
    path.write_bytes(b"\0" * 3073)
    refused("expected 10 names, got 3", load_data, f"cifar10:{tmp_path / 'set'}")


@pytest.mark.parametrize("option", ["part=tset", "prat=test", "part", "part="])
def test_wrong_parts_are_named(tmp_path: Path, option: str) -> None:
    write_python10(tmp_path / "set")
    refused("unknown", load_data, f"cifar10:{tmp_path / 'set'}?{option}")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None
)
@given(data=st.data())
def test_damaged_batches_raise_only_our_error(tmp_path: Path, data: st.DataObject) -> None:
    if not (tmp_path / "set").exists():
        write_python10(tmp_path / "set", count=2)
    path = tmp_path / "set" / "test_batch"
    whole = path.read_bytes()
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, 300) | st.integers(len(content) - 60, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    message = ""
    try:
        load_data(f"cifar10:{tmp_path / 'set'}")
    except RelookError as error:
        message = str(error)
    finally:
        path.write_bytes(whole)
    assert "\n" not in message
