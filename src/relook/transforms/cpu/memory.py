"""Compiling the fast kernels: reads and writes that leave the compiler free to use vectors.

Plain indexing in numba allows for negative indices and for arrays that overlap; either keeps a
loop from being vectorised. `read` and `write` do neither: the caller promises valid places, and
that within one loop (marked by a number) nothing is written that the same loop reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

f32, i32, u8 = np.float32, np.int32, np.uint8


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call, without the interpreter's lock, and keep the machine code.

    Where no directory for the machine code can be written, each process compiles again.
    """
    return _compile(function, cache=True)


def contracted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as `compiled` does, with fused multiply-adds: not for exact float arithmetic."""
    return helper(function, fastmath={"contract"})


def helper(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function that only compiled functions call; it is cached as a part of those."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


def _compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    # Said outright: numba lets a function inherit its caller's fastmath.
    options = {"nogil": True, "error_model": "numpy", "fastmath": False, **options}
    try:
        return njit(**options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # numba found no place for its cache
        return njit(**{**options, "cache": False})(function)  # type: ignore[no-any-return]


def built_in(function: Callable[..., Any]) -> Any:
    """Make a function that compiled code can call from one that builds its instructions."""
    return intrinsic(prefer_literal=True)(function)


def _marked(builder: Any, instruction: Any, kind: str, loop: int) -> Any:
    """Say that what a loop writes (kind noalias) is not what it reads (kind alias.scope)."""
    module = builder.module
    domain = module.add_metadata([ir.MetaDataString(module, "relook")])
    scope = module.add_metadata([ir.MetaDataString(module, f"relook loop {loop}"), domain])
    instruction.set_metadata(kind, module.add_metadata([scope]))
    return instruction


def address_of(context: Any, builder: Any, array_type: Any, array: Any, at: Any) -> Any:
    """Return where element `at` of a contiguous array stands."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [at])


@built_in
def read(typing: Any, array: Any, at: Any, loop: Any) -> Any:
    """Return element `at` of a contiguous array, counted through all its axes."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], args[0], args[1])
        loaded = builder.load(address)
        return _marked(builder, loaded, "alias.scope", loop.literal_value)

    return array.dtype(array, types.int64, loop), build


@built_in
def read_eight(typing: Any, array: Any, at: Any, loop: Any) -> Any:
    """Return bytes `at` … `at + 7` of a contiguous array as one little-endian int64."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], args[0], args[1])
        loaded = builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)
        return _marked(builder, loaded, "alias.scope", loop.literal_value)

    return types.int64(array, types.int64, loop), build


@built_in
def write(typing: Any, array: Any, at: Any, value: Any, loop: Any) -> Any:
    """Set element `at` of a contiguous array to a value of the array's own type."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], args[0], args[1])
        stored = builder.store(args[2], address)
        _marked(builder, stored, "noalias", loop.literal_value)
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype, loop), build


@helper
def clamped(value: Any, low: Any, high: Any) -> Any:
    """Clamp a number; one that is none becomes the lowest."""
    value = value if value > low else low
    return value if value < high else high


@helper
def as_level(value: Any) -> Any:
    """Clamp a float32 or float64 to 0 … 255 and cut its fraction off: uint8."""
    return u8(i32(clamped(value, f32(0), f32(255))))


@helper
def copy_image(images: Any, i: int, out: Any) -> None:
    """Copy image i of a batch `[n, c, h, w]`."""
    size = images.shape[1] * images.shape[2] * images.shape[3]
    for p in range(i * size, (i + 1) * size):
        write(out, p, read(images, p, 1), 1)


@helper
def fold(index: int, length: int) -> int:
    """Mirror an index into 0 … length − 1 without repeating the edge, from any distance."""
    if index < 0:
        index = -index
    if index >= length:
        period = 2 * (length - 1)
        if index >= period:
            index %= period
        if index >= length:
            index = period - index
    return index


@helper
def cubic(v0: float, v1: float, v2: float, v3: float, d: float) -> float:
    """Interpolate between v1 and v2 with a = −1, in Pillow's order of operations."""
    p2 = v2 - v0
    p3 = 2.0 * (v0 - v1) + v2 - v3
    p4 = v1 - v0 - v2 + v3
    return ((d * p4 + p3) * d + p2) * d + v1
