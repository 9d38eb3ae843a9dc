"""Compares a finished ONNX model with relook itself: views to the byte, and predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.data.image_files import reduce_photos
from relook.data.prepare import from_levels
from relook.deploy.onnx.model import IMAGES, ImageInput, ModelPlan, build_views, to_bytes
from relook.deploy.tta.view_plan import Output
from relook.errors import RelookError
from relook.foundation.wording import first_line
from relook.models import Predictor
from relook.models.onnx_runtime import open_session
from relook.numerics.calibration import temper
from relook.numerics.randomness import uniforms
from relook.transforms.centre_crop import CentreCrop, Levels, centre_view
from relook.transforms.full_images import FullImages, plain_views
from relook.transforms.onnx.graph import Shape

_GENERATED = 8  # images
# Sides of generated photos, as multiples of the input's.
_SIDES = ((1.3, 1.7), (0.6, 0.8), (2.9, 1.4), (1.1, 4.2), (1.0, 1.0), (3.7, 4.4))


@dataclass(frozen=True)
class Check:
    """The largest difference between a model's probabilities and relook's own.

    `byte_equal_views` is true if the views were compared too, and equal to the byte.
    """

    images: int
    generated: bool
    max_difference: float
    tolerance: float
    byte_equal_views: bool = False

    def __str__(self) -> str:
        kind = "generated images" if self.generated else "images"
        views = "views byte-equal and " if self.byte_equal_views else ""
        return (
            f"{views}predictions within {self.max_difference:.1e} of relook's on {self.images} "
            f"{kind}"
        )


def check_model(
    data: bytes,
    plan: ModelPlan,
    predictor: Predictor,
    images: Tensor | FullImages,
    *,
    generated: bool,
    tolerance: float,
) -> Check:
    """Run a model on images in the form that it takes; raise if views or predictions differ."""
    _check_views(plan, images)
    found = as_probabilities(_run(data, plan.output, plan.input, images), plan.output)
    check = compare(found, own_predictions(plan, predictor, images), generated, tolerance)
    return replace(check, byte_equal_views=True)


def compare(
    found: NDArray[np.float64], own: NDArray[np.float64], generated: bool, tolerance: float
) -> Check:
    """Compare probabilities `[n, class]` with relook's own; raise if they differ."""
    difference = float(np.abs(found - own).max())
    if not difference <= tolerance:  # NaN fails too
        raise RelookError(
            f"the exported model differs from relook's own predictions by {difference:.2g} (in "
            f"probability; at most {tolerance:g} is allowed): nothing was written; check that the "
            "network is deterministic and exports faithfully"
        )
    return Check(len(found), generated, difference, tolerance)


def generated_images(shape: Shape) -> Tensor:
    """Return a few images for a check: noise, and blocks of flat colour."""
    side = max(shape.height, shape.width)
    numbers = uniforms(0, image=np.arange(_GENERATED)[:, None], slot=np.arange(3 * shape.pixels))
    noise = numbers.reshape(_GENERATED, 3, shape.height, shape.width)[:, : shape.channels]
    blocks = np.arange(side) // max(2, side // 6)
    row, column = blocks[: shape.height, None], blocks[None, : shape.width]
    flat = (row * 37 + column * 91)[None, None] * (1 + np.arange(_GENERATED)[:, None, None, None])
    share = np.linspace(0, 1, _GENERATED)[:, None, None, None]
    levels = (flat % 256) * (1 - share) + 255 * noise * share
    return torch.from_numpy(levels.astype(np.uint8))


def generated_photos(plan: CentreCrop) -> FullImages:
    """Return a few photos for a check: small and large, wide and high."""
    photos: list[Levels] = []
    for down, across in _SIDES:
        sides = round(down * plan.size[0]), round(across * plan.size[1])
        image = generated_images(Shape(plan.channels, *sides))[len(photos)]
        photos.append(image.permute(1, 2, 0).numpy())
    return FullImages.of(photos, plan)


def as_network_takes(images: Tensor | FullImages, given: ImageInput) -> Tensor:
    """Return images resized to the network's size as when relook reads them."""
    if isinstance(images, FullImages):
        return plain_views(reduce_photos(images))
    if given.preparation is None:
        return images
    shape = given.network
    made = np.empty((len(images), shape.channels, shape.height, shape.width), np.uint8)
    for i, levels in enumerate(images.numpy()):
        view = np.asarray(centre_view(from_levels(levels), given.preparation))
        made[i] = view[None] if view.ndim == 2 else np.moveaxis(view, 2, 0)
    return torch.from_numpy(made)


def as_session_takes(given: ImageInput, images: Tensor | FullImages) -> list[NDArray[np.uint8]]:
    """Return arrays in the file's layout: one of all images, or one per photo."""
    if isinstance(images, FullImages):
        levels = [images.levels(place)[None] for place in range(len(images))]
    else:
        levels = [images.permute(0, 2, 3, 1).numpy()]
    if given.layout == "nchw":
        levels = [np.moveaxis(one, 3, 1) for one in levels]
    return [np.ascontiguousarray(one) for one in levels]


def own_predictions(
    plan: ModelPlan, predictor: Predictor, images: Tensor | FullImages
) -> NDArray[np.float64]:
    """Return relook's own probabilities `[n, class]` of images in the form that the file takes."""
    log_probs = np.stack([predictor(view).numpy() for view in _own_views(plan, images)])
    return np.exp(temper(plan.views.average(log_probs), plan.views.temperature))


def as_probabilities(results: NDArray[Any], output: Output) -> NDArray[np.float64]:
    """Return a model's outputs as probabilities `[n, class]`."""
    values = results.astype(np.float64)
    if output == "probabilities":
        return values
    shares = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _own_views(plan: ModelPlan, images: Tensor | FullImages) -> list[Tensor]:
    prepared = (
        reduce_photos(images)
        if isinstance(images, FullImages)
        else as_network_takes(images, plan.input)
    )
    indices = np.arange(len(images))
    return [plan.views.make(view, prepared, indices) for view in range(len(plan.views.views))]


def _check_views(plan: ModelPlan, images: Tensor | FullImages) -> None:
    views = _own_views(plan, images)
    found = _run(to_bytes(build_views(plan)), "views", plan.input, images)
    for view, part in enumerate(np.split(found, len(views))):
        differ = int((part != views[view].numpy()).sum())
        if differ:
            raise RelookError(
                f"the exported view “{plan.views.views[view].subpolicy}” differs from relook's in "
                f"{differ:,} of {part.size:,} levels: nothing was written; please report this"
            )


def _run(data: bytes, output: str, given: ImageInput, images: Tensor | FullImages) -> NDArray[Any]:
    """Return a model's results `[view · n, …]` or `[n, …]`; photos run one by one."""
    session = open_session(data)
    try:
        results = [
            session.run([output], {IMAGES: one})[0] for one in as_session_takes(given, images)
        ]
    except Exception as error:  # onnxruntime's own classes share no base
        raise RelookError(
            f"ONNX Runtime failed on the exported model: {first_line(error)}"
        ) from error
    if len(results) == 1:
        return np.asarray(results[0])
    return np.stack(results, axis=1).reshape(-1, *results[0].shape[1:])
