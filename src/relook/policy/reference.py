"""Reads the policies published by the authors of GPS.

For CIFAR an `.npz` file holds one array of objects: for each sub-policy None (the plain image)
or a list of (transform index, signed magnitude); or all of them as numbers `[n, steps, 2]`.
For ImageNet an `.npy` file holds text such as `[(15,-7.72),(0,8.7)]`.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from relook.errors import FileFormatError
from relook.io.arrays import read_npy, read_npz
from relook.io.files import describe, one_line, read_bytes
from relook.policy import Policy, Step, SubPolicy
from relook.policy.file import MOST_STEPS, MOST_SUBPOLICIES
from relook.transforms import TRANSFORMS

_CIFAR = (
    *("identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate", "autocontrast"),
    *("solarize", "solarize_add", "posterize", "contrast", "color", "brightness", "sharpness"),
    "cutout",
)
_IMAGENET = (*_CIFAR, "scale_crop_flip", "invert", "equalize")
_CIFAR_FINISH = Step("crop_flip", 4)

# The authors' CIFAR code skips steps below this.
_LEAST_CIFAR_MAGNITUDE = 0.5
# The authors' scale is |0.99 − 0.91·m/30|, which grows again beyond its zero. Mirroring a magnitude
# about that zero gives the same scale on the falling side.
_SCALE_MIRROR = 2 * 0.99 * 30 / 0.91
_LARGEST_SCALE_MAGNITUDE = 30.0

_LARGEST_FILE = 16_000_000
_LARGEST_UNPACKED = 64_000_000
_NUMBER = r"[+-]?(?:[0-9]{1,32}(?:\.[0-9]{0,32})?|\.[0-9]{1,32})(?:[eE][+-]?[0-9]{1,3})?"
_PAIR = re.compile(rf"\( *([0-9]{{1,3}}) *, *({_NUMBER}) *\)")
_PAIRS = re.compile(rf"\[ *{_PAIR.pattern}(?: *, *{_PAIR.pattern})* *\]")

Pair = tuple[int, float]


def load_reference(path: str | Path) -> Policy:
    """Read a policy published by the authors of GPS (CIFAR `.npz` or ImageNet `.npy`)."""
    where = one_line(str(path))
    what = "a policy of the GPS authors (.npz or .npy)"
    data = read_bytes(path, what=what, max_bytes=_LARGEST_FILE)
    if data.startswith(b"PK"):
        arrays = read_npz(Path(path), objects=True, max_bytes=_LARGEST_UNPACKED)
        if len(arrays) != 1:
            raise FileFormatError(f"{where}: expected {what} with one array, got {len(arrays)}")
        (array,) = arrays.values()
    else:
        array = read_npy(Path(path), objects=True)
    if not 1 <= len(np.atleast_1d(array)) <= MOST_SUBPOLICIES:
        raise FileFormatError(
            f"{where}: expected 1 to {MOST_SUBPOLICIES:,} sub-policies, got {len(array):,}"
        )
    if array.dtype.kind == "U":
        return _imagenet(array, where)
    return _cifar(array, where)


def _cifar(array: NDArray[Any], where: str) -> Policy:
    """Read `[n]` lists of pairs, or numbers `[n, steps, 2]`."""
    is_list = array.ndim == 1 and array.dtype.kind == "O"
    if not is_list and not (array.ndim == 3 and array.shape[2] == 2 and array.dtype.kind in "Oiuf"):
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


def _imagenet(array: NDArray[Any], where: str) -> Policy:
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
        _refuse("text such as [(15,7.7),(0,8.7)]", text, at)
    pairs = [(int(index), float(magnitude)) for index, magnitude in _PAIR.findall(text)]
    if len(pairs) > MOST_STEPS:
        _refuse(f"at most {MOST_STEPS} steps", text, at)
    return pairs


def _items(entry: object, at: str) -> list[Any]:
    entry = entry.tolist() if isinstance(entry, np.ndarray) else entry
    if not isinstance(entry, list | tuple) or len(entry) > MOST_STEPS:
        _refuse(f"None or a list of at most {MOST_STEPS} pairs", entry, at)
    return list(entry)


def _pair(item: object, at: str) -> Pair:
    item = item.tolist() if isinstance(item, np.ndarray) else item
    if not isinstance(item, list | tuple) or len(item) != 2:
        _refuse("a pair (transform index, magnitude)", item, at)
    index, magnitude = (part.item() if isinstance(part, np.generic) else part for part in item)
    if isinstance(index, bool) or not isinstance(index, int | float) or index % 1 != 0:
        _refuse("a transform index that is a whole number", index, at)
    if isinstance(magnitude, bool) or not isinstance(magnitude, int | float):
        _refuse("a magnitude that is a number", magnitude, at)
    return int(index), float(magnitude)


def _step(pair: Pair, order: tuple[str, ...], at: str) -> Step:
    index, signed = pair
    if not 0 <= index < len(order):
        _refuse(f"a transform index from 0 to {len(order) - 1}", index, at)
    if not math.isfinite(signed):
        _refuse("a finite magnitude", signed, at)
    name = order[index]
    if TRANSFORMS[name].signed:
        return Step(name, abs(signed), -1 if signed < 0 else 1)
    return Step(name, _unfold(abs(signed)) if name == "scale_crop_flip" else abs(signed))


def _unfold(magnitude: float) -> float:
    if magnitude <= _SCALE_MIRROR - _LARGEST_SCALE_MAGNITUDE:
        return magnitude
    return max(0.0, _SCALE_MIRROR - magnitude)


def _refuse(what: str, got: object, at: str) -> NoReturn:
    raise FileFormatError(f"{at}: expected {what}, got {describe(got)}")
