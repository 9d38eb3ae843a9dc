"""Builds ONNX graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.errors import MissingExtraError

Value = str | NDArray[Any] | np.generic


@dataclass(frozen=True)
class Shape:
    """The shape of an image: channels, height and width."""

    channels: int
    height: int
    width: int

    @property
    def pixels(self) -> int:
        """Height times width."""
        return self.height * self.width

    @property
    def transposed(self) -> Shape:
        """The shape with height and width exchanged."""
        return Shape(self.channels, self.width, self.height)


def import_onnx() -> Any:
    """Return the onnx package, or raise an error that says how to install it."""
    try:
        import onnx
        import onnx.compose
        import onnx.version_converter
    except ImportError:
        raise MissingExtraError("onnx", "onnx", "an ONNX file") from None
    return onnx


class Graph:
    """Nodes and constants: `add` appends a node and returns the name of its output.

    Inputs are names, or arrays, which become constants; equal constants are stored once.
    All names begin with `prefix`, as the names in a loop's body must differ from those around it.
    """

    def __init__(self, prefix: str = "") -> None:
        self._onnx = import_onnx()
        self._prefix = prefix
        self._names: Counter[str] = Counter()
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._nodes: list[Any] = []
        self._initializers: list[Any] = []
        self._sparse: list[Any] = []

    def add(self, operator: str, *inputs: Value, **attributes: Any) -> str:
        """Append a node with one output; return that."""
        return self.add_several(operator, *inputs, outputs=1, **attributes)[0]

    def add_several(
        self, operator: str, *inputs: Value, outputs: int, **attributes: Any
    ) -> list[str]:
        """Append a node with several outputs; return these."""
        given = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        made = [self._name(operator) for _ in range(outputs)]
        self._nodes.append(self._onnx.helper.make_node(operator, given, made, **attributes))
        return made

    def constant(self, value: NDArray[Any] | np.generic) -> str:
        """Return the name of the constant of an array or a number."""
        array = np.asarray(value)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._name("constant")
            tensor = self._onnx.numpy_helper.from_array(array, self._constants[key])
            self._initializers.append(tensor)
        return self._constants[key]

    def cast(self, value: Value, dtype: type[np.generic]) -> str:
        """Append a cast to a numpy type."""
        return self.add("Cast", value, to=_type(self._onnx, dtype))

    def embed(self, model: Any, inputs: Mapping[str, str], output: str) -> str:
        """Append a whole model, with values for its inputs by name; return its output."""
        prefix = f"{self._name('network')}/"
        inner = self._onnx.compose.add_prefix_graph(model.graph, prefix)
        for name, value in inputs.items():
            node = self._onnx.helper.make_node("Identity", [value], [prefix + name])
            self._nodes.append(node)
        self._nodes.extend(inner.node)
        self._initializers.extend(inner.initializer)
        self._sparse.extend(inner.sparse_initializer)
        return prefix + output

    def loop(
        self,
        times: str,
        start: Value,
        work: Callable[[Graph, str, str], str],
        dtype: type[np.generic] = np.float32,
    ) -> str:
        """Append a loop: `work(body, turn, value)` appends a turn and returns the next value.

        The value's shape may change from turn to turn. A body can use the values around it.
        """
        made = self._name("Loop")
        body = Graph(f"{made}/")
        counter, carried, keep_on = map(body.named, ("turn", "so_far", "keep_on"))
        result = work(body, counter, carried)
        first = start if isinstance(start, str) else self.constant(start)
        flag = body.described(keep_on, np.bool_, [])
        given = [body.described(counter, np.int64, []), flag, body.described(carried, dtype, None)]
        inner = body.proto("body", given, [flag, body.described(result, dtype, None)])
        node = self._onnx.helper.make_node("Loop", [times, "", first], [made], body=inner)
        self._nodes.append(node)
        return made

    def named(self, name: str) -> str:
        """Return a name with this graph's prefix."""
        return self._prefix + name

    def name_output(self, value: str, name: str) -> None:
        """Append an output of the graph: a value under a new name."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))

    def described(
        self, name: str, dtype: type[np.generic], shape: Sequence[int | str] | None
    ) -> Any:
        """Return the declaration of an input or output; a shape of None is open."""
        return self._onnx.helper.make_tensor_value_info(name, _type(self._onnx, dtype), shape)

    def proto(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Return the graph as onnx's own object."""
        return self._onnx.helper.make_graph(
            self._nodes,
            name,
            list(inputs),
            list(outputs),
            self._initializers,
            sparse_initializer=self._sparse,
        )

    def _name(self, kind: str) -> str:
        self._names[kind] += 1
        return f"{self._prefix}{kind}_{self._names[kind]}"


def _type(onnx: Any, dtype: type[np.generic]) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
