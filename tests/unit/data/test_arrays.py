import gzip
import io
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.ndimage import zoom
from sklearn.datasets import load_digits
from tests.support import refused
from tests.unit.data.idx_files import IMAGES as IDX_IMAGES
from tests.unit.data.idx_files import LABELS as IDX_LABELS
from tests.unit.data.idx_files import idx_bytes
from tests.unit.data.idx_files import write as write_idx

from relook.data import Dataset, load_data
from relook.errors import RelookError
from relook.io.arrays import read_npy

RNG = np.random.default_rng(0)
NHWC = RNG.integers(0, 256, (6, 9, 10, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def saved(path: Path, **arrays: Any) -> str:
    np.savez_compressed(path, **{"images": NHWC, "labels": LABELS, **arrays})
    return f"npz:{path}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "set.npz"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_the_channel_axis_gives_the_layout_away(file: Path, save: Any) -> None:
    want = torch.from_numpy(NHWC.transpose(0, 3, 1, 2).copy())
    for images in (NHWC, want.numpy(), np.asfortranarray(NHWC)):
        save(file, images=images, labels=LABELS)
        assert torch.equal(load_data(f"npz:{file}").plain, want)


def test_grey_images_need_no_channel_axis(file: Path) -> None:
    grey = NHWC[..., 0]
    want = torch.from_numpy(grey[:, None].copy())
    for images in (grey, grey[..., None], grey[:, None]):
        assert torch.equal(load_data(saved(file, images=images)).plain, want)


def test_an_ambiguous_layout_is_asked_for(file: Path) -> None:
    spec = saved(file, images=np.zeros((6, 3, 9, 3), dtype=np.uint8))
    refused(re.escape(f"{spec}?layout=nhwc"), load_data, spec)
    for layout, size in (("nchw", "9×3"), ("nhwc", "3×9")):
        refused(f"got {size}", load_data, f"{spec}?layout={layout}")


def test_a_stated_layout_must_fit(file: Path) -> None:
    spec = saved(file)
    assert torch.equal(load_data(f"{spec}?layout=nhwc").plain, load_data(spec).plain)
    for layout, message in (
        ("nchw", "c = 1 or 3"),
        ("nhw", "expected images with 3 axes"),
        ("nhcw", "did you mean 'nhw'"),
    ):
        refused(message, load_data, f"{spec}?layout={layout}")
    refused("did you mean 'layout'", load_data, f"{spec}?layuot=nhwc")


def test_classes_groups_and_columns_are_read(file: Path) -> None:
    spec = saved(
        file,
        classes=np.array(["cat", "dog", "owl", "yak"]),
        groups=np.array([1, 1, 2, 2, 3, 3]),
        patient=np.array(list("aabbcc")),
        features=np.zeros((6, 4)),
        scalar=np.array(3),
        objects=np.array([{}] * 6, dtype=object),
    )
    loaded = load_data(spec)
    assert loaded.classes == ("cat", "dog", "owl", "yak")
    assert loaded.groups is not None
    assert loaded.groups.tolist() == [1, 1, 2, 2, 3, 3]
    assert {name: c.tolist() for name, c in loaded.columns.items()} == {"patient": list("aabbcc")}
    assert loaded.name == spec


def test_without_names_the_labels_number_the_classes(file: Path) -> None:
    assert load_data(saved(file)).classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": NHWC.astype(np.float32)}, "expected uint8 images"),
        ({"images": NHWC[:0], "labels": LABELS[:0]}, "at least one image"),
        ({"images": NHWC[0, 0]}, "expected images"),
        ({"images": np.zeros((6, 9, 9, 4), dtype=np.uint8)}, "1 or 3 channels"),
        ({"images": np.zeros((6, 9, 9, 4), dtype=object)}, "Object arrays cannot be loaded"),
        ({"labels": LABELS * 1.0}, "labels as whole numbers, got float64"),
        ({"labels": LABELS - 1}, "got -1"),
        ({"labels": LABELS[:5]}, "expected 6 labels"),
        ({"labels": LABELS * 10**9}, "labels below 1000000"),
        ({"labels": LABELS * 0}, "all 6 are labelled '0'"),
        ({"labels": LABELS * 0 + 2}, "all 6 are labelled '2'"),
        ({"labels": np.array(["a"] * 6)}, "labels as whole numbers, got <U1"),
        ({"classes": np.array(["cat", "dog"])}, r"from 0 to 1 \(2 classes\), got 2"),
        ({"classes": np.arange(3)}, "expected classes as text"),
        ({"groups": np.arange(5)}, "expected 6 ids"),
    ],
)
def test_what_does_not_fit_gets_one_line(file: Path, arrays: dict[str, Any], message: str) -> None:
    refused(message, load_data, saved(file, **arrays))


