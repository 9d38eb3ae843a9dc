"""Runs a torch module faster: ONNX Runtime, channels-last memory, half precision, compiled.

An engine is used only if its log-probabilities agree with plain torch's on real images within
`TOLERANCE`. As the last digits differ, each way to run a model has its own fingerprint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from relook.errors import RelookError, unknown_name
from relook.foundation.watchdog import watched
from relook.io.files import read_json, write_json_atomic
from relook.io.fingerprint import fingerprint
from relook.models import onnx_runtime
from relook.models.base import Predictor
from relook.models.predictors import TorchPredictor
from relook.transforms.full_images import FullImages, plain_views

Engine = Literal["torch", "channels-last", "onnx"]
Precision = Literal["auto", "float32", "float16", "bfloat16"]
ENGINES: tuple[str, ...] = get_args(Engine)
ACCELERATE = ("auto", *ENGINES)
PRECISIONS: tuple[str, ...] = get_args(Precision)

TOLERANCE = 1e-3
"""The largest allowed difference of a log-probability from plain torch's."""

GAIN = 1.2
"""The speed-up over plain torch from which `auto` chooses an engine."""

CHECKED = 32
"""The most images on which outputs and times are compared."""

WORTH = 10.0
"""Seconds of work in plain torch below which `auto` tries nothing else."""

_CHECKED_PIXELS = 1 << 19

_REPEATS = 7
_ENOUGH_SECONDS = 1.0  # per engine: after them, no more than two repeats


@dataclass(frozen=True)
class Accelerated:
    """A predictor, its engine, and the reason if `auto` chose another than torch."""

    predictor: Predictor
    engine: str
    why: str | None = None

    def tell(self, log: Callable[[str], None]) -> None:
        """Log the engine that `auto` chose, unless it is torch."""
        if self.why is not None:
            log(f"engine {self.engine}: {self.why}; to choose another: accelerate (--accelerate)")


