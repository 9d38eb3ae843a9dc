"""Pickles by hand: parts of them, and those that must be refused."""

from typing import Any

import numpy as np


def same(one: Any, other: Any) -> bool:
    """Whether two values agree in type, shape, byte order and content, NaN with NaN."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return False
        if one.dtype.kind == "O":
            return same(one.ravel().tolist(), other.ravel().tolist())
        return one.tobytes() == other.tobytes()
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return repr(one) == repr(other)


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value.encode())]) + value.encode()


SHELL = text("touch marker")
SYSTEM = b"cos\nsystem\n"
ENCODE = b"c_codecs\nencode\n"
UNBUILT = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"


def dtype(
    code: str, state: bytes = b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffK\xffK\x00t"
) -> bytes:
    return b"cnumpy\ndtype\n" + text(code) + b"\x89\x88\x87R" + state + b"b"


def array(shape: bytes, kind: bytes, raw: bytes) -> bytes:
    return UNBUILT + b"(K\x01" + shape + kind + b"\x89" + raw + b"tb"


def long(value: int) -> bytes:
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


ONE = b"K\x01\x85"
NDARRAY = b"cnumpy\nndarray\n"
REFUSED: dict[str, dict[str, bytes]] = {
    "is not for data": {
        "INST": b"(" + SHELL + b"ios\nsystem\n",
        "OBJ": b"(" + NDARRAY + ONE + b"o",
        "NEWOBJ": NDARRAY + ONE + b"\x81",
        "NEWOBJ_EX": NDARRAY + ONE + b"}\x92",
        "EXT1": b"\x82\xf0" + SHELL + b"\x85R",
        "EXT2": b"\x83\xf0\x00" + SHELL + b"\x85R",
        "EXT4": b"\x84\xf0\x00\x00\x00" + SHELL + b"\x85R",
        "PERSID": b"Pos.system\n",
        "BINPERSID": text("os.system") + b"Q",
        "out-of-band buffer": b"\x97",
    },
    "which is not data (nothing was run)": {
        "GLOBAL": SYSTEM + SHELL + b"\x85R",
        "STACK_GLOBAL": text("os") + text("system") + b"\x93" + SHELL + b"\x85R",
        "dotted name": text("numpy") + text("ndarray.tofile") + b"\x93" + SHELL + b"\x85R",
    },
    "that is not text": {"name of a list": b"]" + text("system") + b"\x93"},
    "arguments that do not fit": {
        "another codec": ENCODE + SHELL + text("rot13") + b"\x86R",
        "a codec that unpacks": ENCODE + SHELL + text("zip") + b"\x86R",
        "bytes by the number": b"cbuiltins\nbytes\n" + long(10**10) + b"\x85R",
        "ndarray called": NDARRAY + long(10**10) + b"\x85\x85R",
        "_reconstruct of another": UNBUILT.replace(NDARRAY, b"cnumpy\ndtype\n"),
        "scalar of objects": b"cnumpy.core.multiarray\nscalar\n" + dtype("O8") + SHELL + b"\x86R",
    },
    "can't encode": {"text beyond latin-1": ENCODE + text("\u0141") + text("latin1") + b"\x86R"},
    "expected a list of 1 objects": {
        "bytes for objects": array(ONE, dtype("O8"), b"C\x0812345678"),
        "_frombuffer of objects": (
            b"cnumpy.core.numeric\n_frombuffer\n(C\x0812345678"
            + dtype("O8") + ONE + text("C") + b"tR"
        ),
    },
    "which is not data": {
        "a structure": array(ONE, dtype("V8"), b"C\x0812345678"),
        "huge items": array(ONE, dtype("S999999999"), b"C\x011"),
        "items of no size": array(long(10**15) + b"\x85", dtype("S0"), b"C\x00"),
        "a list of types": array(ONE, dtype("u1,u1"), b"C\x0212"),
    },
    "an array of structures": {
        "fields": array(
            ONE,
            dtype("V8", b"(K\x03" + text("|") + b"N" + text("a") + b"\x85}K\x08K\x01K\x00t"),
            b"C\x0812345678",
        ),
    },
    "a state that numpy does not write": {"no dtype": array(ONE, b"N", b"C\x011")},
    "bytes in an array": {
        "too few bytes": array(b"K\x04\x85", dtype("u1"), b"C\x03123"),
        "a huge shape": array(long(10**15) + b"\x85", dtype("u1"), b"C\x03123"),
        "text for bytes": array(ONE, dtype("u1"), text("1")),
    },
    "expected a pickle": {
        "huge but empty": array(b"K\x00" + long(10**15) * 2 + b"\x87", dtype("u1"), b"C\x00"),
    },
    "not of whole numbers": {
        "a negative side": array(b"J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86", dtype("u1"), b"C\x011"),
        "a side that is true": array(b"\x88\x85", dtype("u1"), b"C\x011"),
    },
    "32 dimensions": {
        "40 dimensions": array(b"(" + b"K\x01" * 40 + b"t", dtype("u1"), b"C\x011"),
        "a shape of a list": array(b"]", dtype("u1"), b"C\x011"),
    },
    "text that is not Unicode": {"U1": array(ONE, dtype("U1"), b"C\x04\xff\xff\xff\x7f")},
    "an array of objects within another": {
        "nested": array(ONE, dtype("O8"), b"](" + array(ONE, dtype("O8"), b"](Ne") + b"e"),
    },
    "the state of something that has none": {
        "list": b"]}b",
        "name": NDARRAY + b"}b",
        "array, twice": array(ONE, dtype("u1"), b"C\x011") + b"}b",
        "array, not a tuple": UNBUILT + b"}b",
    },
    "something that is not data": {
        "half-built": UNBUILT,
        "half-built in a list": b"](" + UNBUILT + b"e",
        "half-built in an array": array(ONE, dtype("O8"), b"](" + UNBUILT + b"e"),
        "name": NDARRAY,
        "name in a tuple in a dict": b"}" + text("a") + NDARRAY + b"\x85s",
        "dtype": dtype("u1"),
    },
    "more than 64 bits": {"a huge integer": b"\x8b\x00\x00\x10\x00" + b"\x7f" * 2**20},
    "keys other than": {"tuple": b"})Ns", "float": b"}G" + bytes(8) + b"Ns", "None": b"}NNs"},
    "cannot be called": {"list": b"])R", "arguments in a list": NDARRAY + b"]R"},
    "is not a list": {"append": b")Na", "appends": b"}(Ne"},
    "is not a dict": {"list": b"]K\x01K\x01s", "an odd number of items": b"}(K\x01u"},
    "runs empty": {"tuple": b"\x87", "call": b"R"},
    "make no sense": {"no mark": b"]e", "no memo": b"h\x05", "nothing to keep": b"q\x01"},
    "not end with one object": {"a mark": b"N(", "two results": b"NN", "no result": b""},
}  # fmt: skip
