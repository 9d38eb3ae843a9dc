"""`relook.export`: one file that holds views, network, average and temperature."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from relook.data import as_images
from relook.deploy.calibrate import other_network_note
from relook.deploy.onnx.check import (
    Check,
    as_network_takes,
    as_probabilities,
    check_model,
    compare,
    generated_images,
    generated_photos,
    own_predictions,
)
from relook.deploy.onnx.model import (
    ImageInput,
    Layout,
    ModelPlan,
    build_model,
    set_metadata,
    to_bytes,
)
from relook.deploy.tta import TTA
from relook.deploy.tta.images import Photos, as_photos, preparation_for
from relook.deploy.tta.view_plan import Output, TemperatureChoice, plan_views
from relook.errors import RelookError, unknown_name, warn
from relook.evaluation.latency import milliseconds
from relook.foundation.memory import size_text
from relook.foundation.watchdog import watched
from relook.foundation.wording import at_view_temperature, count, first_line, views_text
from relook.io.files import one_line, write_bytes_atomic
from relook.io.identities import UNKNOWN
from relook.models import Predictor, TorchPredictor, as_predictor
from relook.models.base import input_of
from relook.models.predictors import channels_of
from relook.policy import Policy
from relook.policy.file import policy_to_json
from relook.transforms.centre_crop import CentreCrop, resized_size
from relook.transforms.checks import check_images
from relook.transforms.full_images import FullImages
from relook.transforms.onnx.graph import Shape
from relook.transforms.onnx.photos import INTERPOLATIONS
from relook.version import __version__

Format = Literal["onnx", "torch-export"]
TOLERANCE = 1e-4
"""How far an exported model's probabilities may be from relook's own."""

_CHECKED = 16


@dataclass(frozen=True)
class FileForm:
    """What a file is, takes and returns; None leaves it to model and images.

    It takes uint8 images in a `layout`, any number of them, and returns `output` `[n, class]`.
    `size` (height, width) and `channels` are the network's, where it does not say;
    `resize_from` (height, width) is the images' own size, from which the file brings them to the
    network's: as the policy's search did, unless `crop` says which share the centre crop keeps.
    With `full_size` it takes photos of any size, one size per call, and cuts crops from them; None
    does so in an ONNX file of a policy that was searched in this way, without `resize_from`.
    """

    format: Format = "onnx"
    output: Output = "probabilities"
    layout: Layout = "nchw"
    size: int | tuple[int, int] | None = None
    channels: int | None = None
    resize_from: tuple[int, int] | None = None
    crop: float | None = None
    full_size: bool | None = None

    def __post_init__(self) -> None:
        for name, known in (("format", Format), ("output", Output), ("layout", Layout)):
            if getattr(self, name) not in get_args(known):
                raise unknown_name(name, getattr(self, name), get_args(known))
        if self.full_size and self.resize_from is not None:
            raise RelookError("photos of any size have no one size: leave resize_from out")


@dataclass(frozen=True)
class ExportJob:
    """What to write where, and the images (as the file takes them) to check it on."""

    plan: ModelPlan
    predictor: Predictor
    images: Tensor | FullImages
    generated: bool
    classes: tuple[str, ...] | None
    path: Path
    tolerance: float


@dataclass(frozen=True)
class FileLatency:
    """What a call of the file takes here, in milliseconds (a median), and what it may take."""

    milliseconds: float
    budget: float
    batch: int

    def __str__(self) -> str:
        images = count(self.batch, "image")
        took, budget = milliseconds(self.milliseconds), milliseconds(self.budget)
        return f"{took} for {images} in ONNX Runtime here (median; budget {budget})"


@dataclass(frozen=True)
class Export:
    """What was written, and how far it is from relook's own predictions."""

    path: Path
    nbytes: int
    input: str
    views: int
    temperature: float
    output: Output
    check: Check
    view_temperature: float = 1.0
    latency: FileLatency | None = None

    def __str__(self) -> str:
        timed = "" if self.latency is None else f"; {self.latency}"
        return (
            f"{one_line(str(self.path))}: {size_text(self.nbytes)}; {self.check}{timed}\n"
            f"input: {self.input}\n"
            f"output: {self.output} of {views_text(self.views)} at temperature "
            f"{self.temperature:.4g}{at_view_temperature(self.view_temperature)}"
        )