def test_missing_files_and_arrays_are_named(file: Path) -> None:
    refused("no such file", load_data, f"npz:{file}")
    np.savez(file, images=NHWC, y=LABELS)
    refused("no 'labels' among images, y", load_data, f"npz:{file}")
    assert (load_data(f"npz:{file}", labelled=False).labels == 0).all()
    np.savez(file, photos=np.zeros((3, 4, 4), np.uint8))
    missing = "expected an array 'images', but there is no 'images' among photos"
    refused(missing, load_data, f"npz:{file}", labelled=False)
    refused("expected a data set as npz:FILE", load_data, "npz:")
    refused("expected an npz archive", load_data, f"npz:{file.parent}")


def npy_bytes(descr: str, shape: tuple[int, ...], content: bytes, version: int = 1) -> bytes:
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + content


def archive(path: Path, images: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    labels = io.BytesIO()
    np.save(labels, LABELS)
    with zipfile.ZipFile(path, "w", compression) as target:
        target.writestr("images.npy", images)
        target.writestr("labels.npy", labels.getvalue())


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (npy_bytes("|u1", (6, 9, 9), b"\0" * 10), "its header declares"),
        (npy_bytes("|u1", (10**9, 10**6, 9), b"\0" * 10), "its header declares"),
        (npy_bytes("|u1", (-1, 9, 9), b"\0" * 10), "impossible"),
        (npy_bytes("|S0", (10**12,), b""), "impossible"),
        (npy_bytes("|u1", (6, 9, 9), b"\0" * 486, version=2), "structured"),
        (npy_bytes("|O", (6,), b"cos\nsystem\n(S'true'\ntR."), "Object arrays"),
        (npy_bytes("not a type", (6,), b""), "ValueError"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, "ValueError"),
        (b"", "ValueError"),
    ],
)
def test_lying_headers_are_refused_before_anything_is_made(
    file: Path, images: bytes, message: str
) -> None:
    archive(file, images)
    refused(message, load_data, f"npz:{file}")


def test_more_than_the_machine_can_hold_is_refused(file: Path, monkeypatch: Any) -> None:
    spec = saved(file)
    monkeypatch.setattr("relook.foundation.memory.os.sysconf", lambda name: 40)
    refused("at most half this machine's memory", load_data, spec)


def test_a_member_larger_than_its_bytes_can_hold_is_refused(file: Path) -> None:
    """A small archive whose directory claims four gigabytes, as the array's header does."""
    nbytes = 2**32 - 1000
    images = npy_bytes("|u1", (nbytes,), b"\0" * 100)
    archive(file, images, zipfile.ZIP_DEFLATED)
    content = bytearray(file.read_bytes())
    size = content.index(b"PK\x01\x02") + 24  # of the first entry in the directory
    assert struct.unpack("<I", content[size : size + 4]) == (len(images),)
    content[size : size + 4] = struct.pack("<I", len(images) - 100 + nbytes)
    file.write_bytes(content)
    refused("more content than the archive can hold", load_data, f"npz:{file}")


def test_a_wrong_checksum_is_noticed(file: Path) -> None:
    np.savez(file, images=NHWC, labels=LABELS)
    content = bytearray(file.read_bytes())
    place = content.index(NHWC.tobytes()[:40])
    content[place] ^= 1
    file.write_bytes(content)
    refused("CRC", load_data, f"npz:{file}")


def test_npy_files_are_read_with_the_same_care(tmp_path: Path) -> None:
    path = tmp_path / "ids.npy"
    np.save(path, LABELS)
    np.testing.assert_array_equal(read_npy(path), LABELS)
    path.write_bytes(path.read_bytes()[:-1])
    refused("damaged or cut off", read_npy, path)
    np.save(path, np.array([{}], dtype=object))
    refused("Object arrays", read_npy, path)


