import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import refused
from tests.unit.data.idx_files import IMAGES, LABELS, idx_bytes, write

from relook.data import load_data
from relook.errors import RelookError


@pytest.mark.parametrize("packed", [False, True])
def test_both_parts_are_read(tmp_path: Path, packed: bool) -> None:
    write(tmp_path, "t10k", packed=packed)
    write(tmp_path, "train", 255 - IMAGES, packed=packed)
    test, train = (load_data(f"idx:{tmp_path}{end}") for end in ("", "?part=train"))
    np.testing.assert_array_equal(test.plain[:, 0].numpy(), IMAGES)
    np.testing.assert_array_equal(train.plain[:, 0].numpy(), 255 - IMAGES)
    assert test.labels.tolist() == LABELS.tolist()
    assert test.classes == ("0", "1", "2", "3")


def test_the_dotted_names_are_found_too(tmp_path: Path) -> None:
    write(tmp_path, "t10k")
    for path in list(tmp_path.iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert len(load_data(f"idx:{tmp_path}")) == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with nothing"),
        (b"\0\0\x08\x03\0\0", "starts with 00000803"),
        (b"\0\0\x0d\x03" + bytes(12), "starts with 00000d03"),
        (idx_bytes(LABELS), "starts with 00000801"),
        (idx_bytes(IMAGES)[:-1], r"declares \[5, 12, 10\] \(600 bytes\), but 599 follow"),
        (idx_bytes(IMAGES) + b"x", "but more follow"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "half of this machine's memory"),
        (idx_bytes(IMAGES[:4]), "expected 4 labels, one per image, got 5"),
        (idx_bytes(IMAGES[:0]), "at least one image"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_does_not_fit_gets_one_line(
    tmp_path: Path, content: bytes, message: str, packed: bool
) -> None:
    write(tmp_path, "t10k", packed=packed)
    end, content = (".gz", gzip.compress(content)) if packed else ("", content)
    (tmp_path / f"t10k-images-idx3-ubyte{end}").write_bytes(content)
    refused(message, load_data, f"idx:{tmp_path}")


def test_missing_files_are_named(tmp_path: Path) -> None:
    write(tmp_path, "t10k")
    refused("train part as train-images-idx3-ubyte or", load_data, f"idx:{tmp_path}?part=train")
    refused("did you mean 'train'", load_data, f"idx:{tmp_path}?part=trian")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None
)
@given(data=st.data())
def test_damaged_files_raise_only_our_error(tmp_path: Path, data: st.DataObject) -> None:
    write(tmp_path, "t10k", packed=True)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.sampled_from([None, 0, 5, 40, 300]))])
    message = ""
    try:
        load_data(f"idx:{tmp_path}")
    except RelookError as error:
        message = str(error)
    assert "\n" not in message
