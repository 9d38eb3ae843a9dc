"""One ONNX model of a policy: views, network, average and temperature in a single graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from relook.deploy.onnx.network import Networks, as_model
from relook.deploy.tta.view_plan import ViewPlan
from relook.errors import RelookError
from relook.models import Predictor
from relook.numerics.calibration import LOG_FLOOR
from relook.numerics.conformal import SLACK, SetRule
from relook.policy import SubPolicy
from relook.policy.views import fixed_steps, naming_steps
from relook.transforms.centre_crop import CentreCrop, resized_size
from relook.transforms.onnx.geometry import resize, take_columns, take_rows
from relook.transforms.onnx.graph import Graph, Shape, Value
from relook.transforms.onnx.photos import Photos, cut_view, open_photos
from relook.transforms.onnx.views import write_steps
from relook.transforms.resampling import Box

Layout = Literal["nchw", "nhwc"]
Output = Literal["probabilities", "log_probs", "logits"]

IMAGES, SET = "images", "set"
"""What input and prediction sets are called; the first output is called by what it is."""

# Views in one run of the network: more do not make it faster, and take memory.
_MOST_VIEWS = 32
_LEAST_VIEWS = 8
_NETWORK_PIXELS = 1 << 19
# Pixels of which views are made at once: with fewer, ONNX Runtime finds most of the steps too
# small for a second thread; with more, what lies between the steps leaves the caches.
_VIEW_PIXELS = 1 << 15


@dataclass(frozen=True)
class ImageInput:
    """What images a model takes: uint8, of the `source` shape, in a layout.

    Where the source is not the network's shape, `preparation` says how it becomes that. With its
    `full_size` the images are photos of any height and width, one shape at each call.
    """

    source: Shape
    network: Shape
    layout: Layout = "nchw"
    preparation: CentreCrop | None = None

    @property
    def takes_photos(self) -> bool:
        """Whether the images are photos of any size, from which views are cut."""
        return self.preparation is not None and self.preparation.full_size

    @property
    def dimensions(self) -> list[int | str]:
        """The input's dimensions; the number of images is free."""
        one = self.source
        sides: list[int | str] = [one.height, one.width]
        if self.takes_photos:
            sides = ["height", "width"]
        return ["n", *sides, one.channels] if self.layout == "nhwc" else ["n", one.channels, *sides]

    def write(self, graph: Graph, images: str) -> str:
        """Append what makes the network's images `[n, c, h, w]` of the input."""
        if self.preparation is None:
            return images
        source, plan = self.source, self.preparation
        try:
            height, width = resized_size((source.height, source.width), plan)
        except ValueError as error:
            raise RelookError(f"cannot resize the images inside the model: {error}") from None
        whole = Box(0, 0, source.width, source.height)
        images = resize(graph, images, source, whole, (height, width), plan.interpolation)
        top, left = round((height - plan.size[0]) / 2), round((width - plan.size[1]) / 2)
        images = take_rows(graph, images, np.arange(top, top + plan.size[0]), height)
        return take_columns(graph, images, np.arange(left, left + plan.size[1]), width)


