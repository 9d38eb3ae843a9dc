"""Fingerprints of values, and the differences between two JSON values."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.io.files import describe, shown_key

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

_DIGITS = 32
_SLAB = 1 << 24  # how many bytes of an array are hashed at a time
_ABSENT = object()


def fingerprint(*parts: object) -> str:
    """Return 32 hex digits that identify the parts, in their order.

    A part is a JSON-able value (a tuple counts as a list, keys have no order), bytes, a numpy
    array or a torch tensor; an array and a tensor of equal type, shape and content are equal.
    Every value is hashed with its kind and length, so that parts cannot run into each other.
    """
    digest = hashlib.sha256()
    for piece in _encode(parts):
        digest.update(piece)
    return digest.hexdigest()[:_DIGITS]


def differences(there: object, here: object) -> list[str]:
    """List what differs between two JSON values: `"search.seed: 0 there, 1 here"`, …"""
    return list(_differences("", there, here))


def _encode(value: object) -> Iterator[bytes | memoryview]:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        yield _head(b"c", 1) + {None: b"n", False: b"f", True: b"t"}[value]
    elif isinstance(value, int):
        yield from _text(b"i", str(value))
    elif isinstance(value, float):
        yield _head(b"d", 8) + struct.pack("<d", value)
    elif isinstance(value, str):
        yield from _text(b"s", value)
    elif isinstance(value, bytes | bytearray):
        yield _head(b"b", len(value))
        yield bytes(value)
    else:
        yield from _encode_composite(value)


def _encode_composite(value: object) -> Iterator[bytes | memoryview]:
    if isinstance(value, list | tuple):
        yield _head(b"l", len(value))
        for item in value:
            yield from _encode(item)
    elif isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"cannot fingerprint a mapping with keys {list(value)!r}: not all text")
        yield _head(b"m", len(value))
        for key in sorted(value):
            yield from _text(b"s", key)
            yield from _encode(value[key])
    elif isinstance(value, np.ndarray | Tensor):
        yield from _encode_array(value)
    else:
        raise TypeError(f"cannot fingerprint a {type(value).__name__}: {value!r}")


def _head(kind: bytes, length: int) -> bytes:
    return kind + struct.pack("<Q", length)


def _text(kind: bytes, text: str) -> Iterator[bytes]:
    content = text.encode("utf-8", "surrogatepass")
    yield _head(kind, len(content)) + content


def _encode_array(array: NDArray[np.generic] | Tensor) -> Iterator[bytes | memoryview]:
    if isinstance(array, np.ndarray) and array.dtype.kind in "OV":
        raise TypeError(f"cannot fingerprint an array of type {array.dtype}")
    name = array.dtype.name if isinstance(array, np.ndarray) else str(array.dtype).split(".")[-1]
    yield _head(b"a", len(array.shape))
    yield from _text(b"s", name)
    yield struct.pack(f"<{len(array.shape)}q", *array.shape)
    flat = array.reshape(1) if not array.shape else array
    rows = max(1, _SLAB * len(flat) // max(1, int(array.nbytes)))
    for start in range(0, len(flat), rows):
        yield _raw_bytes(flat[start : start + rows])


def _raw_bytes(slab: NDArray[np.generic] | Tensor) -> memoryview:
    if isinstance(slab, Tensor):
        raw = slab.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    else:
        little = slab.astype(slab.dtype.newbyteorder("<"), copy=False)
        raw = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
    return raw.data


def _differences(path: str, there: object, here: object) -> Iterator[str]:
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted(there.keys() | here.keys()):
            nested = f"{path}.{shown_key(key)}" if path else shown_key(key)
            yield from _differences(nested, there.get(key, _ABSENT), here.get(key, _ABSENT))
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for place, (old, new) in enumerate(zip(there, here, strict=True)):
            yield from _differences(f"{path}[{place}]", old, new)
    elif there != here or isinstance(there, bool) != isinstance(here, bool):
        old, new = ("nothing" if side is _ABSENT else describe(side) for side in (there, here))
        yield f"{path or 'content'}: {old} there, {new} here"
