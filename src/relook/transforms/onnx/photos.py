"""Views cut from photos of any size in an ONNX graph, as in `relook.transforms.full_images`.

The size is known only when the graph runs, so the graph computes the boxes and Pillow's weights:
in float64, in the order of operations of `relook.transforms.resampling`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relook.errors import RelookError
from relook.transforms.centre_crop import LARGEST, CentreCrop
from relook.transforms.onnx.geometry import flipped, levels_of, resize, transposed
from relook.transforms.onnx.graph import Graph, Shape
from relook.transforms.resampling import (
    BITS,
    CROP_SHARES,
    DOWN_FIRST,
    KERNELS,
    Box,
    aspect_ratio,
)
from relook.transforms.steps import AppliedStep, StepError
from relook.transforms.table import TRANSFORMS, load_form


def _binary(operator: str) -> Callable[[Number, Number | float], Number]:
    """Return a method that appends an operator of two inputs."""

    def append(self: Number, other: Number | float) -> Number:
        return Number(self.graph, self.graph.add(operator, self.name, self.value_of(other)))

    return append


@dataclass(frozen=True)
class Number:
    """Float64 numbers in a graph, `[1]` or more, exact if they are whole.

    Comparisons give conditions, which only `either` and `&` take.
    """

    graph: Graph
    name: str

    __add__ = _binary("Add")
    __sub__ = _binary("Sub")
    __mul__ = _binary("Mul")
    __truediv__ = _binary("Div")
    __lt__ = _binary("Less")
    __gt__ = _binary("Greater")
    __ge__ = _binary("GreaterOrEqual")
    __and__ = _binary("And")
    same = _binary("Equal")
    at_least = _binary("Max")
    at_most = _binary("Min")

    def apply(self, operator: str) -> Number:
        """Append an operator of one input: Floor, Round (half to even), Sqrt, Abs."""
        return Number(self.graph, self.graph.add(operator, self.name))

    def either(self, yes: Number | float, no: Number | float) -> Number:
        """Return `yes` where this condition holds, else `no`."""
        chosen = self.graph.add("Where", self.name, self.value_of(yes), self.value_of(no))
        return Number(self.graph, chosen)

    def whole(self) -> str:
        """Return the numbers truncated to int64."""
        return self.graph.cast(self.name, np.int64)

    def scalar(self) -> str:
        """Return a single number as an int64 scalar, which Range and Loop need."""
        return self.graph.add("Squeeze", self.whole())

    def value_of(self, other: Number | float) -> str:
        """Return the name of another number, or of a constant."""
        if isinstance(other, Number):
            return other.name
        return self.graph.constant(np.array([other], np.float64))


@dataclass(frozen=True)
class Photos:
    """Uint8 photos `[n, c, h, w]` of one size in a graph, and how they become a model's input."""

    graph: Graph
    images: str
    height: Number
    width: Number
    plan: CentreCrop

    @property
    def shape(self) -> Shape:
        """The shape of a view."""
        return Shape(self.plan.channels, *self.plan.size)

    @cached_property
    def centre(self) -> str:
        """The plain view, the centre of the resized photo; appended on first use."""
        sides, size = _resized_size(self), self.plan.size
        starts = [
            ((side - wanted) / 2.0).apply("Round") for side, wanted in zip(sides, size, strict=True)
        ]
        return _part_of_resized(self, sides, starts, size)


@dataclass(frozen=True)
class Span:
    """A side of a resize: `length` pixels become `size`, of which `count` from `start` are kept."""

    length: Number
    size: Number
    start: Number
    count: Number

    def within(self, body: Graph) -> Span:
        """Return the span for arithmetic in the body of a loop."""
        return Span(*(replace(number, graph=body) for number in vars(self).values()))

    def chosen(self, condition: Number, other: Span) -> Span:
        """Return this span where a condition holds, else the other."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Span(*(condition.either(*pair) for pair in pairs))


def open_photos(graph: Graph, images: str, plan: CentreCrop) -> Photos:
    """Append the photos at the size that they are kept at (`kept_size`)."""
    height, width = (
        Number(graph, graph.cast(side, np.float64))
        for side in graph.add_several(
            "Split", graph.add("Shape", images, start=2), np.array([1, 1]), outputs=2
        )
    )
    rows, columns = (LARGEST * side for side in plan.size)
    scale = (_number(graph, rows) / height).at_least(_number(graph, columns) / width).at_most(1.0)
    down, across = (
        _whole_span(side, (side * scale).apply("Round").at_least(1.0)) for side in (height, width)
    )

    def reduced(body: Graph, _: str, whole: str) -> str:
        return _resized(body, whole, across, down, "bicubic")

    times = (scale < 1.0).either(1.0, 0.0).scalar()
    kept = graph.loop(times, images, reduced, np.uint8)
    return Photos(graph, kept, down.size, across.size, plan)


def cut_view(photos: Photos, steps: Sequence[AppliedStep]) -> tuple[str, Sequence[AppliedStep]]:
    """Append a view at the input's size (see `open_images`); return it and the remaining steps."""
    row = TRANSFORMS[steps[0].transform] if steps else None
    if row is None or row.full_size is None:
        return photos.centre, steps
    if row.onnx_full_size is None:
        message = (
            f"{row.name} of full-size photos has no ONNX form: export with full_size=False "
            "(--full-size no)"
        )
        raise StepError(steps[0], RelookError(message))
    return load_form(row.onnx_full_size)(photos, steps[0]), steps[1:]


