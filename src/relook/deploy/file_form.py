"""The form of an exported file: its format, and the images that it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from torch import Tensor

from relook.deploy.onnx.model import ImageInput, Layout
from relook.deploy.tta.images import Photos, preparation_for
from relook.deploy.tta.view_plan import Output
from relook.errors import RelookError, unknown_name
from relook.models import Predictor
from relook.models.base import input_of
from relook.models.predictors import channels_of
from relook.transforms.centre_crop import CentreCrop, resized_size
from relook.transforms.full_images import FullImages
from relook.transforms.onnx.graph import Shape
from relook.transforms.onnx.photos import INTERPOLATIONS

Format = Literal["onnx", "torch-export"]


@dataclass(frozen=True)
class FileForm:
    """A file's format, input and output; None leaves a value to the model and the images.

    The file takes any number of uint8 images in a `layout` and returns `output` `[n, class]`.
    `size` (height, width) and `channels` are needed if the network does not state them.
    `resize_from` (height, width) is the images' own size: the file resizes them to the network's,
    as the policy's search did, or with a centre crop that keeps the share `crop`. With `full_size`
    it takes photos of any size, one size per call, and cuts crops from them; by default an ONNX
    file without `resize_from` does so if the policy was searched on photos.
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


def image_input(
    predictor: Predictor,
    form: FileForm,
    images: Photos | None,
    searched: CentreCrop | None = None,
) -> ImageInput:
    """Return the images that a file takes, prepared as in the search unless `form` overrides it.

    `searched` is the preparation in the policy's search; `images` are examples, if there are any.
    """
    spec = input_of(predictor)
    shape = tuple(images.shape) if isinstance(images, Tensor | FullImages) else None
    size = (form.size, form.size) if isinstance(form.size, int) else form.size
    size = size or (None if spec is None else spec.size)
    if searched is not None and searched.full_size:
        size, shape = size or searched.size, shape or (0, searched.channels)
    if size is None and shape is not None and form.resize_from is None:
        size = shape[2], shape[3]
    if size is None:
        raise RelookError("the model does not state the size of its images: give size, as 224")
    channels = form.channels or channels_of(predictor) or (None if shape is None else shape[1])
    if channels is None:
        raise RelookError("the model does not state its channels: give channels, 1 or 3")
    network = Shape(channels, *size)
    plan = preparation_for(size, channels, spec, searched)
    if form.crop is not None:
        plan = replace(plan, crop=form.crop, every=True)
    full_size = form.full_size
    if full_size is None:
        full_size = plan.full_size and form.resize_from is None and form.format == "onnx"
    plan = replace(plan, full_size=full_size)
    if full_size:
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