@pytest.mark.parametrize("packed", [False, True])
def test_both_parts_are_read(tmp_path: Path, packed: bool) -> None:
    write_idx(tmp_path, "t10k", packed=packed)
    write_idx(tmp_path, "train", 255 - IDX_IMAGES, packed=packed)
    test, train = (load_data(f"idx:{tmp_path}{end}") for end in ("", "?part=train"))
    np.testing.assert_array_equal(test.plain[:, 0].numpy(), IDX_IMAGES)
    np.testing.assert_array_equal(train.plain[:, 0].numpy(), 255 - IDX_IMAGES)
    assert test.labels.tolist() == IDX_LABELS.tolist()
    assert test.classes == ("0", "1", "2", "3")


def test_the_dotted_names_are_found_too(tmp_path: Path) -> None:
    write_idx(tmp_path, "t10k")
    for path in list(tmp_path.iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert len(load_data(f"idx:{tmp_path}")) == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with nothing"),
        (b"\0\0\x08\x03\0\0", "starts with 00000803"),
        (b"\0\0\x0d\x03" + bytes(12), "starts with 00000d03"),
        (idx_bytes(IDX_LABELS), "starts with 00000801"),
        (idx_bytes(IDX_IMAGES)[:-1], r"declares \[5, 12, 10\] \(600 bytes\), but 599 follow"),
        (idx_bytes(IDX_IMAGES) + b"x", "but more follow"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "half this machine's memory"),
        (idx_bytes(IDX_IMAGES[:4]), "expected 4 labels, one per image, got 5"),
        (idx_bytes(IDX_IMAGES[:0]), "at least one image"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_an_idx_file_that_does_not_fit_gets_one_line(
    tmp_path: Path, content: bytes, message: str, packed: bool
) -> None:
    write_idx(tmp_path, "t10k", packed=packed)
    end, content = (".gz", gzip.compress(content)) if packed else ("", content)
    (tmp_path / f"t10k-images-idx3-ubyte{end}").write_bytes(content)
    refused(message, load_data, f"idx:{tmp_path}")


def test_missing_parts_are_named(tmp_path: Path) -> None:
    write_idx(tmp_path, "t10k")
    refused("train part as train-images-idx3-ubyte or", load_data, f"idx:{tmp_path}?part=train")
    refused("did you mean 'train'", load_data, f"idx:{tmp_path}?part=trian")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None
)
@given(data=st.data())
def test_damaged_files_raise_only_our_error(tmp_path: Path, data: st.DataObject) -> None:
    write_idx(tmp_path, "t10k", packed=True)
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


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_data("digits")


def test_they_are_scikit_learns_digits_enlarged(digits: Dataset) -> None:
    bunch = load_digits()
    assert digits.images.shape == (1797, 1, 32, 32)
    assert digits.classes == tuple("0123456789")
    np.testing.assert_array_equal(digits.labels, bunch.target)
    # SciPy's linear enlargement is another one, but nearly the same picture.
    linear = zoom(bunch.images * 255 / 16, (1, 4, 4), order=1, grid_mode=True, mode="nearest")
    enlarged = digits.plain.numpy()[:, 0].astype(float)
    assert np.abs(enlarged - linear).mean() < 8
    assert np.corrcoef(enlarged.ravel(), linear.ravel())[0, 1] > 0.99


def test_the_parts_are_disjoint_complete_and_stratified(digits: Dataset) -> None:
    train, test = load_data("digits:train"), load_data("digits:test")
    assert len(train) + len(test) == len(digits)
    keys = [{image.numpy().tobytes() for image in part.plain} for part in (train, test, digits)]
    assert keys[0].isdisjoint(keys[1])
    assert keys[0] | keys[1] == keys[2]
    whole, share = np.bincount(digits.labels), np.bincount(train.labels)
    np.testing.assert_allclose(share, 0.1 * whole, atol=0.5)


def test_the_split_is_the_same_everywhere() -> None:
    # Written down once: a split that moves would put trained-on images into the proof.
    assert load_data("digits:train").labels[:12].tolist() == [2, 6, 5, 1, 5, 8, 3, 7, 4, 3, 6, 1]


def test_an_unknown_part_names_the_known_ones() -> None:
    refused("unknown part of digits 'tset': did you mean 'test'", load_data, "digits:tset")
    refused("expected a data set as digits, digits:train", load_data, "digits:")
