"""A TTA module as a torch.export program: a `.pt2` file that runs without relook."""

from __future__ import annotations

import io
import warnings
from typing import Any

import torch
from torch import Tensor

from relook.deploy.export.record import Export, ExportJob, metadata, write_file
from relook.deploy.onnx.check import as_probabilities, compare, own_predictions
from relook.deploy.tta import TTA
from relook.errors import RelookError
from relook.foundation.wording import first_line
from relook.models import TorchPredictor
from relook.transforms.full_images import FullImages


def write_program(job: ExportJob) -> Export:
    """Export, check and write; only a torch network, uint8 `[n, c, h, w]` and no resize."""
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
    torch.export.save(program, file, extra_files=metadata(job, check))
    return write_file(job, file.getvalue(), check)


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