def export(
    model: object,
    policy: Policy | str | Path,
    path: str | Path,
    *,
    views: int | None = None,
    temperature: TemperatureChoice = "policy",
    seed: int | None = None,
    classes: Sequence[str] | None = None,
    images: Any = None,
    tolerance: float = TOLERANCE,
    **options: Any,
) -> Export:
    """Write a model with its policy as one file, checked against relook's own predictions.

    `model`, `views`, `temperature` and `seed` are as for `relook.TTA`: a policy of fresh draws is
    frozen. `options` are those of `FileForm` (`format`, `output`, `layout`, `size`, `channels`,
    `resize_from`, `crop`, `full_size`), and otherwise the model's, as for `relook.TTA`. `classes`
    are names that go into the file. `images` (of any kind that `relook.search` takes, in the size
    that the file takes, or photos as `relook.TTA` takes them) are what is checked on, generated
    ones if None. Nothing is written if probabilities differ by more than `tolerance`.
    """
    job = export_job(
        model,
        policy,
        Path(path),
        views=views,
        temperature=temperature,
        seed=seed,
        classes=classes,
        images=images,
        tolerance=tolerance,
        **options,
    )
    return WRITERS[options.get("format", FileForm.format)](job)


def export_job(
    model: object,
    policy: Policy | str | Path,
    path: Path,
    *,
    views: int | None = None,
    temperature: TemperatureChoice = "policy",
    seed: int | None = None,
    classes: Sequence[str] | None = None,
    images: Any = None,
    tolerance: float = TOLERANCE,
    **options: Any,
) -> ExportJob:
    """Return what `export` writes, checked; the keywords are its own."""
    of_file = {one.name for one in fields(FileForm)} & options.keys()
    form = FileForm(**{name: options.pop(name) for name in of_file})
    predictor = as_predictor(model, **options)
    if images is not None and not isinstance(images, Tensor | FullImages | list | tuple):
        images = as_images(images)
    plan = plan_views(policy, views, temperature, seed=seed)
    note = other_network_note(predictor, plan.policy) if temperature == "policy" else None
    if note is not None:
        warn(note)
    given = image_input(predictor, form, images, plan.policy.preparation)
    checked_on = _images_to_check(given, images)
    example = as_network_takes(checked_on, given)
    with watched(lambda: "an image, before the export"):
        outputs = int(predictor(example[:1]).shape[1])
    whole = ModelPlan(plan, given, outputs, form.output)
    names = _names(classes, outputs)
    return ExportJob(whole, predictor, checked_on, images is None, names, path, tolerance)


def image_input(
    predictor: Predictor,
    form: FileForm,
    images: Photos | None,
    searched: CentreCrop | None = None,
) -> ImageInput:
    """Decide what images the file takes, prepared as they were `searched` unless told otherwise."""
    spec = input_of(predictor)
    shape = tuple(images.shape) if isinstance(images, Tensor | FullImages) else None
    size = (form.size, form.size) if isinstance(form.size, int) else form.size
    size = size or (None if spec is None else spec.size)
    if searched is not None and searched.full_size:
        size, shape = size or searched.size, shape or (0, searched.channels)
    if size is None and shape is not None and form.resize_from is None:
        size = shape[2], shape[3]
    if size is None:
        raise RelookError("the model does not say the size of its images: give size, as 224")
    channels = form.channels or channels_of(predictor) or (None if shape is None else shape[1])
    if channels is None:
        raise RelookError("the model does not say its images' channels: give channels, 1 or 3")
    network = Shape(channels, *size)
    plan = preparation_for(size, channels, spec, searched)
    if form.crop is not None:
        plan = replace(plan, crop=form.crop, every=True)
    full = form.full_size
    if full is None:
        full = plan.full_size and form.resize_from is None and form.format == "onnx"
    plan = replace(plan, full_size=full)
    if full:
        if plan.interpolation not in INTERPOLATIONS:
            raise RelookError(
                f"expected interpolation {', '.join(INTERPOLATIONS)} to take photos of any size, "
                f"got {plan.interpolation}: export with full_size=False (--full-size no)"
            )
        return ImageInput(network, network, form.layout, plan)
    if form.resize_from is None or not plan.changes(form.resize_from):
        return ImageInput(network, network, form.layout)
    try:
        resized_size(form.resize_from, plan)
    except (ValueError, OverflowError) as error:
        raise RelookError(f"expected images that can be resized to {plan}: {error}") from None
    return ImageInput(Shape(channels, *form.resize_from), network, form.layout, plan)


def _write_onnx(job: ExportJob) -> Export:
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
    set_metadata(model, _metadata(job, check))
    return _write_file(job, to_bytes(model), check)


