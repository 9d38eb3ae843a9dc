"""One ONNX model of a policy: views, network, average and temperature in a single graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from relook.deploy.tta.view_plan import Output, ViewPlan
from relook.errors import RelookError
from relook.foundation.wording import first_line
from relook.models import EnsemblePredictor, Predictor, TorchPredictor
from relook.models.base import Outputs
from relook.models.onnx_file import OnnxFilePredictor
from relook.models.onnx_runtime import INPUT, OUTPUT, export_network
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
"""What input and prediction sets are called; the first output is called by what it is."""

OPSET = 17
"""Known to ONNX Runtime for years (tried from 1.16 on); a network of a later one keeps its own."""
IR_VERSION = 8
LARGEST_FILE = 2**31 - 1
"""What a protobuf file can hold, in bytes."""

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
    graph, known = Graph(), networks or Networks(example)
    result = _in_parts(
        graph,
        IMAGES,
        plan.images_at_once,
        plan.classes,
        lambda body, images: _predictions(body, plan, predictor, known, images),
    )
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
    graph, shape = Graph(), plan.input.network
    graph.name_output(_views(graph, plan, IMAGES), "views")
    images = graph.described(IMAGES, np.uint8, plan.input.dimensions)
    views = graph.described("views", np.uint8, ["views", shape.channels, shape.height, shape.width])
    return as_model(graph.proto("views", [images], [views]), [])


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
    kappa, views = plan.views.policy.view_temperature, _views(graph, plan, images)
    probabilities = _in_parts(
        graph,
        views,
        plan.views_at_once,
        plan.classes,
        lambda body, part: networks.write(body, predictor, part, kappa),
    )
    counts = np.array(plan.views.counts, np.float64)
    by_view = graph.add("Reshape", probabilities, np.array([len(counts), -1, plan.classes]))
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


@dataclass(frozen=True)
class Networks:
    """Predictors' graphs, each exported or read once; `example` shows what images they get."""

    example: Tensor
    models: dict[int, Any] = field(default_factory=dict)

    def write(
        self, graph: Graph, predictor: Predictor, views: str, view_temperature: float = 1.0
    ) -> str:
        """Append a predictor: uint8 views `[n, c, h, w]` in, float32 probabilities out.

        An ensemble is one model: its probabilities are the mean of its members', and that mean
        is what the view temperature changes.
        """
        if isinstance(predictor, EnsemblePredictor):
            parts = [self.write(graph, member, views) for member in predictor.members]
            mean = graph.add("Mean", *parts)
            if view_temperature == 1:
                return mean
            return _tempered(graph, graph.add("Log", mean), view_temperature)
        if isinstance(predictor, TorchPredictor):
            _check_precision(predictor)
            results = graph.embed(self._model(predictor), {INPUT: views}, OUTPUT)
        elif isinstance(predictor, OnnxFilePredictor):
            results = self._write_file(graph, predictor, views)
        else:
            raise RelookError(
                f"expected a network to export, got a {type(predictor).__name__}: give a torch "
                "module, or a model of timm:, hf:, cifar:, torch:, small@ or onnx:"
            )
        return _probabilities(graph, results, predictor.outputs, view_temperature)

    def _write_file(self, graph: Graph, predictor: OnnxFilePredictor, views: str) -> str:
        takes = predictor.takes
        if takes.batch is not None:
            raise RelookError(
                f"{predictor.file}: expected a network that takes any number of images, got one "
                f"for batches of {takes.batch}: export it with a free batch size"
            )
        inputs = views
        if takes.dtype != torch.uint8:
            inputs = _normalised(graph, views, predictor)
            if takes.dtype == torch.float16:
                inputs = graph.cast(inputs, np.float16)
        if takes.layout == "nhwc":
            inputs = graph.add("Transpose", inputs, perm=[0, 2, 3, 1])
        return graph.embed(self._model(predictor), {takes.name: inputs}, predictor.output)

    def _model(self, predictor: TorchPredictor | OnnxFilePredictor) -> Any:
        if id(predictor) not in self.models:
            self.models[id(predictor)] = (
                import_onnx().load_model_from_string(export_network(predictor, self.example))
                if isinstance(predictor, TorchPredictor)
                else _load_network(predictor.file)
            )
        return self.models[id(predictor)]


def _check_precision(predictor: TorchPredictor) -> None:
    for parameter in predictor.module.parameters():
        if parameter.is_floating_point() and parameter.dtype != torch.float32:
            raise RelookError(
                f"expected a network of float32 weights to export, got {parameter.dtype}: export "
                "network.float(), with the policy calibrated for it"
            )


def _normalised(graph: Graph, views: str, predictor: OnnxFilePredictor) -> str:
    mean, std = (np.reshape(v, (1, -1, 1, 1)) for v in predictor.normalisation or (0.0, 1.0))
    scaled = graph.add("Mul", graph.cast(views, np.float32), (1 / (255 * std)).astype(np.float32))
    return graph.add("Add", scaled, (-mean / std).astype(np.float32))


def _probabilities(graph: Graph, results: str, outputs: Outputs, view_temperature: float) -> str:
    """Append what relook makes of a model's outputs: probabilities with a floor of e^−80."""
    values = graph.cast(results, np.float32)
    if outputs == "probabilities":
        total = graph.add("ReduceSum", values, np.array([-1]), keepdims=1)
        log_probs = graph.add("Log", graph.add("Div", values, total))
    else:
        log_probs = graph.add("LogSoftmax", values, axis=-1)
    floored = graph.add("Clip", log_probs, np.float32(LOG_FLOOR))
    if view_temperature == 1:
        return graph.add("Exp", floored)
    return _tempered(graph, floored, view_temperature)


def _tempered(graph: Graph, log_probs: str, view_temperature: float) -> str:
    """Append `Policy.tempered`, as probabilities."""
    scaled = graph.add("Div", log_probs, np.float32(view_temperature))
    return graph.add("Softmax", scaled, axis=-1)


def as_model(graph: Any, networks: Sequence[Any]) -> Any:
    """Return a graph as a model, with the operators and functions of the networks inside it."""
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


def set_metadata(model: Any, entries: Mapping[str, str]) -> None:
    """Write texts by key into a model, in the place of those that it has."""
    import_onnx().helper.set_model_props(model, dict(entries))


def to_bytes(model: Any) -> bytes:
    """Return a model as the bytes of a file; one above 2 GB is refused."""
    size = sum(len(one.raw_data) for graph in _graphs(model.graph) for one in graph.initializer)
    if size < LARGEST_FILE:
        data: bytes = model.SerializeToString()
        if len(data) <= LARGEST_FILE:
            return data
    raise RelookError(
        f"expected a model of at most 2 GB, what one ONNX file can hold; got {size / 1e9:.1f} GB: "
        "export with format torch-export, or a network of half precision"
    )


def _load_network(path: Path) -> Any:
    """Read an ONNX file with its weights, brought to the export's operators if it is older."""
    onnx = import_onnx()
    try:
        model = onnx.load(path)
        version = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
        return model if version >= OPSET else onnx.version_converter.convert_version(model, OPSET)
    except Exception as error:  # protobuf's and the converter's own classes
        raise RelookError(
            f"{path}: cannot be brought to ONNX opset {OPSET}: {first_line(error)}; export the "
            f"network with opset {OPSET} or later"
        ) from error


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
