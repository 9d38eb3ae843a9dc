import io
import os
import pickle
import random
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.edits import edited, random_edits
from tests.support import refused
from tests.unit.policy.reference_files import CIFAR, IMAGENET, ORDER, npy, npz, objects

from relook import Policy, RelookError, Step, SubPolicy
from relook.errors import FileFormatError
from relook.io.arrays import read_npz
from relook.policy.reference import load_reference

SIGNED = {"contrast", "color", "brightness", "sharpness"}
FINISH = Step("crop_flip", 4)


def old_npy(array: np.ndarray[Any, Any], protocol: int = 2) -> bytes:
    """Return the `.npy` file of an array of objects as numpy 1 wrote it: protocol 2 or 3."""
    header = f"{{'descr': '|O', 'fortran_order': False, 'shape': {array.shape}, }}"
    header = header.ljust(117) + "\n"
    body = pickle.dumps(array, protocol)
    body = body.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + body


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return an `.npz` file; of names without an ending the members are arrays."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as made:
        for name, data in members.items():
            made.writestr(name if "." in name else f"{name}.npy", data)
    return buffer.getvalue()


def test_a_cifar_policy(tmp_path: Path) -> None:
    policy = Policy.from_reference(npz(tmp_path / "policy.npz", objects(CIFAR)))
    first = SubPolicy((Step("rotate", 13.2), Step("color", 7.1, -1), Step("cutout", 30)), FINISH)
    assert policy == Policy(
        (
            first,
            SubPolicy(),
            SubPolicy((Step("color", 7.1, 1), Step("identity", 44)), FINISH),
            SubPolicy((Step("identity", 0),), FINISH),
            first,
        ),
        recipe="cifar",
    )
    np.savez_compressed(tmp_path / "policy.npz", policy=objects(CIFAR * 200))
    assert load_reference(str(tmp_path / "policy.npz")).subpolicies == policy.subpolicies * 200
    assert not policy.is_fixed


def test_an_imagenet_policy(tmp_path: Path) -> None:
    policy = Policy.from_reference(npy(tmp_path / "policy.npy", IMAGENET))
    assert policy == Policy(
        (
            SubPolicy((Step("scale_crop_flip", 7.72), Step("identity", 8.7))),
            SubPolicy((Step("scale_crop_flip", 12.5),)),
            SubPolicy(
                (
                    Step("scale_crop_flip", 1e-05),
                    Step("contrast", 3.5, -1),
                    Step("equalize", 4),
                    Step("invert", 0.1),
                )
            ),
        ),
        recipe="imagenet",
    )


@pytest.mark.parametrize("index", range(18))
@pytest.mark.parametrize("magnitude", [-20.0, 20.0])
def test_every_index_and_sign(tmp_path: Path, index: int, magnitude: float) -> None:
    direction = (1 if magnitude > 0 else -1) if ORDER[index] in SIGNED else None
    expected = Step(ORDER[index], 20, direction)
    (from_text,) = load_reference(npy(tmp_path / "policy.npy", [f"[({index},{magnitude})]"]))
    assert from_text == SubPolicy((expected,))
    cifar = npz(tmp_path / "policy.npz", objects([[(index, magnitude)]]))
    if index < 15:
        assert load_reference(cifar)[0] == SubPolicy((expected,), FINISH)
    else:
        refused(f"index from 0 to 14, got {index}", load_reference, cifar, error=FileFormatError)


@pytest.mark.parametrize("dtype", [object, np.float64, np.float32])
def test_a_policy_as_one_block_of_numbers(tmp_path: Path, dtype: type) -> None:
    random = np.random.default_rng(0)
    block = np.stack([random.integers(0, 15, (100, 3)), random.uniform(-45, 45, (100, 3))], -1)
    lists = [[(int(i), float(m)) for i, m in entry] for entry in block.astype(dtype)]
    expected = load_reference(npz(tmp_path / "lists.npz", objects(lists)))
    assert load_reference(npz(tmp_path / "block.npz", block.astype(dtype))) == expected
    assert len(expected) == 100


def test_what_python_objects_a_list_holds_makes_no_difference(tmp_path: Path) -> None:
    entries = [
        [[5, 13], (np.int64(11), np.float64(-7.5))],
        ((5.0, 13.0), [11, -7.5]),
        np.array([[5, 13], [11, -7.5]]),
        [np.array([5, 13.0]), (11, np.float32(-7.5))],
    ]
    policy = load_reference(npz(tmp_path / "policy.npz", objects(entries)))
    sub = SubPolicy((Step("rotate", 13), Step("color", 7.5, -1)), FINISH)
    assert policy.subpolicies == (sub,) * 4


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_a_file_of_an_older_numpy(tmp_path: Path, protocol: int) -> None:
    data = old_npy(objects(CIFAR), protocol)
    if protocol == 4:  # as numpy 2 writes it, for the lengths are in the pickle
        np.save(tmp_path / "new.npy", objects(CIFAR))
        data = (tmp_path / "new.npy").read_bytes()
    expected = load_reference(npz(tmp_path / "new.npz", objects(CIFAR)))
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        (tmp_path / "old.npz").write_bytes(archive({"arr_0": data}, method))
        assert load_reference(tmp_path / "old.npz") == expected


