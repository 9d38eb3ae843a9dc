import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import relook.io.fingerprint
from relook.io.fingerprint import differences, fingerprint


def json_values(leaves: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=8,
    )


NO_FLOATS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
LEAVES = NO_FLOATS | st.floats(allow_nan=False)


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@given(a=json_values(LEAVES), b=json_values(LEAVES))
@settings(deadline=None, max_examples=300)
def test_json_values_agree_exactly_when_their_canonical_json_does(a: object, b: object) -> None:
    assert (fingerprint(a) == fingerprint(b)) == (canonical(a) == canonical(b))
    assert fingerprint(a) == fingerprint(json.loads(json.dumps(a)))


def test_the_encoding_is_sha256_over_kind_length_content() -> None:
    def head(kind: bytes, length: int) -> bytes:
        return kind + struct.pack("<Q", length)

    content = b"".join(
        [
            head(b"l", 2),
            head(b"s", 4) + b"seed",
            head(b"a", 2) + head(b"s", 5) + b"uint8" + struct.pack("<2q", 1, 2) + b"\x07\x08",
        ]
    )
    array = np.array([[7, 8]], dtype=np.uint8)
    assert fingerprint("seed", array) == hashlib.sha256(content).hexdigest()[:32]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (("a",), ("a", "")),
        ((b"a",), ("a",)),
        ((1,), (1.0,)),
        ((1,), (True,)),
        (("1",), (1,)),
        ((None,), (False,)),
        ((None,), ()),
        (([],), ({},)),
        (([1, 2],), (1, 2)),
        (([1, [2]],), ([[1], 2],)),
        (({"a": 1, "b": 2},), ({"a": 2, "b": 1},)),
        ((np.zeros(4, np.uint8),), (bytes(4),)),
        ((np.zeros(4, np.uint8),), (np.zeros((2, 2), np.uint8),)),
        ((np.zeros(4, np.uint8),), (np.zeros(1, np.uint32),)),
        ((np.zeros(4, np.int32),), (np.zeros(4, np.float32),)),
        ((np.zeros((0, 3)),), (np.zeros((3, 0)),)),
        ((np.zeros(2), np.zeros(2)), (np.zeros(4),)),
        ((np.float32(1),), (np.ones((), np.float32),)),
    ],
)
def test_what_differs_has_another_fingerprint(
    one: tuple[object, ...], other: tuple[object, ...]
) -> None:
    assert fingerprint(*one) != fingerprint(*other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, 2), [1, 2]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (bytearray(b"xy"), b"xy"),
        (np.arange(6, dtype="<i4"), np.arange(6, dtype=">i4")),
        (np.arange(24).reshape(4, 6)[::2, ::3], np.array([[0, 3], [12, 15]])),
        (np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(6).reshape(2, 3)),
        (torch.arange(6).reshape(2, 3).T, np.arange(6).reshape(2, 3).T),
        (torch.tensor(2.5), np.array(2.5, np.float32)),
        (torch.zeros(0, 3), np.zeros((0, 3), np.float32)),
        (torch.zeros(3, 0), np.zeros((3, 0), np.float32)),
        (torch.tensor([True, False]), np.array([True, False])),
        (torch.ones(2, requires_grad=True), np.ones(2, np.float32)),
    ],
)
def test_the_same_content_has_the_same_fingerprint(one: object, other: object) -> None:
    assert fingerprint(one) == fingerprint(other)


def test_bfloat16_tensors_have_fingerprints() -> None:
    ones = torch.ones(3, dtype=torch.bfloat16)
    assert fingerprint(ones) == fingerprint(ones.clone())
    assert fingerprint(ones) != fingerprint(ones * 2)
    assert fingerprint(ones) != fingerprint(ones.half())


def test_slabs_do_not_show_and_every_byte_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(1000, dtype=np.int16).reshape(50, 20)
    np.save(tmp_path / "array.npy", array)
    mapped = np.load(tmp_path / "array.npy", mmap_mode="r")
    whole = fingerprint(array)
    monkeypatch.setattr(relook.io.fingerprint, "_SLAB", 64)
    assert fingerprint(array) == fingerprint(mapped) == fingerprint(torch.tensor(array)) == whole
    for place in np.ndindex(array.shape):
        changed = array.copy()
        changed[place] ^= 1
        assert fingerprint(changed) != whole


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), {1: 2}, Path("x"), np.array([None]), 1j, [object()]]
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="cannot fingerprint"):
        fingerprint(value)


@given(a=json_values(NO_FLOATS), b=json_values(NO_FLOATS))
@settings(deadline=None, max_examples=300)
def test_differences_are_empty_exactly_for_equal_records(a: object, b: object) -> None:
    assert differences(a, a) == []
    assert (differences(a, b) == []) == (canonical(a) == canonical(b))


def test_differences_name_the_place_and_both_values() -> None:
    there = {"seed": 0, "pool": {"size": 10, "draws": "fixed"}, "budgets": [1, 2], "plain": True}
    here = {"seed": 0, "pool": {"size": 20, "draws": "fixed"}, "budgets": [1, 5], "ray": None}
    assert differences(there, here) == [
        "budgets[1]: 2 there, 5 here",
        "plain: true there, nothing here",
        "pool.size: 10 there, 20 here",
        "ray: nothing there, null here",
    ]
    assert differences({"a": [1]}, {"a": [1, 2]}) == ["a: a list of 1 there, a list of 2 here"]
    assert differences({"a": 1}, {"a": 1.0}) == []
    assert differences({"a": 1}, {"a": True}) == ["a: 1 there, true here"]
    assert differences([], {}) == ["content: a list of 0 there, an object here"]
    assert "\n" not in differences({"a\nb": 1}, {})[0]
