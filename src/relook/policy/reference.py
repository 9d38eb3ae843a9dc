"""Policies that the authors of GPS published, read into ours.

For CIFAR an `.npz` file holds one array of objects: for each sub-policy None (the plain image)
or a list of (transform index, signed magnitude); or all of them as numbers `[n, steps, 2]`.
For ImageNet an `.npy` file holds text such as `[(15,-7.72),(0,8.7)]`.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from relook.errors import FileFormatError
from relook.io.files import describe, one_line, read_bytes
from relook.io.safe_pickle import Array, build_array, data_dtype, load_pickle
from relook.policy import Policy, Step, SubPolicy
from relook.policy.file import MOST_STEPS, MOST_SUBPOLICIES
from relook.transforms import TRANSFORMS

_CIFAR = (
    "identity",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "autocontrast",
    "solarize",
    "solarize_add",
    "posterize",
    "contrast",
    "color",
    "brightness",
    "sharpness",
    "cutout",
)
_IMAGENET = (*_CIFAR, "scale_crop_flip", "invert", "equalize")
_CIFAR_FINISH = Step("crop_flip", 4)

# Steps below this were skipped by the authors' CIFAR code.
_LEAST_CIFAR_MAGNITUDE = 0.5
# The authors' scale is |0.99 − 0.91·m/30|, which grows again beyond its zero; mirrored about
# it, a magnitude gives the same scale on the falling side.
_SCALE_MIRROR = 2 * 0.99 * 30 / 0.91
_LARGEST_SCALE_MAGNITUDE = 30.0

_LARGEST_FILE = 16_000_000
_LARGEST_UNPACKED = 64_000_000
_MOST_MEMBERS = 64
_LONGEST_HEADER = 10_000
_HEADER = re.compile(
    rb"\{'descr': '([^'\\]{1,16})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:[0-9]{1,12}L?(?:, [0-9]{1,12}L?)*,?)?)\),? *\}\s*"
)
_NUMBER = r"[+-]?(?:[0-9]{1,32}(?:\.[0-9]{0,32})?|\.[0-9]{1,32})(?:[eE][+-]?[0-9]{1,3})?"
_PAIR = re.compile(rf"\( *([0-9]{{1,3}}) *, *({_NUMBER}) *\)")
_PAIRS = re.compile(rf"\[ *{_PAIR.pattern}(?: *, *{_PAIR.pattern})* *\]")

Pair = tuple[int, float]


def load_reference(path: str | Path) -> Policy:
    """Read a policy that the authors of GPS published (CIFAR `.npz` or ImageNet `.npy`)."""
    where = one_line(str(path))
    what = "a policy of the GPS authors (.npz or .npy)"
    data = read_bytes(path, what=what, max_bytes=_LARGEST_FILE)
    if data.startswith(b"PK"):
        arrays = read_npz(data, where, _LARGEST_UNPACKED)
        if len(arrays) != 1:
            raise FileFormatError(f"{where}: expected {what} with one array, got {len(arrays)}")
        (array,) = arrays.values()
    else:
        array = read_npy(data, where)
    if not 1 <= len(np.atleast_1d(array)) <= MOST_SUBPOLICIES:
        raise FileFormatError(
            f"{where}: expected 1 to {MOST_SUBPOLICIES:,} sub-policies, got {len(array):,}"
        )
    if array.dtype.kind == "U":
        return _imagenet(array, where)
    return _cifar(array, where)


def read_npy(data: bytes, where: str) -> Array:
    """Build the array of a `.npy` file; one of objects goes through `load_pickle`."""
    try:
        shape, dtype, fortran, body = _npy_parts(data)
        if dtype.kind != "O":
            return build_array(shape, dtype, fortran, body)
    except ValueError as error:
        raise FileFormatError(f"{where}: expected a .npy array: {error}") from None
    array = load_pickle(body, where)
    if not isinstance(array, np.ndarray) or array.dtype.kind != "O" or array.shape != shape:
        raise FileFormatError(f"{where}: expected an array of objects of the shape {shape}")
    return array


def read_npz(data: bytes, where: str, max_bytes: int) -> dict[str, Array]:
    """Build the arrays of a `.npz` file that unpacks to at most `max_bytes`, by name."""
    problems = (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        ValueError,
        NotImplementedError,
        RuntimeError,  # encrypted
    )
    try:
        members = _unzip(data, max_bytes)
    except problems as error:
        reason = one_line(str(error)[:200])
        raise FileFormatError(f"{where}: expected an .npz archive: {reason}") from None
    return {name: read_npy(body, f"{where}: {one_line(name)}") for name, body in members.items()}


def _npy_parts(data: bytes) -> tuple[tuple[int, ...], np.dtype[Any], bool, bytes]:
    """Return shape, dtype, whether in Fortran's order, and the bytes after the header."""
    sizes = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}
    if data[:8] not in sizes:
        raise ValueError("it does not start as one of version 1 or 2")
    start = 8 + sizes[data[:8]]
    end = start + int.from_bytes(data[8:start], "little")
    found = _HEADER.fullmatch(data[start:end]) if end - start <= _LONGEST_HEADER else None
    if not found or end > len(data):
        raise ValueError("its header is damaged, or describes structures")
    descr, fortran, sides = found.groups()
    shape = tuple(int(side) for side in re.findall(rb"[0-9]+", sides))
    return shape, data_dtype(descr.decode("latin-1")), fortran == b"True", data[end:]


