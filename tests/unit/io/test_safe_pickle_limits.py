import contextlib
import pickle
import pickletools
import struct
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.io.pickle_cases import ENCODE, NDARRAY, ONE, REFUSED, UNBUILT, dtype, same, text

from relook.errors import FileFormatError
from relook.io import safe_pickle
from relook.io.safe_pickle import load_pickle


def peak_of(data: bytes) -> int:
    """Return how many bytes reading took at most; the outcome makes no difference."""
    tracemalloc.start()
    try:
        load_pickle(data, "file")
    except FileFormatError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def _laughs(levels: int) -> bytes:
    return b"\x80\x02]q\x00" + b"](h\x00h\x00eq\x00" * levels + b"."


BOMBS = {
    "a memo of 2^32": b"\x80\x02Nr\xff\xff\xff\xff.",
    "bytes of 2^62": b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"abc.",
    "a frame of 2^62": b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.",
    "text of 2^62": b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"abc.",
    "an integer of 2^31": b"\x80\x02\x8b\xff\xff\xff\x7fabc.",
    "lists that hold each other twice": _laughs(60),
    "one text encoded again and again": (
        b"\x80\x02](" + ENCODE + b"q\x00X" + struct.pack("<i", 10**5) + b"a" * 10**5 + b"q\x01"
        + text("latin1") + b"\x86q\x02R" + b"h\x00h\x02R" * 5_000 + b"e."
    ),
    "one list made into arrays again and again": (
        b"\x80\x02](" + dtype("O8") + b"q\x00](" + b"N" * 10**5 + b"eq\x01"
        + (UNBUILT + b"(K\x01J\xa0\x86\x01\x00\x85h\x00\x89h\x01tb") * 2_000 + b"e."
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_pickle_takes_little_memory(name: str) -> None:
    assert peak_of(BOMBS[name]) < 20_000_000


@pytest.mark.parametrize("opcode", [b"\x85", b"]\x94\x85", b"}"])
def test_the_number_of_opcodes_is_bounded(monkeypatch: pytest.MonkeyPatch, opcode: bytes) -> None:
    monkeypatch.setattr(safe_pickle, "_MOST_OPCODES", 1_000)
    with pytest.raises(FileFormatError, match="more than 1,000 opcodes"):
        load_pickle(b"\x80\x04N" + opcode * 10_000 + b".", "file")


def test_deep_nesting_does_not_exhaust_the_stack() -> None:
    depth = 100_000
    deep_tuple: Any = load_pickle(b"\x80\x02N" + b"\x85" * depth + b".", "file")
    assert type(deep_tuple) is tuple
    deep_list: Any = load_pickle(b"\x80\x02" + b"](" * depth + b"e" * depth + b".", "file")
    assert type(deep_list) is list
    with pytest.raises(FileFormatError, match="keys other than"):
        load_pickle(b"\x80\x02}N" + b"\x85" * depth + b"Ns.", "file")
    with pytest.raises(FileFormatError, match="that is not text"):
        load_pickle(b"\x80\x02N" + b"\x85" * depth + b"N\x93.", "file")
    del deep_tuple, deep_list


def test_a_list_that_holds_itself_is_read_once() -> None:
    circle: list[Any] = []
    circle.append(circle)
    found: Any = load_pickle(pickle.dumps(circle), "file")
    assert found[0] is found


def test_a_large_batch_is_read_quickly() -> None:
    batch = {
        b"data": np.zeros((10_000, 3072), np.uint8),
        b"labels": list(range(10_000)),
        b"filenames": [b"%d.png" % number for number in range(10_000)],
    }
    data = pickle.dumps(batch, 2)
    start = time.perf_counter()
    assert same(load_pickle(data, "file"), batch)
    assert time.perf_counter() - start < 10


_PARTS = [
    *(opcode.code.encode("latin-1") for opcode in pickletools.opcodes),
    *(data for group in REFUSED.values() for data in group.values()),
    *(UNBUILT, dtype("O8"), NDARRAY, ONE, b"K\x01"),
]


@settings(max_examples=500)
@given(parts=st.lists(st.sampled_from(_PARTS), max_size=30))
def test_opcodes_in_any_order_load_or_raise_a_file_format_error(parts: list[bytes]) -> None:
    with contextlib.suppress(FileFormatError):
        load_pickle(b"\x80\x04" + b"".join(parts) + b".", "file")
