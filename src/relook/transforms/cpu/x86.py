"""Two operations on 64 bytes at a time, with AVX-512 where the processor has it.

Elsewhere the same operation is built from plain instructions; the bytes are the same.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from relook.transforms.cpu.memory import built_in
from relook.transforms.cpu.vectors import Elements, load, pick, splat, store

LANES = 64
_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_BYTES, _WORDS = ir.VectorType(_I8, LANES), ir.VectorType(_I32, LANES // 4)


def _has(context: Any, *features: str) -> bool:
    """Say whether code is compiled for all of these; numba's cache keeps such code apart."""
    return {f"+{name}" for name in features} <= set(context.codegen().magic_tuple()[2].split(","))


def _call(builder: Any, name: str, kind: Any, *args: Any) -> Any:
    signature = ir.FunctionType(kind, [arg.type for arg in args])
    module = builder.module
    function = module.globals.get(name) or ir.Function(module, signature, name)
    return builder.call(function, args)


@built_in
def look_up_64(typing: Any, table: Any, first: Any, images: Any, at: Any, out: Any) -> Any:
    """Set out[at … at + 63] to what the 256 entries of a table from `first` on say of images."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = Elements(context, builder, signature.args, args)
        _, first, _, at, _ = args
        if _has(context, "avx512vbmi"):
            levels = load(builder, element(2, at), _I8, LANES)
            quarters = [load(builder, element(0, first, _I64(64), i), _I8, LANES) for i in range(4)]
            name = "llvm.x86.avx512.vpermi2var.qi.512"
            dark = _call(builder, name, _BYTES, quarters[0], levels, quarters[1])
            bright = _call(builder, name, _BYTES, quarters[2], levels, quarters[3])
            low = builder.icmp_signed(">=", levels, splat(0, _I8, LANES))
            store(builder, builder.select(low, dark, bright), element(4, at))
        else:
            for i in range(LANES):
                level = builder.zext(builder.load(element(2, at, _I64(1), i)), _I64)
                entry = builder.load(element(0, builder.add(first, level)))
                builder.store(entry, element(4, at, _I64(1), i))
        return context.get_dummy_value()

    return types.void(table, types.int64, images, types.int64, out), build


@built_in
def weigh_rows(
    typing: Any,
    images: Any,
    rows: Any,
    x: Any,
    weights: Any,
    digits: Any,
    y: Any,
    size: Any,
    half: Any,
    bits: Any,
    out: Any,
    to: Any,
) -> Any:
    """Write 64 weighted sums of four bytes, rounded and clamped, to `out` from `to` on.

    The bytes are those at `rows[0 … 3] + x`; the weights, in fixed point with so many bits, stand
    at y and `size` apart, and their digits (see `split`) too.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = Elements(context, builder, signature.args, args)
        _, _, x, _, _, y, size, _, _, _, to = args
        starts = [builder.load(element(1, _I64(i))) for i in range(4)]
        four = [load(builder, element(0, builder.add(s, x)), _I8, LANES) for s in starts]
        fast = _has(context, "avx512vnni", "avx512bw")
        which, total = (4, _dotted) if fast else (3, _multiplied)
        factors = [builder.load(element(which, y, size, i)) for i in range(3 if fast else 4)]
        levels = total(builder, four, factors, half.literal_value, bits.literal_value)
        store(builder, levels, element(9, to))
        return context.get_dummy_value()

    count = types.int64
    arrays = (images, rows, count, weights, digits, count, count, half, bits, out, count)
    return types.void(*arrays), build


def _everywhere(builder: Any, number: Any, lanes: int) -> Any:
    one = builder.insert_element(
        ir.Constant(ir.VectorType(number.type, 1), ir.Undefined), number, _I32(0)
    )
    return pick(builder, one, [0] * lanes)


def _dotted(builder: Any, four: Any, digits: Any, half: int, bits: int) -> Any:
    """Sum by products of unsigned and signed bytes: four at once, a digit of the weights a time."""
    pairs = [_zipped(builder, four[i], four[i + 1], upper) for i in (0, 2) for upper in (0, 1)]
    halves = [builder.bitcast(pair, ir.VectorType(_I16, 32)) for pair in pairs]
    sums = []
    for pair in (0, 1):
        for upper in (0, 1):
            quads = _zipped(builder, halves[pair], halves[pair + 2], upper)
            quads, total = builder.bitcast(quads, _WORDS), None
            for place, digit in enumerate(digits):
                start = splat(0 if place else half, _I32, 16)
                weights = _everywhere(builder, digit, 16)
                part = _call(builder, "llvm.x86.avx512.vpdpbusd.512", _WORDS, start, quads, weights)
                part = builder.shl(part, splat(8 * place, _I32, 16))
                total = part if total is None else builder.add(total, part)
            sums.append(builder.ashr(total, splat(bits, _I32, 16)))
    narrow = [
        _call(builder, "llvm.x86.avx512.packssdw.512", ir.VectorType(_I16, 32), *sums[i : i + 2])
        for i in (0, 2)
    ]
    return _call(builder, "llvm.x86.avx512.packuswb.512", _BYTES, *narrow)


def _zipped(builder: Any, first: Any, second: Any, upper: int) -> Any:
    """Take turns between the lower (upper) halves of each 16 bytes of two vectors."""
    lanes = first.type.count
    run = lanes // 4
    places = [
        start + upper * run // 2 + i // 2 + lanes * (i % 2)
        for start in range(0, lanes, run)
        for i in range(run)
    ]
    return pick(builder, first, places, second)


def _multiplied(builder: Any, four: Any, weights: Any, half: int, bits: int) -> Any:
    wide = ir.VectorType(_I32, LANES)
    total = splat(half, _I32, LANES)
    for row, weight in zip(four, weights, strict=True):
        product = builder.mul(builder.zext(row, wide), _everywhere(builder, weight, LANES))
        total = builder.add(total, product)
    total = builder.ashr(total, splat(bits, _I32, LANES))
    for sign, limit in ((">", 0), ("<", 255)):
        edge = splat(limit, _I32, LANES)
        total = builder.select(builder.icmp_signed(sign, total, edge), total, edge)
    return builder.trunc(total, _BYTES)
