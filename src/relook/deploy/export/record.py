"""What an export is made of, and what its file says of itself."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch import Tensor

from relook.deploy.onnx.check import Check
from relook.deploy.onnx.model import ImageInput, ModelPlan, Output
from relook.errors import RelookError
from relook.evaluation.latency import milliseconds
from relook.foundation.memory import size_text
from relook.foundation.wording import at_view_temperature, count, views_text
from relook.io.files import one_line, write_bytes_atomic
from relook.io.identities import UNKNOWN
from relook.models import Predictor
from relook.policy.file import policy_to_json
from relook.transforms.full_images import FullImages
from relook.version import __version__


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
            f"{one_line(str(self.path))}: {size_text(self.nbytes)}, {self.input} in, "
            f"{self.output} of {views_text(self.views)} at temperature {self.temperature:.4g}"
            f"{at_view_temperature(self.view_temperature)} out; {self.check}{timed}"
        )


def write_file(job: ExportJob, data: bytes, check: Check) -> Export:
    """Write a checked file, whole or not at all, and read it back."""
    write_bytes_atomic(job.path, data)
    if job.path.read_bytes() != data:
        job.path.unlink()
        raise RelookError(f"{one_line(str(job.path))} does not read back as written: removed")
    views = job.plan.views
    described = describe_input(job.plan.input)
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


def metadata(job: ExportJob, check: Check) -> dict[str, str]:
    """Return what a file says of itself: texts by key, JSON where they have parts."""
    plan = job.plan
    entries: dict[str, object] = {
        "relook_version": __version__,
        # Which images the search saw is nobody's business where the model is served.
        "policy": policy_to_json(replace(plan.views.policy, seen=UNKNOWN)),
        "views": len(plan.views.views),
        "temperature": plan.views.temperature,
        "input": describe_input(plan.input),
        "output": plan.output,
        "check": asdict(check),
    }
    if job.classes is not None:
        entries["classes"] = list(job.classes)
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in entries.items()
    }


def describe_input(given: ImageInput) -> str:
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
