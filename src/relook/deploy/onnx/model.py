"""One ONNX model of a policy: views, network, average and temperature in a single graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from relook.deploy.onnx.networks import Networks
from relook.deploy.tta.view_plan import Output, ViewPlan
from relook.errors import RelookError
from relook.models import Predictor
from relook.models.onnx_runtime import OPSET
from relook.numerics.calibration import LOG_FLOOR
from relook.numerics.conformal import SLACK, SetRule
from relook.policy import SubPolicy
from relook.policy.views import fixed_steps, naming_steps
from relook.transforms.centre_crop import CentreCrop, resized_size
from relook.transforms.onnx.geometry import resize, take_columns, take_rows
from relook.transforms.onnx.graph import Graph, Shape, Value, import_onnx
from relook.transforms.onnx.photos import Photos, cut_view, open_photos
from relook.transforms.onnx.views import write_steps
from relook.transforms.resampling import Box

Layout = Literal["nchw", "nhwc"]

IMAGES, SET = "images", "set"
"""Names of the input and of the prediction sets; the first output is named after its kind."""

IR_VERSION = 8
LARGEST_FILE = 2**31 - 1
"""The limit of a protobuf file, in bytes."""

# Views in one run of the network: more are no faster, and take memory.
_MOST_VIEWS = 32
_LEAST_VIEWS = 8
_NETWORK_PIXELS = 1 << 19
# Pixels of views made at once: with fewer, ONNX Runtime runs most steps in a single thread; with
# more, the values between the steps no longer fit into the caches.
_VIEW_PIXELS = 1 << 15


@dataclass(frozen=True)
class ImageInput:
    """The images that a model takes: uint8, of the `source` shape, in a layout.

    `preparation` brings them to the network's shape, if the source differs from it. With its
    `full_size` the images are photos of any height and width, one shape per call.
    """

    source: Shape
    network: Shape
    layout: Layout = "nchw"
    preparation: CentreCrop | None = None

    @property
    def photo_plan(self) -> CentreCrop | None:
        """How views are cut from photos; None if the images have one fixed size."""
        plan = self.preparation
        return plan if plan is not None and plan.full_size else None

    @property
    def dimensions(self) -> list[int | str]:
        """The input's dimensions; the number of images is free."""
        one = self.source
        sides: list[int | str] = [one.height, one.width]
        if self.photo_plan is not None:
            sides = ["height", "width"]
        return ["n", *sides, one.channels] if self.layout == "nhwc" else ["n", one.channels, *sides]

    def __str__(self) -> str:
        shape = " × ".join(map(str, self.dimensions))
        text = f"uint8 images {shape}"
        if self.preparation is None:
            return text
        plan = self.photo_plan
        if plan is None:
            source = self.source.height, self.source.width
            return f"{text}, brought to {self.preparation.described([source])} inside"
        colours = "RGB" if self.source.channels == 3 else "grey"
        least = "×".join(str(math.floor(side / plan.crop)) for side in plan.size)
        return (
            f"photos of any size, uint8 {colours} {shape} (one size per call); crops are cut from "
            f"them, plain views are {plan} (resized to at least {least}, {plan.interpolation}, and "
            "the centre cut out)"
        )

    def write_preparation(self, graph: Graph, images: str) -> str:
        """Append the resize and centre crop to the network's size; images and result nchw."""
        if self.preparation is None:
            return images
        source, plan = self.source, self.preparation
        height, width = resized_size((source.height, source.width), plan)
        whole = Box(0, 0, source.width, source.height)
        images = resize(graph, images, source, whole, (height, width), plan.interpolation)
        top, left = round((height - plan.size[0]) / 2), round((width - plan.size[1]) / 2)
        images = take_rows(graph, images, np.arange(top, top + plan.size[0]), height)
        return take_columns(graph, images, np.arange(left, left + plan.size[1]), width)