def _write_program(job: ExportJob) -> Export:
    """Write a torch.export program, which runs without relook: of a torch network, no resize."""
    given, images = job.plan.input, job.images
    if given.layout != "nchw" or given.preparation is not None or isinstance(images, FullImages):
        raise RelookError(
            "expected layout nchw and no resize with format torch-export, whose programs take "
            "the network's own images, no photos: leave all that out, or export to ONNX"
        )
    if not isinstance(job.predictor, TorchPredictor):
        raise RelookError(
            f"expected a torch network with format torch-export, got a "
            f"{type(job.predictor).__name__}: export to ONNX"
        )
    program = _program(job, images)
    with torch.inference_mode():
        found = as_probabilities(program.module()(images).numpy(), job.plan.output)
    own = own_predictions(job.plan, job.predictor, images)
    check = compare(found, own, job.generated, job.tolerance)
    file = io.BytesIO()
    torch.export.save(program, file, extra_files=_metadata(job, check))
    return _write_file(job, file.getvalue(), check)


def _program(job: ExportJob, images: Tensor) -> Any:
    plan = job.plan
    module = TTA(
        job.predictor,
        plan.views.policy,
        temperature=plan.views.temperature,
        output=plan.output,
        size=(plan.input.network.height, plan.input.network.width),
    ).eval()
    free = {0: torch.export.Dim("n", min=1)}
    example = images if len(images) > 1 else images.repeat(2, 1, 1, 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's hints are for its developers
            return torch.export.export(module, (example,), dynamic_shapes=(free,))
    except Exception as error:  # an exporter meets arbitrary modules, and fails in many ways
        raise RelookError(
            f"torch.export cannot follow the network: {type(error).__name__}: {first_line(error)}"
        ) from error


def _write_file(job: ExportJob, data: bytes, check: Check) -> Export:
    """Write a checked file, whole or not at all, and read it back."""
    write_bytes_atomic(job.path, data)
    if job.path.read_bytes() != data:
        job.path.unlink()
        raise RelookError(f"{one_line(str(job.path))} does not read back as written: removed")
    views = job.plan.views
    described = _describe_input(job.plan.input)
    return Export(
        job.path,
        len(data),
        described,
        len(views.views),
        views.temperature,
        job.plan.output,
        check,
        views.policy.view_temperature,
    )


def _metadata(job: ExportJob, check: Check) -> dict[str, str]:
    """Return what a file says of itself: texts by key, JSON where they have parts."""
    plan = job.plan
    entries: dict[str, object] = {
        "relook_version": __version__,
        # Which images the search saw is nobody's business where the model is served.
        "policy": policy_to_json(replace(plan.views.policy, seen=UNKNOWN)),
        "views": len(plan.views.views),
        "temperature": plan.views.temperature,
        "input": _describe_input(plan.input),
        "output": plan.output,
        "check": asdict(check),
    }
    if job.classes is not None:
        entries["classes"] = list(job.classes)
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in entries.items()
    }


def _describe_input(given: ImageInput) -> str:
    """Say in one line what images a file takes."""
    shape = " × ".join(map(str, given.dimensions))
    text = f"uint8 images {shape}"
    if given.preparation is None:
        return text
    if given.takes_photos:
        plan, colours = given.preparation, "RGB" if given.source.channels == 3 else "grey"
        least = "×".join(str(math.floor(side / plan.crop)) for side in plan.size)
        return (
            f"photos of any size, uint8 {colours} {shape} (one size per call); crops are cut from "
            f"them, plain views are {plan} (resized to at least {least}, {plan.interpolation}, and "
            "the centre cut out)"
        )
    source = given.source.height, given.source.width
    return f"{text}, brought to {given.preparation.described([source])} inside"


def _images_to_check(given: ImageInput, images: Photos | None) -> Tensor | FullImages:
    if given.preparation is not None and given.takes_photos:
        plan = given.preparation
        return generated_photos(plan) if images is None else as_photos(images[:_CHECKED], plan)
    if images is None:
        return generated_images(given.source)
    if not isinstance(images, Tensor):
        images = as_images(images)
    check_images(images)
    chosen = images[:_CHECKED].cpu()
    source = given.source
    if tuple(chosen.shape[1:]) != (source.channels, source.height, source.width) or not len(chosen):
        raise RelookError(
            f"expected images of {source.channels}×{source.height}×{source.width} to check on, as "
            f"the file takes; got {list(images.shape)}"
        )
    return chosen


def _names(classes: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    if classes is None:
        return None
    names = tuple(map(str, classes))
    if len(names) == count:
        return names
    if names == tuple(map(str, range(len(names)))):  # the labels' own, which may not have all
        return None
    raise RelookError(f"expected a name for each of {count} classes, got {len(names)}")


WRITERS: MappingProxyType[str, Callable[[ExportJob], Export]] = MappingProxyType(
    {"onnx": _write_onnx, "torch-export": _write_program}
)
"""What writes each format, by name."""
