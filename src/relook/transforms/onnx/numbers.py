"""Arithmetic that a graph does when it runs, written as Python writes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relook.transforms.onnx.graph import Graph


@dataclass(frozen=True)
class Number:
    """Float64 numbers in a graph, `[1]` or more of them, in which whole ones are exact.

    Comparisons give conditions, for `either` alone.
    """

    graph: Graph
    name: str

    def __add__(self, other: Number | float) -> Number:
        return self._with("Add", other)

    def __sub__(self, other: Number | float) -> Number:
        return self._with("Sub", other)

    def __mul__(self, other: Number | float) -> Number:
        return self._with("Mul", other)

    def __truediv__(self, other: Number | float) -> Number:
        return self._with("Div", other)

    def __lt__(self, other: Number | float) -> Number:
        return self._with("Less", other)

    def __gt__(self, other: Number | float) -> Number:
        return self._with("Greater", other)

    def __ge__(self, other: Number | float) -> Number:
        return self._with("GreaterOrEqual", other)

    def __and__(self, other: Number) -> Number:
        return self._with("And", other)

    def same(self, other: Number | float) -> Number:
        """Return the condition that both are equal."""
        return self._with("Equal", other)

    def at_least(self, other: Number | float) -> Number:
        """Return the larger one of both."""
        return self._with("Max", other)

    def at_most(self, other: Number | float) -> Number:
        """Return the smaller one of both."""
        return self._with("Min", other)

    def apply(self, operator: str) -> Number:
        """Return what an operator of one input makes: Floor, Round (half to even), Sqrt, Abs."""
        return Number(self.graph, self.graph.add(operator, self.name))

    def either(self, yes: Number | float, no: Number | float) -> Number:
        """Return one number where this condition holds, and the other where it does not."""
        chosen = self.graph.add("Where", self.name, self._value(yes), self._value(no))
        return Number(self.graph, chosen)

    def whole(self) -> str:
        """Return the numbers cut to int64."""
        return self.graph.cast(self.name, np.int64)

    def scalar(self) -> str:
        """Return a single whole number without a dimension, as Range and Loop take it."""
        return self.graph.add("Squeeze", self.whole())

    def _with(self, operator: str, other: Number | float) -> Number:
        return Number(self.graph, self.graph.add(operator, self.name, self._value(other)))

    def _value(self, other: Number | float) -> str:
        if isinstance(other, Number):
            return other.name
        return self.graph.constant(np.array([other], np.float64))
