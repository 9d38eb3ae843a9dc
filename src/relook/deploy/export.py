"""`relook.export`: views, network, average and temperature in one file."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from relook.data import as_images
from relook.deploy.calibrate import other_network_note
from relook.deploy.file_form import FileForm, Format, image_input
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
from relook.deploy.onnx.model import ImageInput, ModelPlan, build_model, to_bytes
from relook.deploy.tta import TTA
from relook.deploy.tta.images import Photos, as_photos
from relook.deploy.tta.view_plan import Output, TemperatureChoice, plan_views
from relook.errors import RelookError, warn
from relook.evaluation.latency import milliseconds
from relook.foundation.memory import size_text
from relook.foundation.watchdog import watched
from relook.foundation.wording import at_view_temperature, count, first_line, views_text
from relook.io.files import one_line, write_bytes_atomic
from relook.io.identities import UNKNOWN
from relook.models import Predictor, TorchPredictor, as_predictor
from relook.policy import Policy
from relook.policy.file import policy_to_json
from relook.transforms.checks import check_images
from relook.transforms.full_images import FullImages
from relook.transforms.onnx.graph import import_onnx
from relook.version import __version__

TOLERANCE = 1e-4
"""The largest allowed difference between an exported model's probabilities and relook's own."""

_CHECKED = 16  # of the images given, for the check


@dataclass(frozen=True)
class ExportJob:
    """The contents of a file, and images in the form that it takes, to check it on."""

    plan: ModelPlan
    format: Format
    predictor: Predictor
    images: Tensor | FullImages
    generated: bool
    classes: tuple[str, ...] | None
    tolerance: float


@dataclass(frozen=True)
class FileLatency:
    """The median time of a call of the file on this machine, and its limit, in milliseconds."""

    milliseconds: float
    budget: float
    batch: int

    def __str__(self) -> str:
        images = count(self.batch, "image")
        took, budget = milliseconds(self.milliseconds), milliseconds(self.budget)
        return f"{took} for {images} in ONNX Runtime here (median; budget {budget})"


@dataclass(frozen=True)
class Export:
    """The file that was written, and its difference from relook's own predictions."""

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
    `resize_from`, `crop`, `full_size`), and the model's, as for `relook.TTA`. `classes` are stored
    in the file as names. The check uses `images` (of any kind that `relook.search` takes, in the
    size that the file takes, or photos as `relook.TTA` takes them), or generated ones if None.
    Nothing is written if probabilities differ by more than `tolerance`.
    """
    job = export_job(
        model,
        policy,
        views=views,
        temperature=temperature,
        seed=seed,
        classes=classes,
        images=images,
        tolerance=tolerance,
        **options,
    )
    return WRITERS[job.format](job, Path(path))


def export_job(
    model: object,
    policy: Policy | str | Path,
    *,
    views: int | None = None,
    temperature: TemperatureChoice = "policy",
    seed: int | None = None,
    classes: Sequence[str] | None = None,
    images: Any = None,
    tolerance: float = TOLERANCE,
    **options: Any,
) -> ExportJob:
    """Check the arguments of `export`, and return what it writes."""
    form_names = {field.name for field in fields(FileForm)} & options.keys()
    form = FileForm(**{name: options.pop(name) for name in form_names})
    predictor = as_predictor(model, **options)
    if images is not None and not isinstance(images, Tensor | FullImages | list | tuple):
        images = as_images(images)
    plan = plan_views(policy, views, temperature, seed=seed)
    note = other_network_note(predictor, plan.policy) if temperature == "policy" else None
    if note is not None:
        warn(note)
    given = image_input(predictor, form, images, plan.policy.preparation)
    to_check = _images_to_check(given, images)
    example = as_network_takes(to_check, given)
    with watched(lambda: "an image, before the export"):
        outputs = int(predictor(example[:1]).shape[1])
    return ExportJob(
        plan=ModelPlan(plan, given, outputs, form.output),
        format=form.format,
        predictor=predictor,
        images=to_check,
        generated=images is None,
        classes=_class_names(classes, outputs),
        tolerance=tolerance,
    )


def _write_onnx(job: ExportJob, path: Path) -> Export:
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
    import_onnx().helper.set_model_props(model, _metadata(job, check))
    return _write_file(job, path, to_bytes(model), check)


def _write_program(job: ExportJob, path: Path) -> Export:
    """Write a torch.export program, which runs without relook."""
    given, images = job.plan.input, job.images
    if given.layout != "nchw" or given.preparation is not None or isinstance(images, FullImages):
        raise RelookError(
            "expected layout nchw and no resize with format torch-export, whose programs take "
            "the network's own images, no photos: leave these options out, or export to ONNX"
        )
    if not isinstance(job.predictor, TorchPredictor):
        raise RelookError(
            f"expected a torch network with format torch-export, got a "
            f"{type(job.predictor).__name__}: export to ONNX"
        )
    program = _export_program(job, images)
    with torch.inference_mode():
        found = as_probabilities(program.module()(images).numpy(), job.plan.output)
    own = own_predictions(job.plan, job.predictor, images)
    check = compare(found, own, job.generated, job.tolerance)
    file = io.BytesIO()
    torch.export.save(program, file, extra_files=_metadata(job, check))
    return _write_file(job, path, file.getvalue(), check)


def _export_program(job: ExportJob, images: Tensor) -> Any:
    plan = job.plan
    module = TTA(
        job.predictor,
        plan.views.policy,
        temperature=plan.views.temperature,
        output=plan.output,
        size=(plan.input.network.height, plan.input.network.width),
    ).eval()
    any_number = {0: torch.export.Dim("n", min=1)}
    example = images if len(images) > 1 else images.repeat(2, 1, 1, 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's hints are for its developers
            return torch.export.export(module, (example,), dynamic_shapes=(any_number,))
    except Exception as error:  # an exporter meets arbitrary modules, and fails in many ways
        raise RelookError(
            f"torch.export cannot follow the network: {type(error).__name__}: {first_line(error)}"
        ) from error


def _write_file(job: ExportJob, path: Path, data: bytes, check: Check) -> Export:
    """Write a checked file, whole or not at all, and read it back."""
    write_bytes_atomic(path, data)
    if path.read_bytes() != data:
        path.unlink()
        raise RelookError(f"{one_line(str(path))} does not read back as written: removed")
    views = job.plan.views
    return Export(
        path=path,
        nbytes=len(data),
        input=str(job.plan.input),
        views=len(views.views),
        temperature=views.temperature,
        output=job.plan.output,
        check=check,
        view_temperature=views.policy.view_temperature,
    )


def _metadata(job: ExportJob, check: Check) -> dict[str, str]:
    """Return a file's metadata: texts by key, as JSON unless they are plain text."""
    plan = job.plan
    entries: dict[str, object] = {
        "relook_version": __version__,
        # Whoever gets the model need not learn which images the search saw.
        "policy": policy_to_json(replace(plan.views.policy, seen=UNKNOWN)),
        "views": len(plan.views.views),
        "temperature": plan.views.temperature,
        "input": str(plan.input),
        "output": plan.output,
        "check": asdict(check),
    }
    if job.classes is not None:
        entries["classes"] = list(job.classes)
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in entries.items()
    }


def _images_to_check(given: ImageInput, images: Photos | None) -> Tensor | FullImages:
    plan = given.photo_plan
    if plan is not None:
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


def _class_names(classes: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    if classes is None:
        return None
    names = tuple(map(str, classes))
    if len(names) == count:
        return names
    if names == tuple(map(str, range(len(names)))):  # numbers for labels that lack some classes
        return None
    raise RelookError(f"expected a name for each of {count} classes, got {len(names)}")


WRITERS: MappingProxyType[Format, Callable[[ExportJob, Path], Export]] = MappingProxyType(
    {"onnx": _write_onnx, "torch-export": _write_program}
)
