"""The Predictor protocol: images in, log-probabilities out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor

from relook.errors import RelookError, unknown_name
from relook.numerics.calibration import LOG_FLOOR
from relook.transforms.centre_crop import INTERPOLATIONS

Outputs = Literal["logits", "probabilities", "log_probs"]
OUTPUTS: tuple[str, ...] = get_args(Outputs)

_SUM_TOLERANCE = 0.02


@dataclass(frozen=True)
class InputSpec:
    """The images that a model takes, and how an image of any size is brought to that size.

    The image is resized so that the input's `size` `(height, width)` is the share `crop` of its
    shorter side, and the centre is cut out. `channels` is 1 or 3, or None for either.
    """

    size: tuple[int, int]
    crop: float = 0.875
    interpolation: str = "bicubic"
    channels: int | None = None

    def __post_init__(self) -> None:
        if not all(type(side) is int and side >= 1 for side in self.size) or len(self.size) != 2:
            raise RelookError(f"expected a size (height, width) in pixels, got {self.size!r}")
        if not 0 < self.crop <= 1:
            raise RelookError(f"expected a crop share above 0 and at most 1, got {self.crop!r}")
        if self.interpolation not in INTERPOLATIONS:
            raise unknown_name("interpolation", self.interpolation, INTERPOLATIONS)


@runtime_checkable
class Predictor(Protocol):
    """A classifier that owns its normalisation and its device.

    Called with uint8 images `[n, c, h, w]`, it returns float32 log-probabilities `[n, class]` on
    the CPU. Two predictors with the same fingerprint make the same predictions. A predictor may
    also have an attribute `input` with the images that it takes: see `input_of`.
    """

    @property
    def fingerprint(self) -> str:
        """A short text that stands for everything that the predictions depend on."""

    @property
    def classes(self) -> int | None:
        """The number of classes, or None if it is not known before a call."""

    def __call__(self, images: Tensor) -> Tensor:
        """Return float32 log-probabilities `[n, class]` for uint8 images `[n, c, h, w]`."""


def input_of(predictor: Predictor) -> InputSpec | None:
    """Return the images that a predictor takes, None if that is not known."""
    found = getattr(predictor, "input", None)
    return found if isinstance(found, InputSpec) else None


def check_outputs(outputs: object) -> None:
    """Raise unless `outputs` is a kind of outputs."""
    if outputs not in OUTPUTS:
        raise unknown_name("kind of outputs", outputs, OUTPUTS)


def to_log_probs(results: object, outputs: str, images: int, classes: int | None = None) -> Tensor:
    """Return a model's results as float32 log-probabilities `[n, class]` on the CPU.

    The kind of `outputs` is never guessed: the results are checked against it.
    """
    if not isinstance(results, Tensor):
        raise RelookError(
            f"expected the model to return a tensor [n, class], got {type(results).__name__}: "
            "wrap the model in a function that picks the tensor"
        )
    _check_shape(results, images, classes)
    values = results.detach().to("cpu")
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    if values.isnan().any():
        raise RelookError(f"expected {outputs} from the model, got NaN: check weights and inputs")
    if outputs == "logits":
        log_probs = values.log_softmax(dim=-1)
    elif outputs == "probabilities":
        _check_sums(values, outputs)
        log_probs = (values / values.sum(dim=-1, keepdim=True)).log()
    else:
        _check_sums(values.exp(), outputs)
        log_probs = values.log_softmax(dim=-1)
    if log_probs.isnan().any():
        raise RelookError(f"expected finite {outputs} from the model, got an infinite value")
    return log_probs.clamp(min=LOG_FLOOR).float()


def _check_shape(results: Tensor, images: int, classes: int | None) -> None:
    wanted = "class" if classes is None else str(classes)
    good = results.ndim == 2 and results.shape[0] == images and results.shape[1] >= 2
    if not good or (classes is not None and results.shape[1] != classes):
        raise RelookError(
            f"expected the model to return [{images}, {wanted}] for {images} images, "
            f"got {list(results.shape)}"
        )
    if not results.is_floating_point():
        raise RelookError(f"expected floating-point results from the model, got {results.dtype}")


def _check_sums(probabilities: Tensor, outputs: str) -> None:
    """Raise unless each row is a distribution, with room for half precision."""
    sums = probabilities.sum(dim=-1)
    wrong = ((sums - 1).abs() > _SUM_TOLERANCE) | (probabilities < 0).any(dim=-1)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise RelookError(
            f"expected {outputs} from the model (each row ≥ 0, sum 1), but row {row} sums to "
            f"{sums[row]:.4g}: say outputs='logits' if the model ends without a softmax"
        )