@dataclass(frozen=True)
class ModelPlan:
    """What goes into the model."""

    views: ViewPlan
    input: ImageInput
    classes: int
    output: Output = "probabilities"

    @property
    def views_at_once(self) -> int:
        """How many views go through the network together, at most."""
        fits = _NETWORK_PIXELS // self.input.network.pixels
        return min(_MOST_VIEWS, max(_LEAST_VIEWS, fits))

    @property
    def images_at_once(self) -> int:
        """How many images' views are made together, at most."""
        enough = self.views_at_once // len(self.views.views)
        return max(1, enough, _VIEW_PIXELS // self.input.network.pixels)


def build_model(
    plan: ModelPlan, predictor: Predictor, example: Tensor, networks: Networks | None = None
) -> Any:
    """Return the whole model; `example` are images `[n, c, h, w]` as the network takes them.

    `networks` holds those that an earlier model was built of, of the same predictor.

    A loop makes the views of some images at a time, so that memory stays bounded; one inside it
    takes them through the network, which the file holds once, as many together as it is fast with.
    """
    known = networks or Networks(example)

    def predict(body: Graph, images: str) -> str:
        return _predictions(body, plan, predictor, known, images)

    graph = Graph()
    result = _in_parts(graph, IMAGES, plan.images_at_once, plan.classes, predict)
    graph.name_output(result, plan.output)
    outputs = [graph.described(plan.output, np.float32, ["n", plan.classes])]
    if plan.views.sets is not None:
        shares = result if plan.output == "probabilities" else graph.add("Softmax", result, axis=-1)
        graph.name_output(_write_sets(graph, shares, plan.views.sets, plan.classes), SET)
        outputs.append(graph.described(SET, np.bool_, ["n", plan.classes]))
    images = graph.described(IMAGES, np.uint8, plan.input.dimensions)
    proto = graph.proto("relook", [images], outputs)
    return as_model(proto, list(known.models.values()))


def build_views(plan: ModelPlan) -> Any:
    """Return a model of the views alone: output `views`, uint8 `[view · n, c, h, w]`."""
    graph = Graph()
    graph.name_output(_views(graph, plan, IMAGES), "views")
    shape = plan.input.network
    dimensions: list[int | str] = ["views", shape.channels, shape.height, shape.width]
    proto = graph.proto(
        "views",
        [graph.described(IMAGES, np.uint8, plan.input.dimensions)],
        [graph.described("views", np.uint8, dimensions)],
    )
    return as_model(proto, [])


def _in_parts(
    graph: Graph, value: str, most: int, columns: int, work: Callable[[Graph, str], str]
) -> str:
    """Append a loop over parts of a value's first dimension, equally long and at most `most`.

    `work` appends what makes float32 `[length, columns]` of a part.
    """
    count = graph.add("Slice", graph.add("Shape", value), np.array([0]), np.array([1]))
    times = _divided_up(graph, count, np.array([most]))
    size = _divided_up(graph, count, graph.add("Max", times, np.array([1])))

    def next_part(body: Graph, turn: str, so_far: str) -> str:
        start = body.add("Mul", turn, size)
        part = body.add("Slice", value, start, body.add("Add", start, size), np.array([0]))
        return body.add("Concat", so_far, work(body, part), axis=0)

    none = np.zeros((0, columns), np.float32)
    return graph.loop(graph.add("Squeeze", times), none, next_part)


def _divided_up(graph: Graph, count: str, by: Value) -> str:
    """Append a division of whole numbers that rounds up."""
    more = graph.add("Add", count, graph.add("Sub", by, np.array([1])))
    return graph.add("Div", more, by)


def _predictions(
    graph: Graph, plan: ModelPlan, predictor: Predictor, networks: Networks, images: str
) -> str:
    """Append everything from images to calibrated predictions `[n, class]`."""

    def predict(body: Graph, views: str) -> str:
        return networks.write(body, predictor, views, plan.views.policy.view_temperature)

    views = _views(graph, plan, images)
    probabilities = _in_parts(graph, views, plan.views_at_once, plan.classes, predict)
    counts = np.array(plan.views.counts, np.float64)
    shape = np.array([len(counts), -1, plan.classes])
    by_view = graph.add("Reshape", probabilities, shape)
    shares = (counts / counts.sum()).astype(np.float32)[:, None, None]
    # The floor of each view keeps the sum above e^−88, which float32 holds: no log is lost.
    mean = graph.add("ReduceSum", graph.add("Mul", by_view, shares), np.array([0]), keepdims=0)
    log_probs = graph.add("Clip", graph.add("Log", mean), np.float32(LOG_FLOOR))
    scaled = graph.add("Div", log_probs, np.float32(plan.views.temperature))
    if plan.output == "logits":
        return scaled
    return graph.add("Softmax" if plan.output == "probabilities" else "LogSoftmax", scaled, axis=-1)


def _views(graph: Graph, plan: ModelPlan, images: str) -> str:
    """Append all distinct views, one after another: `[view · n, c, h, w]`."""
    given, subpolicies = plan.input, [view.subpolicy for view in plan.views.views]
    if given.layout == "nhwc":
        images = graph.add("Transpose", images, perm=[0, 3, 1, 2])
    if given.preparation is None or not given.takes_photos:
        prepared = given.write(graph, images)
        views = [write_view(graph, prepared, sub, given.network) for sub in subpolicies]
    else:
        photos = open_photos(graph, images, given.preparation)
        views = [_write_photo_view(photos, sub) for sub in subpolicies]
    return graph.add("Concat", *views, axis=0)


def write_view(graph: Graph, images: str, subpolicy: SubPolicy, shape: Shape) -> str:
    """Append one view of uint8 images `[n, c, h, w]`; returns its name."""
    with naming_steps(subpolicy):
        return write_steps(graph, images, fixed_steps(subpolicy), shape)


def _write_photo_view(photos: Photos, subpolicy: SubPolicy) -> str:
    """Append one view of photos; returns its name."""
    with naming_steps(subpolicy):
        images, steps = cut_view(photos, fixed_steps(subpolicy))
        return write_steps(photos.graph, images, steps, photos.shape)


def _write_sets(graph: Graph, probabilities: str, rule: SetRule, classes: int) -> str:
    """Append `SetRule.sets`: which classes are in each image's set, bool `[n, class]`."""
    rule.check_classes(classes)
    limits = np.array(rule.thresholds) + SLACK
    if rule.score == "lac":  # not 1 − p, which has fewer digits
        return graph.add("GreaterOrEqual", probabilities, (1 - limits).astype(np.float32))
    every = np.array([classes])
    ranked, order = graph.add_several("TopK", probabilities, every, outputs=2, axis=1)
    above = graph.add("CumSum", ranked, np.array(1), exclusive=1)
    if rule.score == "raps":
        late = np.maximum(np.arange(1, classes + 1) - rule.free, 0)
        above = graph.add("Add", above, (rule.penalty * late).astype(np.float32))
    scores = graph.add("ScatterElements", above, order, above, axis=1)
    return graph.add("LessOrEqual", scores, limits.astype(np.float32))
