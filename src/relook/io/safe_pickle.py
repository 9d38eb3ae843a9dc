"""Pickles read as data: what they name is neither imported nor called.

`pickle` would import and call what a file names, and numpy's `__setstate__` trusts its argument.
So this module executes the opcodes itself and looks up names in a short table only. The result
consists of None, numbers, str, bytes, lists, tuples, dicts and numpy arrays of these. It reads
protocols 2 to 5, as written by Python 2 and 3 and numpy 1 and 2.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from relook.errors import FileFormatError
from relook.io.files import describe, one_line

Array = NDArray[Any]

_MOST_OPCODES = 2_000_000  # one byte of pickle can create an object of 64
_MOST_DIMENSIONS = 32
_LAST_CODE_POINT = 0x10FFFF
_DTYPE = re.compile(r"([<>=|]?)(b1|[iu][1248]|f[248]|[SU][1-9][0-9]{0,5}|O)")


def load_pickle(data: bytes, where: str) -> object:
    """Build the plain data that a pickle describes; anything else raises a FileFormatError.

    Arrays are read-only views of the pickle's bytes. Python 2's strings become bytes, as with
    `encoding="bytes"`.
    """
    machine = _Machine(budget=len(data))
    try:
        result = machine.run(data)
        _check_plain(result)
    # Warnings are raised if Python runs with -W error.
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, Warning) as error:
        raise FileFormatError(
            f"{where}: expected a pickle of arrays, lists and numbers: {_reason(error)}"
        ) from None
    return result


class _Symbol(Enum):
    """What a pickle may name; a symbol stands for the Python object, and is not that object."""

    RECONSTRUCT = ("numpy.core.multiarray", "_reconstruct")
    SCALAR = ("numpy.core.multiarray", "scalar")
    FROM_BUFFER = ("numpy.core.numeric", "_frombuffer")
    NDARRAY = ("numpy", "ndarray")
    DTYPE = ("numpy", "dtype")
    ENCODE = ("_codecs", "encode")
    BYTES = ("builtins", "bytes")


_MODULE_ALIASES = {  # of numpy 2 and Python 2
    "numpy._core.multiarray": "numpy.core.multiarray",
    "numpy._core.numeric": "numpy.core.numeric",
    "__builtin__": "builtins",
}


@dataclass(eq=False)
class _Unbuilt:
    """An array (without dtype code) or a dtype, between its REDUCE and its BUILD."""

    dtype_code: str | None
    memo_keys: list[int] = field(default_factory=list)


@dataclass
class _Machine:
    """The pickle machine: a stack, the stacks below each mark, and a memo.

    `budget` limits copying: an honest pickle contains every byte and entry once.
    """

    budget: int
    stack: list[Any] = field(default_factory=list)
    below: list[list[Any]] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def run(self, data: bytes) -> object:
        """Execute the opcodes up to STOP, which must be the last byte."""
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            if count > _MOST_OPCODES:
                _refuse(f"it has more than {_MOST_OPCODES:,} opcodes")
            if opcode.name == "STOP":
                if position != len(data) - 1:
                    _refuse("there are bytes after its end")
                break
            operation = _OPERATIONS.get(opcode.name)
            if operation is None:
                _refuse(f"the opcode {opcode.name} at byte {position} is not for data")
            operation(self, argument)
        if self.below or len(self.stack) != 1:
            _refuse("it does not end with one object")
        return self.stack[0]

    def pop_mark(self) -> list[Any]:
        """Pop the stack down to the last mark, and drop the mark."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def pop_many(self, count: int) -> tuple[Any, ...]:
        """Pop the top `count` of the stack, lowest first."""
        if len(self.stack) < count:
            _refuse("its stack runs empty")
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        return items

    def spend(self, amount: int) -> None:
        """Count copied bytes or entries against the budget."""
        self.budget -= amount
        if self.budget < 0:
            _refuse("it would grow far beyond its own size")


def _refuse(problem: str) -> NoReturn:
    raise ValueError(problem)


def _reason(error: Exception) -> str:
    if isinstance(error, IndexError | KeyError | TypeError):
        return "its opcodes make no sense"
    return one_line(str(error)[:200])


def _push(machine: _Machine, argument: object) -> None:
    machine.stack.append(argument)