def scale_crop(photos: Photos, step: AppliedStep) -> str:
    """Append a box of the photo, resized to the input's size, and its flip."""
    graph, height, width = photos.graph, photos.height, photos.width
    area, aspect, x, y = (float(step.draws[name][0]) for name in ("area", "aspect", "x", "y"))
    share = float(CROP_SHARES[step.transform](step.values, np.array([area]))[0])
    ratio = aspect_ratio(aspect)
    pixels = width * height * share
    across, down = (pixels * ratio).apply("Sqrt"), (pixels / ratio).apply("Sqrt")
    wide, tall = across > width, down > height
    box_width = wide.either(width, tall.either(pixels / height, across))
    box_height = wide.either(pixels / width, tall.either(height, down))
    (left, columns), (top, rows) = _placed(width, box_width, x), _placed(height, box_height, y)
    edges = [_joined(graph, top, left), _joined(graph, top + rows, left + columns)]
    box = graph.add("Slice", photos.images, *edges, np.array([2, 3]))
    shape = photos.shape
    made = _resized(
        graph,
        box,
        _whole_span(columns, _number(graph, shape.width)),
        _whole_span(rows, _number(graph, shape.height)),
        "bicubic",
    )
    return flipped(graph, made, step, shape.width)


def zoom(photos: Photos, step: AppliedStep) -> str:
    """Append a box of the resized photo, a share of the input's sides, at the input's size."""
    sides, size = _resized_size(photos), photos.plan.size
    # The resized photo is never smaller than the input, so the box always fits.
    rows, columns = (round(max(float(step.values[0]) * side, 1.0)) for side in size)
    starts = [
        _start(side, _number(photos.graph, count), float(step.draws[name][0]))
        for side, count, name in zip(sides, (rows, columns), "yx", strict=True)
    ]
    part = _part_of_resized(photos, sides, starts, (rows, columns))
    shape = Shape(photos.plan.channels, rows, columns)
    return resize(photos.graph, part, shape, Box(0, 0, columns, rows), size)


def _resized_size(photos: Photos) -> tuple[Number, Number]:
    """Append `resized_size`: height and width before the centre is cut out."""
    plan, height, width = photos.plan, photos.height, photos.width
    rows, columns = (math.floor(side / plan.crop) for side in plan.size)
    wide = width * rows >= height * columns
    new_width = wide.either((width * rows / height).apply("Floor").at_least(columns), columns)
    new_height = wide.either(rows, (height * columns / width).apply("Floor").at_least(rows))
    if plan.every:
        return new_height, new_width
    same = height.same(plan.size[0]) & width.same(plan.size[1])
    return same.either(height, new_height), same.either(width, new_width)


def _part_of_resized(
    photos: Photos, sides: Sequence[Number], starts: Sequence[Number], size: tuple[int, int]
) -> str:
    """Append a part, of a known size, of the photo resized to `sides`."""
    down, across = (
        Span(length, side, start, _number(photos.graph, count))
        for length, side, start, count in zip(
            (photos.height, photos.width), sides, starts, size, strict=True
        )
    )
    return _resized(photos.graph, photos.images, across, down, photos.plan.interpolation)


def _placed(side: Number, length: Number, share: float) -> tuple[Number, Number]:
    """Append `placed_box` along one side: the start of the box, and its length."""
    count = length.at_least(1.0).at_most(side).apply("Round")
    return _start(side, count, share), count


def _start(side: Number, count: Number, share: float) -> Number:
    free = side - count
    return ((free + 1.0) * share).apply("Floor").at_most(free)


