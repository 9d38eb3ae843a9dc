"""Several models as one: the mean of their probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from relook.errors import RelookError
from relook.io.fingerprint import fingerprint
from relook.models.base import InputSpec, Predictor, input_of


class EnsemblePredictor:
    """The mean of its members' probabilities, in log space.

    The members see the same images, so those that know what images they take must agree on
    size, crop and channels; `input` is what they agree on, with the first one's interpolation.
    """

    def __init__(self, predictors: Sequence[Predictor]) -> None:
        if not predictors:
            raise RelookError("expected at least one model for an ensemble, got none")
        self.members = tuple(predictors)
        self.classes = _classes([member.classes for member in self.members])
        self.input = _input([input_of(member) for member in self.members])

    @property
    def fingerprint(self) -> str:
        """What the members' fingerprints make, in their order."""
        return fingerprint("ensemble", [member.fingerprint for member in self.members])

    def __call__(self, images: Tensor) -> Tensor:
        """Return float32 log-probabilities `[n, class]` for uint8 images `[n, c, h, w]`."""
        results = [member(images) for member in self.members]
        _classes([log_probs.shape[1] for log_probs in results])
        stacked = torch.stack(results).double()
        return (stacked.logsumexp(dim=0) - math.log(len(results))).float()


def _classes(counts: Sequence[int | None]) -> int | None:
    """Return the number of classes that the members agree on, None where none says it."""
    known = {count for count in counts if count is not None}
    if len(known) > 1:
        shown = ", ".join("?" if count is None else str(count) for count in counts)
        raise RelookError(
            f"expected models with the same classes for an ensemble, got {shown} classes"
        )
    return known.pop() if known else None


def _input(specs: Sequence[InputSpec | None]) -> InputSpec | None:
    known = [spec for spec in specs if spec is not None]
    for spec in known[1:]:
        if replace(spec, interpolation=known[0].interpolation) != known[0]:
            raise RelookError(
                "expected models that take the same images for an ensemble, got "
                f"{_shown(known[0])} and {_shown(spec)}: say which with --size and --crop"
            )
    return known[0] if known else None


def _shown(spec: InputSpec) -> str:
    height, width = spec.size
    channels = "any" if spec.channels is None else spec.channels
    return f"{channels}×{height}×{width} (crop {spec.crop:g})"
