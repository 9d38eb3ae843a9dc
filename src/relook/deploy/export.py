"""`relook.export`: one file that holds views, network, average and temperature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from torch import Tensor

from relook.deploy.export_record import Export, Job, metadata, write_file
from relook.deploy.onnx.check import as_network_takes, check_model, generated_images
from relook.deploy.onnx.model import ImageInput, Layout, ModelPlan, Output, build_model
from relook.deploy.onnx.moves import Shape
from relook.deploy.onnx.writer import set_metadata, to_bytes
from relook.deploy.plan import TemperatureChoice, plan_views
from relook.deploy.torch_program import write_program
from relook.errors import RelookError, unknown_name
from relook.foundation.watchdog import watched
from relook.models import EnsemblePredictor, Predictor, as_predictor
from relook.models.base import InputSpec, input_of
from relook.models.options import USUAL_CROP
from relook.policy import Policy
from relook.transforms.centre_crop import Plan
from relook.transforms.checks import check_images

Format = Literal["onnx", "torch-export"]
TOLERANCE = 1e-4
"""How far an exported model's probabilities may be from relook's own."""

_CHECKED = 16


@dataclass(frozen=True)
class Wanted:
    """What a caller says about the file; None leaves it to model and images."""

    output: Output
    layout: Layout
    size: tuple[int, int] | None
    channels: int | None
    resize_from: tuple[int, int] | None

    def __post_init__(self) -> None:
        for kind, value, known in (
            ("output", self.output, get_args(Output)),
            ("layout", self.layout, get_args(Layout)),
        ):
            if value not in known:
                raise unknown_name(kind, value, known)


def export(
    model: object,
    policy: Policy | str | Path,
    path: str | Path,
    *,
    views: int | None = None,
    temperature: TemperatureChoice = "policy",
    output: Output = "probabilities",
    format: Format = "onnx",
    layout: Layout = "nchw",
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    resize_from: tuple[int, int] | None = None,
    classes: Sequence[str] | None = None,
    images: Tensor | None = None,
    seed: int | None = None,
    tolerance: float = TOLERANCE,
    **model_options: Any,
) -> Export:
    """Write a model with its policy as one file, checked against relook's own predictions.

    The file takes uint8 images, any number of them, and returns `output` `[n, class]`. `model`
    and `model_options` are as for `relook.TTA`; so are `views`, `temperature` and `seed`: a
    policy of fresh draws is frozen. `size` (height, width) and `channels` are the network's,
    where it does not tell; `resize_from` (height, width) is the images' own size, from which the
    file brings them to the network's. `images` (uint8 `[n, c, h, w]`, as the file takes them)
    are what is checked on, generated ones if None. Nothing is written if probabilities differ by
    more than `tolerance`.
    """
    if format not in WRITERS:
        raise unknown_name("format", format, WRITERS)
    predictor = as_predictor(model, **model_options)
    side = (size, size) if isinstance(size, int) else size
    wanted = Wanted(output, layout, side, channels, resize_from)
    plan = plan_views(policy, views, temperature, seed=seed)
    given = image_input(predictor, wanted, images)
    checked_on = _images_to_check(given, images)
    example = as_network_takes(checked_on, given)
    with watched(lambda: "an image, before the export"):
        count = int(predictor(example[:1]).shape[1])
    whole = ModelPlan(plan, given, count, output)
    job = Job(
        whole, predictor, checked_on, images is None, _names(classes, count), Path(path), tolerance
    )
    return WRITERS[format](job)


def image_input(predictor: Predictor, wanted: Wanted, images: Tensor | None) -> ImageInput:
    """Decide what images the file takes, from what is said, the model, and the images given."""
    spec = input_of(predictor)
    shape = None if images is None else tuple(images.shape)
    size = wanted.size or (None if spec is None else spec.size)
    if size is None and shape is not None and wanted.resize_from is None:
        size = shape[2], shape[3]
    if size is None:
        raise RelookError("the model does not tell the size of its images: say size, as 224")
    channels = wanted.channels or _channels(predictor) or (None if shape is None else shape[1])
    if channels is None:
        raise RelookError("the model does not tell its images' channels: say channels, 1 or 3")
    network = Shape(channels, *size)
    if wanted.resize_from is None or wanted.resize_from == size:
        return ImageInput(network, network, wanted.layout)
    source = Shape(channels, *wanted.resize_from)
    spec = spec or InputSpec(size, crop=USUAL_CROP)
    plan = Plan(size, spec.crop, channels, spec.interpolation)
    return ImageInput(source, network, wanted.layout, plan)


def _write_onnx(job: Job) -> Export:
    plan, images = job.plan, job.images
    model = build_model(plan, job.predictor, as_network_takes(images, plan.input))
    check = check_model(
        to_bytes(model),
        plan,
        job.predictor,
        images,
        generated=job.generated,
        tolerance=job.tolerance,
    )
    set_metadata(model, metadata(job, check))
    return write_file(job, to_bytes(model), check)


def _images_to_check(given: ImageInput, images: Tensor | None) -> Tensor:
    if images is None:
        return generated_images(given.source)
    check_images(images)
    chosen = images[:_CHECKED].cpu()
    source = given.source
    if tuple(chosen.shape[1:]) != (source.channels, source.height, source.width) or not len(chosen):
        raise RelookError(
            f"expected images of {source.channels}×{source.height}×{source.width} to check on, as "
            f"the file takes; got {list(images.shape)}"
        )
    return chosen


def _channels(predictor: Predictor) -> int | None:
    """Return how many channels a predictor's images have, where it tells."""
    if isinstance(predictor, EnsemblePredictor):
        return next(filter(None, map(_channels, predictor.members)), None)
    spec = input_of(predictor)
    if spec is not None and spec.channels is not None:
        return spec.channels
    for values in getattr(predictor, "normalisation", None) or ():
        if isinstance(values, tuple):
            return len(values)
    return None


def _names(classes: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    if classes is None:
        return None
    if len(classes) != count:
        raise RelookError(f"expected a name for each of {count} classes, got {len(classes)}")
    return tuple(map(str, classes))


WRITERS: MappingProxyType[str, Callable[[Job], Export]] = MappingProxyType(
    {"onnx": _write_onnx, "torch-export": write_program}
)
"""What writes each format, by name."""