def _resized(graph: Graph, images: str, across: Span, down: Span, interpolation: str) -> str:
    """Append Pillow's resize, across and down with bytes in between, in Pillow's order."""
    across, down = across.within(graph), down.within(graph)
    # Two passes over rows with a transposition in between; another before the first, or not.
    first = _number(graph, 0.0)
    if DOWN_FIRST:
        lost = down.length - down.size  # as in `goes_down_first`
        most = (lost > 0.0) & (lost > (across.length - across.size) * 2.0)
        first = most.either(1.0, 0.0)
    is_down = first > 0.5
    images = _transposed_if(graph, images, is_down.either(0.0, 1.0))
    images = _rows(graph, images, down.chosen(is_down, across), interpolation)
    images = _rows(graph, transposed(graph, images), across.chosen(is_down, down), interpolation)
    return _transposed_if(graph, images, first)


def _transposed_if(graph: Graph, images: str, times: Number) -> str:
    """Append a transposition that is made once or not at all."""
    return graph.loop(
        times.scalar(), images, lambda body, _, value: transposed(body, value), np.uint8
    )


def _rows(graph: Graph, images: str, span: Span, interpolation: str) -> str:
    """Append one pass: new rows from old ones, weighted as in `resize_taps`."""
    index = graph.add("Range", span.start.scalar(), (span.start + span.count).scalar(), np.int64(1))
    scale = span.length / span.size
    centre = (Number(graph, graph.cast(index, np.float64)) + 0.5) * scale
    support, kernel = KERNELS[interpolation][0], _FORMS[interpolation]
    reach = scale.at_least(1.0)
    first = (centre - reach * support + 0.5).apply("Floor").at_least(0.0)
    end = (centre + reach * support + 0.5).apply("Floor").at_most(span.length)
    most = Number(graph, graph.add("ReduceMax", (end - first).name))
    counted = graph.add("Range", np.int64(0), most.scalar(), np.int64(1))
    column = graph.add("Reshape", graph.cast(counted, np.float64), np.array([-1, 1]))
    taps = first + Number(graph, column)
    distance = (taps - centre + 0.5) * (_number(graph, 1.0) / reach)
    weights = (taps < end).either(kernel(distance), 0.0)
    # Summed one by one and in order, as in Pillow.
    sums = graph.add("CumSum", weights.name, np.int64(0))
    total = Number(graph, graph.add("Gather", sums, np.array([-1]), axis=0))
    scaled = weights / total * float(1 << BITS)
    fixed = graph.cast((scaled + (scaled < 0.0).either(-0.5, 0.5)).name, np.int32)
    fixed = graph.add("Unsqueeze", fixed, np.array([2]))
    begin, last = first.whole(), (span.length - 1.0).whole()

    def weighed(body: Graph, turn: str, so_far: str) -> str:
        # Past the end the weight is zero; the index only has to be valid.
        place = body.add("Min", body.add("Add", begin, turn), last)
        taken = body.cast(body.add("Gather", images, place, axis=2), np.int32)
        weight = body.add("Gather", fixed, turn, axis=0)
        return body.add("Add", body.add("Mul", taken, weight), so_far)

    half = np.full((1, 1, 1, 1), 1 << (BITS - 1), np.int32)
    return levels_of(graph, graph.loop(most.scalar(), half, weighed, np.int32))


def _bicubic(distance: Number) -> Number:
    t = distance.apply("Abs")
    near = (t * 1.5 - 2.5) * t * t + 1.0
    far = (((t - 5.0) * t + 8.0) * t - 4.0) * -0.5
    return (t < 1.0).either(near, (t < 2.0).either(far, 0.0))


def _bilinear(distance: Number) -> Number:
    return (_number(distance.graph, 1.0) - distance.apply("Abs")).at_least(0.0)


def _box(distance: Number) -> Number:
    return (distance > -0.5).either((distance > 0.5).either(0.0, 1.0), 0.0)


_FORMS = {"bicubic": _bicubic, "bilinear": _bilinear, "box": _box}
INTERPOLATIONS = tuple(_FORMS)
"""The interpolations with which a graph can resize photos of any size."""


def _whole_span(length: Number, size: Number) -> Span:
    return Span(length, size, _number(size.graph, 0.0), size)


def _number(graph: Graph, value: float) -> Number:
    return Number(graph, graph.constant(np.array([value], np.float64)))


def _joined(graph: Graph, *numbers: Number) -> str:
    return graph.add("Concat", *(number.whole() for number in numbers), axis=0)