@given(magnitude=st.floats(0, 65.27))
def test_the_scale_is_the_authors(
    tmp_path_factory: pytest.TempPathFactory, magnitude: float
) -> None:
    path = tmp_path_factory.mktemp("scale") / "policy.npy"
    step, *beyond = (
        load_reference(npy(path, [f"[(15,{one!r})]"]))[0].steps[0]
        for one in (magnitude, 65.28, 100.0, -1e300)
    )
    assert beyond == [Step("scale_crop_flip", 0)] * 3
    authors = abs(0.99 - 0.91 * magnitude / 30)
    assert step.value == pytest.approx(max(0.08, authors), abs=1e-12)
    assert 0 <= step.magnitude <= max(30, min(magnitude, 35.28))


# What is refused, and how.

NAN = float("nan")


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([[(15, 1.0)]], "expected a transform index from 0 to 14, got 15"),
        ([[(-1, 1.0)]], "expected a transform index from 0 to 14, got -1"),
        ([[(1.5, 1.0)]], "expected a transform index that is a whole number, got 1.5"),
        ([[(NAN, 1.0)]], "expected a transform index that is a whole number, got nan"),
        ([[("5", 1.0)]], 'expected a transform index that is a whole number, got "5"'),
        ([[(True, 1.0)]], "expected a transform index that is a whole number, got true"),
        ([[(5, NAN)]], "expected a finite magnitude, got nan"),
        ([[(5, -float("inf"))]], "expected a finite magnitude, got -inf"),
        ([[(5, None)]], "expected a magnitude that is a number, got null"),
        ([[(5, False)]], "expected a magnitude that is a number, got false"),
        ([[(5, 1.0, 2.0)]], "expected a pair (transform index, magnitude), got a list of 3"),
        ([[5, 1.0]], "expected a pair (transform index, magnitude), got 5"),
        ([["ab"]], 'expected a pair (transform index, magnitude), got "ab"'),
        (["[(5,1.0)]"], 'expected None or a list of at most 64 pairs, got "[(5,1.0)]"'),
        ([3], "expected None or a list of at most 64 pairs, got 3"),
        ([{}], "expected None or a list of at most 64 pairs, got an object"),
        ([[(5, 1.0)] * 65], "expected None or a list of at most 64 pairs, got a list of 65"),
        ([np.zeros((2, 3))], "expected a pair (transform index, magnitude), got a list of 3"),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_a_bad_entry_of_cifar_is_named(tmp_path: Path, entries: list[Any], problem: str) -> None:
    path = npz(tmp_path / "policy.npz", objects([None, *entries]))
    with pytest.raises(FileFormatError) as caught:
        load_reference(path)
    assert str(caught.value) == f"{path}: entry 1 (counted from 0): {problem}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[(18,1.0)]", "expected a transform index from 0 to 17, got 18"),
        ("[(5,1e999)]", "expected a finite magnitude, got inf"),
        ("[(5,1.0)]" + " " * 50, "expected text such as [(15,7.7),(0,8.7)]"),
        ("[]", "expected text such as"),
        ("", "expected text such as"),
        ("[(5,nan)]", "expected text such as"),
        ("[(5,1.0),]", "expected text such as"),
        ("[(5,1.0)(6,1.0)]", "expected text such as"),
        ("[(5,1_0)]", "expected text such as"),
        ("[(٥,1.0)]", "expected text such as"),
        ("[(5,__import__('os').system('touch marker'))]", "expected text such as"),
        ("[(5,1.0)]\n", "expected text such as"),
        ("[" + ",".join(["(5,1.0)"] * 65) + "]", "expected at most 64 steps"),
        ("9" * 10_000, "expected text such as"),
    ],
    ids=lambda value: value[:60],
)
def test_a_bad_entry_of_imagenet_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = npy(tmp_path / "policy.npy", ["[(15,1.0)]", text])
    with pytest.raises(FileFormatError) as caught:
        load_reference(path)
    assert str(caught.value).startswith(f"{path}: entry 1 (counted from 0): {problem}")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (np.zeros((3, 3)), r"shape \(n, steps, 2\), got float64 of the shape \(3, 3\)"),
        (np.zeros((3, 3, 3)), r"got float64 of the shape \(3, 3, 3\)"),
        (np.zeros(3), r"got float64 of the shape \(3,\)"),
        (np.zeros((3, 3, 2), bool), "got bool"),
        (np.array(3.0), r"of the shape \(\)"),
        (np.array([["[(5,1.0)]"]]), r"expected a list of text, got the shape \(1, 1\)"),
        (np.zeros(3, [("a", "f8")]), r"got \[\('a', '<f8'\)\] of the shape \(3,\)"),
        (np.zeros((0, 3, 2)), "expected 1 to 10,000 sub-policies, got 0"),
        (np.zeros((10_001, 1, 2)), "expected 1 to 10,000 sub-policies, got 10,001"),
        (np.zeros((1, 65, 2)), "at most 64 pairs, got a list of 65"),
        (np.zeros(3, np.complex64), "got complex64"),
    ],
)
def test_an_array_of_another_kind_is_refused(tmp_path: Path, array: Any, problem: str) -> None:
    for path in (npz(tmp_path / "policy.npz", array), tmp_path / "policy.npy"):
        np.save(tmp_path / "policy.npy", array)
        refused(problem, load_reference, path, error=FileFormatError)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "expected an npy file of plain arrays: ValueError: EOF"),
        (b"PK\x03\x04 but no archive", "expected an npz archive"),
        (b"\x93NUMPY\x03\x00", "a structured array"),
        (b"\x93NUMPY\x01\x00\xff\xff", "EOF: reading array header"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "a structured array"),
        (b"\x93NUMPY\x01\x00\x05\x00(((((", "TokenError"),
        (None, "there is no such file"),
        (bytes(16_000_001), "more than the allowed 16,000,000 bytes"),
        (archive({}), "with one array, got 0"),
        (archive({"policy.txt": b""}), "with one array, got 0"),
        (archive(dict.fromkeys("ab", old_npy(objects(CIFAR)))), "with one array, got 2"),
        (archive({f"{i}.npy": b"" for i in range(1_001)}), "expected at most 1,000 arrays"),
        (archive({"a.npy": b""}), "expected an npz archive of plain arrays: ValueError: EOF"),
        (
            archive({"a": old_npy(objects(CIFAR))}, zipfile.ZIP_LZMA),
            "a way that numpy does not use",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_file_is_refused(tmp_path: Path, data: bytes | None, problem: str) -> None:
    path = tmp_path / "policy.npz"
    if data is not None:
        path.write_bytes(data)
    refused(problem, load_reference, path, error=FileFormatError)


def test_an_archive_that_unpacks_to_much_is_refused_in_time(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, np.zeros((100_000_000,), np.uint8))
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    with pytest.raises(FileFormatError, match="unpacks to more than such a file should hold"):
        read_npz(path, max_bytes=1_000_000)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    refused("unpacks to more than", load_reference, path, error=FileFormatError)


def test_the_size_that_an_archive_declares_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    data = archive({"a": bytes(5_000_000)}, zipfile.ZIP_DEFLATED)
    lie = data.replace(struct.pack("<I", 5_000_000), struct.pack("<I", 10))
    assert lie != data
    path.write_bytes(lie)
    with pytest.raises(FileFormatError):
        read_npz(path, max_bytes=1_000_000)


class Touch:
    """Pickles as a call that makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for entry in (Touch(marker), [(5, Touch(marker))], [Touch(marker)]):
        path = npz(tmp_path / "policy.npz", objects([None, entry]))
        with pytest.raises(FileFormatError, match=r'names ".*\.system", which is not data'):
            load_reference(path)
        assert not marker.exists()
    with np.load(path, allow_pickle=True) as archive:  # what numpy would have done
        assert archive["arr_0"].shape == (2,)
    assert marker.exists()


# Damaged files: each loads, or raises a RelookError.


@pytest.mark.parametrize("kind", ["npz", "npz deflated", "objects", "old objects", "text"])
def test_damaged_files_load_or_raise_a_relook_error(tmp_path: Path, kind: str) -> None:
    buffer = io.BytesIO()
    if kind.startswith("npz"):
        (np.savez if kind == "npz" else np.savez_compressed)(buffer, objects(CIFAR))
    elif kind == "old objects":
        buffer.write(old_npy(objects(CIFAR)))
    else:
        np.save(buffer, objects(CIFAR) if kind == "objects" else np.array(IMAGENET))
    sound, draws = buffer.getvalue(), random.Random(0)  # noqa: S311
    refused = 0
    for number in range(1_500):
        path = tmp_path / f"{number}.npz"
        path.write_bytes(edited(sound, random_edits(draws), sound))
        try:
            assert isinstance(load_reference(path), Policy)
        except RelookError as error:
            refused += 1
            last = str(error)
        path.unlink()
    assert 1_000 < refused < 1_500
    assert last.isprintable()