def _unzip(data: bytes, max_bytes: int) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if len(archive.infolist()) > _MOST_MEMBERS:
            raise ValueError(f"expected at most {_MOST_MEMBERS} arrays")
        for entry in archive.infolist():
            name = entry.filename.removesuffix(".npy")
            # The other methods may claim much memory before the first byte comes out.
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError("it is compressed in a way that numpy does not use")
            if name in members or name == entry.filename:
                raise ValueError(f"expected different .npy names, got {describe(entry.filename)}")
            with archive.open(entry) as member:
                members[name] = member.read(max_bytes + 1)
            max_bytes -= len(members[name])
            if max_bytes < 0:
                raise ValueError("it unpacks to more than such a file should hold")
    return members


def _cifar(array: Array, where: str) -> Policy:
    """Read `[n]` lists of pairs, or numbers `[n, steps, 2]`."""
    shaped = array.ndim == 1 and array.dtype.kind == "O"
    if not shaped and not (array.ndim == 3 and array.shape[2] == 2 and array.dtype.kind in "Oiuf"):
        raise FileFormatError(
            f"{where}: expected a list of sub-policies, or numbers of the shape (n, steps, 2), "
            f"got {array.dtype} of the shape {array.shape}"
        )
    subpolicies = []
    for number, entry in enumerate(array.tolist()):
        at = f"{where}: entry {number} (counted from 0)"
        steps = None if entry is None else [_pair(item, at) for item in _items(entry, at)]
        subpolicies.append(_cifar_subpolicy(steps, at))
    return Policy(tuple(subpolicies), recipe="cifar")


def _cifar_subpolicy(pairs: list[Pair] | None, at: str) -> SubPolicy:
    if pairs is None:
        return SubPolicy()
    steps = [_step(pair, _CIFAR, at) for pair in pairs]
    kept = tuple(step for step in steps if step.magnitude >= _LEAST_CIFAR_MAGNITUDE)
    return SubPolicy(kept or (Step("identity", 0),), _CIFAR_FINISH)


def _imagenet(array: Array, where: str) -> Policy:
    """Read text `[n]`, one sub-policy each."""
    if array.ndim != 1:
        raise FileFormatError(f"{where}: expected a list of text, got the shape {array.shape}")
    subpolicies = []
    for number, text in enumerate(array.tolist()):
        at = f"{where}: entry {number} (counted from 0)"
        pairs = () if text == "None" else _pairs_of_text(text, at)
        subpolicies.append(SubPolicy(tuple(_step(pair, _IMAGENET, at) for pair in pairs)))
    return Policy(tuple(subpolicies), recipe="imagenet")


def _pairs_of_text(text: str, at: str) -> list[Pair]:
    if not _PAIRS.fullmatch(text):
        _expected("text such as [(15,7.7),(0,8.7)]", text, at)
    pairs = [(int(index), float(magnitude)) for index, magnitude in _PAIR.findall(text)]
    if len(pairs) > MOST_STEPS:
        _expected(f"at most {MOST_STEPS} steps", text, at)
    return pairs


def _items(entry: object, at: str) -> list[Any]:
    entry = entry.tolist() if isinstance(entry, np.ndarray) else entry
    if not isinstance(entry, list | tuple) or len(entry) > MOST_STEPS:
        _expected(f"None or a list of at most {MOST_STEPS} pairs", entry, at)
    return list(entry)


def _pair(item: object, at: str) -> Pair:
    item = item.tolist() if isinstance(item, np.ndarray) else item
    if not isinstance(item, list | tuple) or len(item) != 2:
        _expected("a pair (transform index, magnitude)", item, at)
    index, magnitude = (part.item() if isinstance(part, np.generic) else part for part in item)
    if isinstance(index, bool) or not isinstance(index, int | float) or index % 1 != 0:
        _expected("a transform index that is a whole number", index, at)
    if isinstance(magnitude, bool) or not isinstance(magnitude, int | float):
        _expected("a magnitude that is a number", magnitude, at)
    return int(index), float(magnitude)


def _step(pair: Pair, order: tuple[str, ...], at: str) -> Step:
    index, signed = pair
    if not 0 <= index < len(order):
        _expected(f"a transform index from 0 to {len(order) - 1}", index, at)
    if not math.isfinite(signed):
        _expected("a finite magnitude", signed, at)
    name = order[index]
    if TRANSFORMS[name].signed:
        return Step(name, abs(signed), -1 if signed < 0 else 1)
    return Step(name, _unfold(abs(signed)) if name == "scale_crop_flip" else abs(signed))


def _unfold(magnitude: float) -> float:
    if magnitude <= _SCALE_MIRROR - _LARGEST_SCALE_MAGNITUDE:
        return magnitude
    return max(0.0, _SCALE_MIRROR - magnitude)


def _expected(what: str, got: object, at: str) -> NoReturn:
    raise FileFormatError(f"{at}: expected {what}, got {describe(got)}")
