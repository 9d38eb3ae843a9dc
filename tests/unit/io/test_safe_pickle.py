import contextlib
import copyreg
import gc
import operator
import os
import pickle
import pickletools
import re
import struct
import subprocess
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.f2py import crackfortran
from numpy.testing._private.utils import runstring
from tests.support import refused
from tests.unit.io.pickle_cases import ENCODE, REFUSED, SYSTEM, array, dtype, same, text

from relook.errors import FileFormatError
from relook.io.safe_pickle import load_pickle

PROTOCOLS = [2, 3, 4, 5]


_ARRAYS = npst.arrays(
    dtype=st.sampled_from(["u1", ">i2", "<i8", "f2", "<f4", ">f8", "?", "S3", "<U2", ">U2"]),
    shape=npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    fill=st.nothing(),
)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.sampled_from([np.float64(1.5), np.int64(-3), np.float32(0.1), np.bool_(True)])
    | _ARRAYS
    | _ARRAYS.map(np.asfortranarray),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.binary(max_size=3) | st.integers(0, 99), inner)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=150)
@given(value=_VALUES)
def test_plain_data_comes_back(protocol: int, value: object) -> None:
    assert same(load_pickle(pickle.dumps(value, protocol), "file"), value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_array_of_objects_comes_back(protocol: int) -> None:
    shared = [(1, 2.5), (14, -3)]
    value = np.empty((2, 3), dtype=object)
    value[0] = [None, shared, shared]
    value[1] = ["text", b"bytes", {"a": np.arange(3), b"b": np.float64(2)}]
    found: Any = load_pickle(pickle.dumps(value, protocol), "file")
    assert same(found, value)
    assert found[0, 1] is found[0, 2]


def test_names_of_the_older_numpy_are_known() -> None:
    value = [np.arange(6, dtype="u1").reshape(2, 3), np.float64(2.5)]
    for protocol in PROTOCOLS:
        data = older(pickle.dumps(value, protocol))
        assert same(load_pickle(data, "file"), value)


def older(data: bytes) -> bytes:
    """Rename numpy's modules as numpy 1 called them; frames and lengths are kept right."""
    for module in (b"multiarray", b"numeric"):
        new, old = b"numpy._core." + module, b"numpy.core." + module
        data = data.replace(bytes([len(new)]) + new, bytes([len(old)]) + old).replace(new, old)
    if data[2:3] == b"\x95":
        data = data[:3] + struct.pack("<Q", len(data) - 11) + data[11:]
    assert list(pickletools.genops(data))
    return data


def test_a_batch_of_cifar_as_python_2_wrote_it() -> None:
    """Protocol 2, text as byte strings, the array by `numpy.core.multiarray._reconstruct`."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    pixels = bytes(range(12))
    data = (
        b"\x80\x02}q\x01(" + text(b"data") + b"q\x02"
        b"cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85"
        + text(b"b") + b"\x87Rq\x05(K\x01K\x02K\x06\x86cnumpy\ndtype\nq\x06"
        + text(b"u1") + b"K\x00K\x01\x87Rq\x07(K\x03" + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<i", len(pixels)) + pixels + b"tb"
        + text(b"labels") + b"q\x08]q\x09(K\x06K\x09e"
        + text(b"batch_label") + text(b"batch 1 of 5")
        + text(b"size") + b"I4294967296\nu."
    )  # fmt: skip
    expected = {
        b"data": np.frombuffer(pixels, np.uint8).reshape(2, 6),
        b"labels": [6, 9],
        b"batch_label": b"batch 1 of 5",
        b"size": 2**32,
    }
    assert same(load_pickle(data, "data_batch_1"), expected)


# Pickles that do something.


class Call:
    """Pickles as a call of any function, or of what another call returns."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.recipe = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.recipe

    def __call__(self) -> None:
        """Exist, for `pickle` wants the function to be callable."""


def attacks(marker: Path) -> dict[str, object]:
    """Return objects whose unpickling makes a file beside or at `marker`."""
    shell, code = f"touch {marker}", f"open({str(marker)!r}, 'w').close()"
    module = Call(__import__, "os")
    getter = Call(operator.attrgetter, "system")
    return {
        "system": Call(os.system, shell),
        "subprocess": Call(subprocess.check_call, ["touch", str(marker)]),
        "eval": Call(eval, code),
        "exec": Call(exec, code),
        "open": Call(open, str(marker), "w"),
        "getattr": Call(Call(getattr, module, "system"), shell),
        "attrgetter": Call(Call(getter, module), shell),
        "map": Call(list, Call(map, eval, [code])),
        "numpy.f2py": Call(crackfortran.myeval, code),
        "numpy.testing": Call(runstring, code, {}),
        "numpy.save": Call(np.save, str(marker), 1),
        "numpy.memmap": Call(np.memmap, str(marker), "u1", "w+", 0, (1,)),
        "numpy.savetxt": Call(np.savetxt, str(marker), [1]),
        "numpy.frompyfunc": Call(Call(np.frompyfunc, os.system, 1, 1), shell),
    }


ATTACKS = tuple(attacks(Path()))


def wrapped(payload: object) -> list[object]:
    """Return the payload on its own and inside of everything that can hold it."""
    array = np.empty(2, dtype=object)
    array[0] = [(1, 2.0)]
    array[1] = payload
    return [payload, [payload], (1, payload), {"a": payload}, array]


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_is_ever_run(tmp_path: Path, name: str) -> None:
    for protocol in PROTOCOLS:
        for payload in wrapped(attacks(tmp_path / "marker")[name]):
            data = pickle.dumps(payload, protocol)
            with pytest.raises(FileFormatError, match=r"^file: expected a pickle of arrays"):
                load_pickle(data, "file")
    assert not list(tmp_path.iterdir())
    # The same bytes are live: pickle itself would have run them.
    with warnings.catch_warnings(), contextlib.suppress(ValueError):
        warnings.simplefilter("ignore", ResourceWarning)
        pickle.loads(pickle.dumps(attacks(tmp_path / "marker")[name]))  # noqa: S301
    gc.collect(0)
    assert list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("reason", "name"), [(reason, name) for reason in REFUSED for name in REFUSED[reason]]
)
def test_what_is_not_data_is_refused(reason: str, name: str) -> None:
    copyreg.add_extension("os", "system", 240)
    try:
        with pytest.raises(FileFormatError, match=re.escape(reason)) as caught:
            load_pickle(b"\x80\x02" + REFUSED[reason][name] + b".", "file")
    finally:
        copyreg.remove_extension("os", "system", 240)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_the_parts_of_those_pickles_are_sound() -> None:
    """Each refusal above is for its own reason: put together rightly, the same parts load."""
    data = array(
        b"K\x02K\x01\x86",
        dtype("O8"),
        b"](" + array(b"K\x03\x85", dtype("u1"), b"C\x03123") + b"Ne",
    )
    found: Any = load_pickle(b"\x80\x02" + data + b".", "file")
    assert found.shape == (2, 1)
    assert found[0, 0].tobytes() == b"123"
    assert load_pickle(b"\x80\x02" + ENCODE + text("é") + text("latin1") + b"\x86R.", "") == b"\xe9"


def test_what_is_named_is_said() -> None:
    with pytest.raises(FileFormatError, match=r'it names "os\.system", which is not data'):
        load_pickle(b"\x80\x02" + SYSTEM + b".", "file")
    with pytest.raises(FileFormatError, match="OrderedDict"):
        load_pickle(pickle.dumps(OrderedDict(a=1)), "file")


@pytest.mark.parametrize(
    "value", [{1}, frozenset(), 1j, range(3), Path("a"), bytearray(b"a"), object]
)
def test_other_classes_are_refused(value: object) -> None:
    refused(".", load_pickle, pickle.dumps(value, 4), "file", error=FileFormatError)


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(FileFormatError, match="bytes after its end"):
        load_pickle(pickle.dumps([1]) + b"N", "file")


def test_arrays_are_views_that_cannot_be_written() -> None:
    found: Any = load_pickle(pickle.dumps(np.arange(3), 4), "file")
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1
