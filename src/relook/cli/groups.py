"""Options that commands take together: how images are read, and what a model takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

from relook.cli import full_size as images_kept
from relook.cli import options
from relook.models import Predictor


def spelled_out(command: Callable[..., None]) -> Callable[..., None]:
    """Show typer the fields of the command's dataclass parameters as options, in their place.

    The command itself gets the dataclasses. It takes keywords only, as typer calls it.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    shown: list[Parameter] = []
    for one in signature(command).parameters.values():
        own = [one.replace(annotation=hints[one.name])]
        shown += _fields_of(groups[one.name]) if one.name in groups else own

    @wraps(command)
    def called(**given: Any) -> None:
        for name, kind in groups.items():
            known = {field.name for field in fields(kind)} & given.keys()
            given[name] = kind(**{field: given.pop(field) for field in known})
        command(**given)

    called.__signature__ = Signature(shown)  # type: ignore[attr-defined]  # what typer reads
    called.__annotations__ = {one.name: one.annotation for one in shown}
    return called


def _fields_of(kind: Any) -> list[Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[one.name])
        for one in signature(kind).parameters.values()
    ]


@dataclass(frozen=True)
class ImageOptions:
    """What images a model takes, and its classes."""

    size: options.SizeOption = None
    crop: options.CropOption = None
    channels: options.ChannelsOption = None
    classes: options.ClassesOption = None

    def given(self) -> dict[str, Any]:
        """Return what was given."""
        return _given(self)


@dataclass(frozen=True)
class ReadingOptions(ImageOptions):
    """How images are read, as `options.read_data` takes it."""

    skip_bad: options.SkipBadOption = False
    full_size: images_kept.FullSizeOption = "auto"
    cache: images_kept.CacheOption = None

    def given(self) -> dict[str, Any]:
        """Return what was given, except for `full_size`, which hangs on the views too."""
        return {name: value for name, value in super().given().items() if name != "full_size"}

    def of(self, data: str, *, crops: bool) -> dict[str, Any]:
        """Return what was given, settled for these images; `crops`: views begin with crops."""
        full = images_kept.keeps_full_size(self.full_size, data, crops)
        return {**self.given(), **({"full_size": True} if full else {})}


@dataclass(frozen=True)
class NetworkOptions:
    """What a model takes and returns."""

    mean: options.MeanOption = None
    std: options.StdOption = None
    outputs: options.OutputsOption = None
    pretrained: options.PretrainedOption = False

    def given(self) -> dict[str, Any]:
        """Return what was given."""
        return _given(self)

    def load(self, specs: list[str], device: str, reading: ReadingOptions) -> Predictor:
        """Load the model, several as an ensemble, for images that are read so."""
        return options.read_model(
            specs, device=device, size=reading.size, crop=reading.crop, **vars(self)
        )


def _given(group: ImageOptions | NetworkOptions) -> dict[str, Any]:
    """Return the options that were given; a number 0 is one of them."""
    return {
        name: value
        for name, value in vars(group).items()
        if value is not None and value is not False
    }