def _push_int(machine: _Machine, argument: int) -> None:
    if not -(2**63) <= argument < 2**64:
        _refuse("it holds an integer of more than 64 bits")
    machine.stack.append(argument)


def _push_bytes(machine: _Machine, argument: str | bytes | bytearray) -> None:
    data = argument.encode("latin-1") if isinstance(argument, str) else bytes(argument)
    machine.stack.append(data)


def _mark(machine: _Machine, _: object) -> None:
    machine.below.append(machine.stack)
    machine.stack = []


def _append(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) is not list:
        _refuse("it appends to something that is not a list")
    target.extend(items)


def _set_items(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) is not dict or len(items) % 2:
        _refuse("it sets items of something that is not a dict")
    for key, value in zip(items[::2], items[1::2], strict=True):
        # Hashing a tuple nested a million deep would exhaust the interpreter's own stack.
        if type(key) not in (str, bytes, int):
            _refuse("it holds a dict with keys other than text, bytes and integers")
        target[key] = value


def _put(machine: _Machine, key: int) -> None:
    top = machine.stack[-1]
    machine.memo[key] = top
    if isinstance(top, _Unbuilt):
        top.memo_keys.append(key)


def _get(machine: _Machine, key: int) -> None:
    machine.stack.append(machine.memo[key])


def _name(machine: _Machine, module: object, name: object) -> None:
    if not isinstance(module, str) or not isinstance(name, str):
        _refuse("it names something by a value that is not text")
    try:
        machine.stack.append(_Symbol((_MODULE_ALIASES.get(module, module), name)))
    except ValueError:
        _refuse(f"it names {describe(f'{module}.{name}')}, which is not data (nothing was run)")


def _reduce(machine: _Machine, _: object) -> None:
    symbol, arguments = machine.pop_many(2)
    if not isinstance(symbol, _Symbol) or type(arguments) is not tuple:
        _refuse("it calls something that cannot be called")
    made: object = None
    # Arrays are matched by type only, as comparing them with a value gives an array.
    match symbol, arguments:
        case _Symbol.RECONSTRUCT, (_Symbol() as kind, tuple(), _) if kind is _Symbol.NDARRAY:
            made = _Unbuilt(None)
        case _Symbol.DTYPE, (str() | bytes() as code, *_):
            made = _Unbuilt(_text(code))
        case _Symbol.SCALAR, (np.dtype() as dtype, bytes() as raw) if dtype.kind in "biuf":
            made = _build_array((1,), dtype, False, raw)[0]
        case _Symbol.FROM_BUFFER, (bytes() as raw, np.dtype() as dtype, shape, str() as order):
            made = _build_array(shape, dtype, order == "F", raw) if order in ("C", "F") else None
        case _Symbol.ENCODE, (str() as text, str() as codec) if codec in ("latin1", "latin-1"):
            machine.spend(len(text))
            made = text.encode("latin-1")
        case _Symbol.BYTES, ():
            made = b""
    if made is None:
        _refuse("it calls something with arguments that do not fit")
    machine.stack.append(made)


def _build(machine: _Machine, _: object) -> None:
    target, state = machine.pop_many(2)
    if not isinstance(target, _Unbuilt) or type(state) is not tuple:
        _refuse("it sets the state of something that has none")
    built: object
    if target.dtype_code is None:
        built = _array_from_state(machine, state)
    else:
        built = _dtype_from_state(target.dtype_code, state)
    for key in target.memo_keys:
        if machine.memo[key] is target:
            machine.memo[key] = built
    machine.stack.append(built)


def _dtype_from_state(code: str, state: tuple[Any, ...]) -> np.dtype[Any]:
    match state:
        case (int(), str() | bytes() as order, None, None, None, *_):
            return _data_dtype(_text(order) + re.sub("^O[48]$", "O", code))
    _refuse("it holds an array of structures")


def _array_from_state(machine: _Machine, state: tuple[Any, ...]) -> Array:
    match state:
        case (int(), shape, np.dtype() as dtype, int() as fortran, raw):
            if isinstance(raw, list):
                machine.spend(len(raw))
            return _build_array(shape, dtype, bool(fortran), raw)
    _refuse("it holds an array in a state that numpy does not write")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _data_dtype(text: str) -> np.dtype[Any]:
    """Return the dtype of plain data (`<f8`, `|u1`, `<U20`, `O`), or raise a ValueError."""
    found = _DTYPE.fullmatch(text)
    if not found:
        _refuse(f"it holds an array of type {describe(text)}, which is not data")
    order: Any = found[1] or "="
    return np.dtype(found[2]).newbyteorder(order)