@dataclass(frozen=True)
class ModelPlan:
    """The contents of an exported model, besides the network."""

    views: ViewPlan
    input: ImageInput
    classes: int
    output: Output = "probabilities"

    @property
    def views_at_once(self) -> int:
        """The most views in one run of the network."""
        fits = _NETWORK_PIXELS // self.input.network.pixels
        return min(_MOST_VIEWS, max(_LEAST_VIEWS, fits))

    @property
    def images_at_once(self) -> int:
        """The most images whose views are made together."""
        enough = self.views_at_once // len(self.views.views)
        return max(1, enough, _VIEW_PIXELS // self.input.network.pixels)


def build_model(
    plan: ModelPlan, predictor: Predictor, example: Tensor, networks: Networks | None = None
) -> Any:
    """Return the whole model; `example` are images `[n, c, h, w]` as the network takes them.

    `networks` are those of an earlier model of the same predictor, to be reused.

    An outer loop makes the views of a few images at a time, to bound memory; an inner loop runs
    the network, which the file holds once, on batches of views.
    """
    graph, networks = Graph(), networks or Networks(example)
    result = _map_in_parts(
        graph,
        IMAGES,
        plan.images_at_once,
        plan.classes,
        lambda body, images: _write_predictions(body, plan, predictor, networks, images),
    )
    graph.name_output(result, plan.output)
    outputs = [graph.described(plan.output, np.float32, ["n", plan.classes])]
    if plan.views.sets is not None:
        shares = result if plan.output == "probabilities" else graph.add("Softmax", result, axis=-1)
        graph.name_output(_write_sets(graph, shares, plan.views.sets, plan.classes), SET)
        outputs.append(graph.described(SET, np.bool_, ["n", plan.classes]))
    images = graph.described(IMAGES, np.uint8, plan.input.dimensions)
    proto = graph.proto("relook", [images], outputs)
    return as_model(proto, list(networks.models.values()))


def build_views(plan: ModelPlan) -> Any:
    """Return a model of the views alone: output `views`, uint8 `[view · n, c, h, w]`."""
    graph, shape = Graph(), plan.input.network
    graph.name_output(_write_views(graph, plan, IMAGES), "views")
    images = graph.described(IMAGES, np.uint8, plan.input.dimensions)
    views = graph.described("views", np.uint8, ["views", shape.channels, shape.height, shape.width])
    return as_model(graph.proto("views", [images], [views]), [])


def _map_in_parts(
    graph: Graph, value: str, most: int, columns: int, work: Callable[[Graph, str], str]
) -> str:
    """Append a loop over parts of a value's first dimension, equally long and at most `most`.

    `work` appends the step from a part to float32 `[length, columns]`.
    """
    count = graph.add("Slice", graph.add("Shape", value), np.array([0]), np.array([1]))
    times = _divide_rounding_up(graph, count, np.array([most]))
    size = _divide_rounding_up(graph, count, graph.add("Max", times, np.array([1])))

    def next_part(body: Graph, turn: str, so_far: str) -> str:
        start = body.add("Mul", turn, size)
        part = body.add("Slice", value, start, body.add("Add", start, size), np.array([0]))
        return body.add("Concat", so_far, work(body, part), axis=0)

    none = np.zeros((0, columns), np.float32)
    return graph.loop(graph.add("Squeeze", times), none, next_part)


def _divide_rounding_up(graph: Graph, count: str, by: Value) -> str:
    """Append a division of whole numbers."""
    more = graph.add("Add", count, graph.add("Sub", by, np.array([1])))
    return graph.add("Div", more, by)


def _write_predictions(
    graph: Graph, plan: ModelPlan, predictor: Predictor, networks: Networks, images: str
) -> str:
    """Append everything from images to calibrated predictions `[n, class]`."""
    kappa, views = plan.views.policy.view_temperature, _write_views(graph, plan, images)
    probabilities = _map_in_parts(
        graph,
        views,
        plan.views_at_once,
        plan.classes,
        lambda body, part: networks.write(body, predictor, part, kappa),
    )
    counts = np.array(plan.views.counts, np.float64)
    by_view = graph.add("Reshape", probabilities, np.array([len(counts), -1, plan.classes]))
    shares = (counts / counts.sum()).astype(np.float32)[:, None, None]
    # Each view's floor keeps the sum above e^−88, within float32's range: the log stays finite.
    mean = graph.add("ReduceSum", graph.add("Mul", by_view, shares), np.array([0]), keepdims=0)
    log_probs = graph.add("Clip", graph.add("Log", mean), np.float32(LOG_FLOOR))
    scaled = graph.add("Div", log_probs, np.float32(plan.views.temperature))
    if plan.output == "logits":
        return scaled
    return graph.add("Softmax" if plan.output == "probabilities" else "LogSoftmax", scaled, axis=-1)


def _write_views(graph: Graph, plan: ModelPlan, images: str) -> str:
    """Append all distinct views, one after another: `[view · n, c, h, w]`."""
    given, subpolicies = plan.input, [view.subpolicy for view in plan.views.views]
    if given.layout == "nhwc":
        images = graph.add("Transpose", images, perm=[0, 3, 1, 2])
    if given.photo_plan is None:
        prepared = given.write_preparation(graph, images)
        views = [write_view(graph, prepared, sub, given.network) for sub in subpolicies]
    else:
        photos = open_photos(graph, images, given.photo_plan)
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
    """Append `SetRule.sets`: whether each class is in an image's set, bool `[n, class]`."""
    rule.check_classes(classes)
    limits = np.array(rule.thresholds) + SLACK
    if rule.score == "lac":  # compare p itself: 1 − p loses digits
        return graph.add("GreaterOrEqual", probabilities, (1 - limits).astype(np.float32))
    every = np.array([classes])
    ranked, order = graph.add_several("TopK", probabilities, every, outputs=2, axis=1)
    above = graph.add("CumSum", ranked, np.array(1), exclusive=1)
    if rule.score == "raps":
        late = np.maximum(np.arange(1, classes + 1) - rule.free, 0)
        above = graph.add("Add", above, (rule.penalty * late).astype(np.float32))
    scores = graph.add("ScatterElements", above, order, above, axis=1)
    return graph.add("LessOrEqual", scores, limits.astype(np.float32))


def as_model(graph: Any, networks: Sequence[Any]) -> Any:
    """Return a graph as a model, with the opsets and functions of the networks inside it."""
    onnx = import_onnx()
    versions = {"": OPSET}
    for network in networks:
        for one in network.opset_import:
            domain = "" if one.domain == "ai.onnx" else one.domain
            versions[domain] = max(versions.get(domain, 0), one.version)
    return onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid(*one) for one in versions.items()],
        ir_version=max([IR_VERSION, *(network.ir_version for network in networks)]),
        functions=[function for network in networks for function in network.functions],
        producer_name="relook",
    )


def to_bytes(model: Any) -> bytes:
    """Return a model as the bytes of a file, which must fit into 2 GB."""
    size = sum(len(one.raw_data) for graph in _graphs(model.graph) for one in graph.initializer)
    if size < LARGEST_FILE:
        data: bytes = model.SerializeToString()
        if len(data) <= LARGEST_FILE:
            return data
    raise RelookError(
        f"expected a model of at most 2 GB, the limit of an ONNX file; got {size / 1e9:.1f} GB: "
        "export with format torch-export, or a network of half precision"
    )


def _graphs(graph: Any) -> list[Any]:
    """Return a graph and those inside its nodes."""
    found = [graph]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found.extend(_graphs(attribute.g))
            for inner in attribute.graphs:
                found.extend(_graphs(inner))
    return found
