"""Compiles the kernels, and reads and writes for them, single elements and vectors.

Plain indexing in numba handles negative indices and overlapping arrays, and both keep a loop from
being vectorised. `read` and `write` handle neither: the caller guarantees valid places, and that a
loop (marked by a number) does not read what it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

f32, i32, u8 = np.float32, np.int32, np.uint8

LANES = 64
"""How many bytes `look_up_64` takes."""

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_F32 = ir.FloatType()
_FUSED = ("contract",)
_SIDE = 16  # of the blocks that are transposed at once


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call, and cache the machine code on disk."""
    return compile_with(function, cache=True)


def contracted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile like `helper`, with fused multiply-adds: not for exact float arithmetic."""
    return helper(function, fastmath={"contract"})


def helper(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function that only compiled functions call; it is cached as part of them."""
    return compile_with(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


def compile_with(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile at the first call, to run without the interpreter's lock.

    If no directory for the machine code can be written, each process compiles again.
    """
    # Explicitly, as numba lets a function inherit its caller's fastmath.
    options = {"nogil": True, "error_model": "numpy", "fastmath": False, **options}
    try:
        return njit(**options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # numba found no place for its cache
        return njit(**{**options, "cache": False})(function)  # type: ignore[no-any-return]


def built_in(function: Callable[..., Any]) -> Any:
    """Return a function for compiled code from one that builds its instructions."""
    return intrinsic(prefer_literal=True)(function)


def _marked(builder: Any, instruction: Any, kind: str, loop: int) -> Any:
    """Declare that a loop's writes (kind noalias) do not touch its reads (kind alias.scope)."""
    module = builder.module
    domain = module.add_metadata([ir.MetaDataString(module, "relook")])
    scope = module.add_metadata([ir.MetaDataString(module, f"relook loop {loop}"), domain])
    instruction.set_metadata(kind, module.add_metadata([scope]))
    return instruction


def address_of(context: Any, builder: Any, array_type: Any, array: Any, at: Any) -> Any:
    """Return the address of element `at` of a contiguous array."""
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
    """Clamp a number; NaN becomes the lowest."""
    value = value if value > low else low
    return value if value < high else high


@helper
def as_level(value: Any) -> Any:
    """Clamp a float32 or float64 to 0 … 255 and truncate it to uint8."""
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


def splat(number: Any, kind: Any, lanes: int = 16) -> ir.Constant:
    """Return a vector with the same number in every lane."""
    return ir.Constant(ir.VectorType(kind, lanes), [number] * lanes)


def load(builder: Any, address: Any, kind: Any, lanes: int) -> Any:
    """Read a vector from any address."""
    vector = ir.VectorType(kind, lanes)
    return builder.load(builder.bitcast(address, vector.as_pointer()), align=1)


def store(builder: Any, vector: Any, address: Any) -> None:
    """Write a vector at any address."""
    builder.store(vector, builder.bitcast(address, vector.type.as_pointer()), align=1)


def pick(builder: Any, first: Any, places: list[int], second: Any = None) -> Any:
    """Return the lanes at `places` of one vector, or of two, the second counted after the first."""
    second = ir.Constant(first.type, ir.Undefined) if second is None else second
    which = ir.Constant(ir.VectorType(_I32, len(places)), places)
    return builder.shuffle_vector(first, second, which)


class Elements:
    """Addresses of the elements of an intrinsic's arrays."""

    def __init__(self, context: Any, builder: Any, kinds: Any, args: Any) -> None:
        self.context, self.builder, self.kinds, self.args = context, builder, kinds, args

    def __call__(self, which: int, at: Any, apart: Any = None, times: int = 0) -> Any:
        """Return the address of element `at + times · apart` of argument `which`."""
        if times:
            at = self.builder.add(at, self.builder.mul(apart, apart.type(times)))
        return address_of(self.context, self.builder, self.kinds[which], self.args[which], at)


@built_in
def mix_four(
    typing: Any,
    pixels: Any,
    places: Any,
    wide: Any,
    across: Any,
    down: Any,
    x: Any,
    length: Any,
    out: Any,
) -> Any:
    """Weigh 4 × 4 pixels of four bytes for each of the pixels x … x + 3 of a row.

    The taps are int32 pixels from `places[x]` on, rows `wide` apart; the four weights are at x and
    `length` apart. Writes 16 sums, four for each pixel, to `out` from 4 · x on.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = Elements(context, builder, signature.args, args)
        _, _, wide, _, _, x, length, _ = args
        quarters = [load(builder, element(3, x, length, i), _F32, 4) for i in range(4)]
        halves = [pick(builder, quarters[i], list(range(8)), quarters[i + 1]) for i in (0, 2)]
        beside = pick(builder, halves[0], list(range(16)), halves[1])
        sums = []
        for pixel in range(4):
            here = builder.add(x, x.type(pixel))
            place = builder.sext(builder.load(element(1, here)), x.type)
            total = None
            for row in range(4):
                taps = load(builder, element(0, place, wide, row), _I8, 16)
                weight = load(builder, element(4, here, length, row), _F32, 1)
                levels = builder.uitofp(taps, ir.VectorType(_F32, 16))
                product = builder.fmul(levels, pick(builder, weight, [0] * 16), flags=_FUSED)
                total = product if total is None else builder.fadd(total, product, flags=_FUSED)
            weights = pick(builder, beside, [pixel + 4 * (i // 4) for i in range(16)])
            sums.append(builder.fmul(total, weights))
        pairs = [_folded(builder, sums[i], sums[i + 1], 8) for i in (0, 2)]
        four = _folded(builder, pairs[0], pairs[1], 4)
        store(builder, four, element(7, builder.mul(x, x.type(4))))
        return context.get_dummy_value()

    count = types.int64
    return types.void(pixels, places, count, across, down, count, count, out), build


def _folded(builder: Any, first: Any, second: Any, size: int) -> Any:
    """Add the upper half of each run of 2 · size lanes to the lower; first, then second."""
    runs = range(0, 32, 2 * size)
    low = [run + i for run in runs for i in range(size)]
    high = [run + size + i for run in runs for i in range(size)]
    return builder.fadd(pick(builder, first, low, second), pick(builder, first, high, second))


@built_in
def round_four(typing: Any, values: Any, x: Any, length: Any, out: Any) -> Any:
    """Write four pixels' levels to three planes, `length` apart; return the unsure ones' bits.

    `values` holds four float32 for each pixel, the last of which is not a level. A level is unsure
    as in `shear._is_unsure`; bit 4 · pixel + plane of the result (int32) stands for it.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = Elements(context, builder, signature.args, args)
        _, x, length, _ = args
        values = load(builder, element(0, builder.mul(x, x.type(4))), _F32, 16)
        low, high = splat(0.25, _F32), splat(255.25, _F32)
        values = builder.select(builder.fcmp_ordered(">", values, low), values, low)
        values = builder.select(builder.fcmp_ordered("<", values, high), values, high)
        shifted = builder.bitcast(
            builder.fadd(values, splat(6144.0, _F32)), ir.VectorType(_I32, 16)
        )
        levels = builder.trunc(builder.lshr(shifted, splat(11, _I32)), ir.VectorType(_I8, 16))
        planes = pick(builder, levels, [4 * (i % 4) + i // 4 for i in range(16)])
        words = builder.bitcast(planes, ir.VectorType(_I32, 4))
        for plane in range(3):
            word = builder.extract_element(words, _I32(plane))
            store(builder, word, element(3, x, length, plane))
        fraction = builder.and_(builder.add(shifted, splat(2, _I32)), splat(2047, _I32))
        unsure = builder.icmp_unsigned("<=", fraction, splat(4, _I32))
        unsure = builder.zext(builder.bitcast(unsure, _I16), _I32)
        return builder.and_(unsure, _I32(0x7777))

    count = types.int64
    return types.int32(values, count, count, out), build


@built_in
def look_up_64(typing: Any, table: Any, first: Any, images: Any, at: Any, out: Any) -> Any:
    """Map images[at … at + 63] through the 256 entries of a table from `first` on, into `out`.

    With AVX-512 if the processor has it, otherwise one by one, to the same bytes.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = Elements(context, builder, signature.args, args)
        _, first, _, at, _ = args
        # Numba's cache keeps code for different processors apart.
        if "+avx512vbmi" in context.codegen().magic_tuple()[2].split(","):
            levels = load(builder, element(2, at), _I8, LANES)
            quarters = [load(builder, element(0, first, _I64(64), i), _I8, LANES) for i in range(4)]
            kind = ir.FunctionType(levels.type, [levels.type] * 3)
            name, module = "llvm.x86.avx512.vpermi2var.qi.512", builder.module
            permute = module.globals.get(name) or ir.Function(module, kind, name)
            dark = builder.call(permute, [quarters[0], levels, quarters[1]])
            bright = builder.call(permute, [quarters[2], levels, quarters[3]])
            low = builder.icmp_signed(">=", levels, splat(0, _I8, LANES))
            store(builder, builder.select(low, dark, bright), element(4, at))
        else:
            for i in range(LANES):
                level = builder.zext(builder.load(element(2, at, _I64(1), i)), _I64)
                entry = builder.load(element(0, builder.add(first, level)))
                builder.store(entry, element(4, at, _I64(1), i))
        return context.get_dummy_value()

    return types.void(table, types.int64, images, types.int64, out), build


@helper
def transpose(
    images: Any, base: int, height: int, width: int, apart: int, out: Any, to: int
) -> None:
    """Write a plane `[height, width]`, whose rows are `apart` bytes apart, as `[width, height]`."""
    if height < _SIDE or width < _SIDE:
        for x in range(width):
            for y in range(height):
                write(out, to + x * height + y, read(images, base + y * apart + x, 71), 71)
        return
    # The last blocks overlap others, so that they end at the edge.
    for y in range(0, height, _SIDE):
        top = min(y, height - _SIDE)
        for x in range(0, width, _SIDE):
            left = min(x, width - _SIDE)
            _transpose_block(
                images, base + top * apart + left, apart, out, to + left * height + top, height
            )


@built_in
def _transpose_block(
    typing: Any, images: Any, at: Any, apart: Any, out: Any, to: Any, out_apart: Any
) -> Any:
    """Transpose 16 × 16 bytes; rows are `apart` bytes apart in the source, `out_apart` in `out`."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = Elements(context, builder, signature.args, args)
        _, at, apart, _, to, out_apart = args
        rows = [load(builder, element(0, at, apart, i), _I8, 16) for i in range(16)]
        low = [i // 2 + 16 * (i % 2) for i in range(16)]
        high = [place + 8 for place in low]
        for _ in range(4):  # each pass exchanges one bit of the row number for one of the column's
            rows = [
                pick(builder, rows[i], places, rows[i + 8])
                for i in range(8)
                for places in (low, high)
            ]
        for i, row in enumerate(rows):
            store(builder, row, element(3, to, out_apart, i))
        return context.get_dummy_value()

    count = types.int64
    return types.void(images, count, count, out, count, count), build