def _build_array(shape: object, dtype: np.dtype[Any], fortran: bool, raw: object) -> Array:
    """Return an array of raw bytes (as a view) or of listed objects, or raise a ValueError."""
    if type(shape) is not tuple or len(shape) > _MOST_DIMENSIONS:
        _refuse(f"it holds an array of more than {_MOST_DIMENSIONS} dimensions")
    if not all(type(side) is int and side >= 0 for side in shape):
        _refuse("it holds an array whose shape is not of whole numbers")
    count = math.prod(shape)
    if dtype.kind == "O":
        flat = _objects(raw, count)
    elif isinstance(raw, bytes) and len(raw) == count * dtype.itemsize:
        flat = np.frombuffer(raw, dtype=dtype)
    else:
        _refuse(f"expected {describe(count * dtype.itemsize)} bytes in an array, got others")
    check_text(flat)
    return flat.reshape(shape, order="F" if fortran else "C")


def check_text(array: Array) -> None:
    """Raise a ValueError if an array of text holds codes that are not characters."""
    if array.dtype.kind == "U" and array.size:
        flat = array.reshape(-1, order="A")
        codes = flat.view(np.dtype("u4").newbyteorder(array.dtype.byteorder))
        if (codes > _LAST_CODE_POINT).any():
            _refuse("it holds text that is not Unicode")


def _objects(raw: object, count: int) -> Array:
    if type(raw) is not list or len(raw) != count:
        _refuse(f"expected a list of {describe(count)} objects in an array")
    flat = np.empty(count, dtype=object)
    for i, item in enumerate(raw):
        # Freeing such arrays nested a million deep would exhaust the interpreter's own stack.
        if isinstance(item, np.ndarray) and item.dtype.kind == "O":
            _refuse("it holds an array of objects within another")
        flat[i] = item
    return flat


def _check_plain(result: object) -> None:
    """Refuse objects that are internal to the machine: symbols, dtypes, unfinished arrays."""
    waiting, seen = [result], set[int]()
    while waiting:
        value = waiting.pop()
        if value is None or isinstance(value, bool | int | float | str | bytes | np.generic):
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, list | tuple):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif not isinstance(value, np.ndarray):
            _refuse("it holds something that is not data")
        elif value.dtype.kind == "O":
            waiting.extend(value.reshape(-1))


_Operation = Callable[[_Machine, Any], None]

_OPERATIONS: dict[str, _Operation] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "MARK": _mark,
    "NONE": lambda machine, _: _push(machine, None),
    "NEWTRUE": lambda machine, _: _push(machine, True),
    "NEWFALSE": lambda machine, _: _push(machine, False),
    "EMPTY_LIST": lambda machine, _: _push(machine, []),
    "EMPTY_TUPLE": lambda machine, _: _push(machine, ()),
    "EMPTY_DICT": lambda machine, _: _push(machine, {}),
    "TUPLE": lambda machine, _: _push(machine, tuple(machine.pop_mark())),
    "TUPLE1": lambda machine, _: _push(machine, machine.pop_many(1)),
    "TUPLE2": lambda machine, _: _push(machine, machine.pop_many(2)),
    "TUPLE3": lambda machine, _: _push(machine, machine.pop_many(3)),
    "APPEND": lambda machine, _: _append(machine, list(machine.pop_many(1))),
    "APPENDS": lambda machine, _: _append(machine, machine.pop_mark()),
    "SETITEM": lambda machine, _: _set_items(machine, list(machine.pop_many(2))),
    "SETITEMS": lambda machine, _: _set_items(machine, machine.pop_mark()),
    "MEMOIZE": lambda machine, _: _put(machine, len(machine.memo)),
    "GLOBAL": lambda machine, argument: _name(machine, *argument.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, _: _name(machine, *machine.pop_many(2)),
    "REDUCE": _reduce,
    "BUILD": _build,
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), _push_int),
    **dict.fromkeys(("SHORT_BINSTRING", "BINSTRING", "BYTEARRAY8"), _push_bytes),
    **dict.fromkeys(("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"), _push_bytes),
    **dict.fromkeys(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINFLOAT"), _push),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _put),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _get),
}