def accelerate(
    predictor: Predictor,
    images: Tensor | FullImages,
    *,
    mode: str = "auto",
    precision: str = "auto",
    compiled: bool = False,
    passes: int | None = None,
) -> Accelerated:
    """Return the predictor on the engine that `mode` names; `auto` measures which is fastest.

    `images` are real ones, uint8 `[n, c, h, w]`: outputs and times are compared on the first 32 (10
    at 224×224). `auto` keeps plain torch unless another engine agrees with it and is at least 1.2
    times as fast; it tries none on a GPU, or if the images to predict, `passes`, take only seconds.
    A named engine is used, or an error gives the reason. `precision` and `compiled` change how
    torch runs the module.
    """
    if mode not in ACCELERATE:
        raise unknown_name("engine to accelerate with", mode, ACCELERATE)
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    altered = compiled or precision != "auto"
    if not isinstance(predictor, TorchPredictor):
        if altered or mode in ("channels-last", "onnx"):
            raise RelookError(
                "expected a torch module to accelerate, got a "
                f"{type(predictor).__name__}: leave the options for speed out"
            )
        return Accelerated(predictor, "torch")
    pixels = images.shape[2] * images.shape[3]
    sample = plain_views(images[: max(4, min(CHECKED, _CHECKED_PIXELS // pixels))])
    if altered:
        return _altered(predictor, sample, mode, precision, compiled)
    if mode == "auto":
        if predictor.device.type != "cpu" or passes == 0:
            return Accelerated(predictor, "torch")
        return _fastest(predictor, sample, passes)
    return Accelerated(_on_engine(predictor, mode, sample), mode)


def accelerate_run(
    predictor: Predictor,
    images: Tensor | FullImages,
    *,
    mode: str = "auto",
    record: Path | None = None,
    **how: Any,
) -> Accelerated:
    """As `accelerate`, but the choice of `auto` is kept in the file `record`.

    Times vary, but a resumed run must keep its engine.
    """
    if record is None or mode != "auto":
        return accelerate(predictor, images, mode=mode, **how)
    if record.exists():
        return accelerate(predictor, images, mode=_recorded_engine(record), **how)
    chosen = accelerate(predictor, images, mode="auto", **how)
    write_json_atomic(record, {"engine": chosen.engine})
    return chosen


def _recorded_engine(record: Path) -> str:
    try:
        content = read_json(record, what="a run's engine")
        engine = str(content.get("engine")) if isinstance(content, dict) else ""
        if engine not in ENGINES:
            raise RelookError(f"{record}: expected an engine of {', '.join(ENGINES)}")
    except RelookError as error:
        raise RelookError(f"{error}: delete it, and the engine is chosen again") from None
    return engine


def _altered(
    predictor: TorchPredictor, sample: Tensor, mode: str, precision: str, compiled: bool
) -> Accelerated:
    """Return the predictor with another precision or compiled, in torch."""
    if mode == "onnx":
        raise RelookError(
            "expected neither a precision nor compiling with ONNX Runtime: leave them out, "
            "or choose torch"
        )
    channels_last = mode == "channels-last" or (mode == "auto" and predictor.device.type == "cuda")
    fast = FastTorchPredictor(
        predictor, channels_last=channels_last, precision=precision, compiled=compiled
    )
    try:
        with _watched(sample):
            fast(sample)
    except RelookError as error:
        raise RelookError(f"the model does not run with these options: {error}") from error
    return Accelerated(fast, "channels-last" if channels_last else "torch")


def _on_engine(predictor: TorchPredictor, engine: str, sample: Tensor) -> Predictor:
    """Return the predictor on an engine; raise if its outputs differ."""
    if engine == "torch":
        return predictor
    made: Predictor
    if engine == "onnx":
        if predictor.device.type != "cpu":
            raise RelookError(
                f"expected device cpu with ONNX Runtime, got {predictor.device}: choose torch"
            )
        made = onnx_runtime.to_onnx(predictor, sample)
    else:
        made = FastTorchPredictor(predictor, channels_last=True)
    _check_agreement(predictor, made, sample, engine)
    return made


def _check_agreement(one: Predictor, other: Predictor, sample: Tensor, engine: str) -> None:
    """Raise if outputs differ, on the whole sample or a part: batches may have any size."""
    for images in (sample, sample[: max(1, len(sample) - 3)]):
        with _watched(images):
            apart = float((one(images) - other(images)).abs().max())
        if not apart <= TOLERANCE:
            raise RelookError(
                f"the outputs of {engine} differ from torch's by {apart:.2g} in log-probability "
                f"(at most {TOLERANCE:g} is allowed)"
            )


def _fastest(predictor: TorchPredictor, sample: Tensor, passes: int | None) -> Accelerated:
    """Return the predictor on the engine that is clearly fastest, or else in plain torch."""
    engines: dict[str, Predictor] = {"torch": predictor}
    if passes is not None and passes * _seconds(engines, sample)["torch"] / len(sample) < WORTH:
        return Accelerated(predictor, "torch")
    wanted = ["onnx"] if onnx_runtime.is_installed() else []
    if any(isinstance(part, nn.Conv2d) for part in predictor.module.modules()):
        wanted.append("channels-last")
    for engine in wanted:
        with suppress(RelookError):  # shown only if the engine is named
            engines[engine] = _on_engine(predictor, engine, sample)
    seconds = _seconds(engines, sample)
    best = min(seconds, key=lambda name: seconds[name])
    gain = seconds["torch"] / seconds[best]
    if gain < GAIN:
        return Accelerated(predictor, "torch")
    return Accelerated(engines[best], best, f"about {gain:.1f} times as fast as plain torch here")


def _seconds(engines: Mapping[str, Predictor], sample: Tensor) -> dict[str, float]:
    """Return each engine's shortest time.

    The engines take turns, so that other load on the machine slows all of them.
    """
    times: dict[str, list[float]] = {engine: [] for engine in engines}
    for repeat in range(_REPEATS):
        if repeat >= 2 and sum(map(sum, times.values())) > _ENOUGH_SECONDS * len(engines):
            break
        for engine, predictor in engines.items():
            start = time.perf_counter()
            with _watched(sample):
                predictor(sample)
            times[engine].append(time.perf_counter() - start)
    return {engine: min(own) for engine, own in times.items()}


def _watched(images: Tensor) -> AbstractContextManager[None]:
    return watched(lambda: f"{len(images)} images, to find the fastest way")


class FastTorchPredictor(TorchPredictor):
    """A torch predictor that runs its module in another memory format or precision, or compiled.

    The module is shared with the original predictor, and does not change: channels-last is the
    format of the inputs, which the layers keep. Half precision is autocast's, so that layers that
    need float32 keep it.
    """

    def __init__(
        self,
        predictor: TorchPredictor,
        *,
        channels_last: bool = False,
        precision: str = "auto",
        compiled: bool = False,
    ) -> None:
        mean, std = predictor.normalisation
        super().__init__(
            predictor.module,
            mean=mean,
            std=std,
            device=predictor.device,
            outputs=predictor.outputs,
            classes=predictor.classes,
            input=predictor.input,
            fingerprint=fingerprint(
                "fast torch", predictor.fingerprint, channels_last, precision, compiled
            ),
        )
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        half = precision in ("float16", "bfloat16")
        self._half: torch.dtype | None = getattr(torch, precision) if half else None
        if compiled:
            self.module = torch.compile(self.module, dynamic=True)  # type: ignore[assignment]

    def inputs(self, images: Tensor) -> Tensor:
        """Return uint8 images `[n, c, h, w]` as the module takes them."""
        return super().inputs(images).contiguous(memory_format=self._format)

    def __call__(self, images: Tensor) -> Tensor:
        """Return float32 log-probabilities `[n, class]` for uint8 images `[n, c, h, w]`."""
        on = self._half is not None
        with torch.autocast(self.device.type, dtype=self._half, enabled=on):
            return super().__call__(images)
