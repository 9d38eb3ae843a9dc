"""Options that commands take together: how images are read, and what a model takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from relook.cli.shared import full_size as images_kept
from relook.cli.shared import options
from relook.cli.shared.console import say
from relook.data import Dataset
from relook.evaluation.latency import LATENCY, Latency, Limit
from relook.io.files import one_line
from relook.models import Predictor
from relook.policy_search.settings import Option, SearchSettings


@dataclass(frozen=True)
class FieldsOf:
    """Marks a command's parameter: a dict with the values of a settings class's fields.

    `names` are those to ask for; by default all that know their option.
    """

    kind: Any
    names: tuple[str, ...] = ()

    def options(self) -> dict[str, Option]:
        """Return the fields' options by name."""
        own = {one.name: one.metadata.get("option") for one in fields(self.kind)}
        wanted = self.names or own
        return {name: option for name, option in own.items() if option and name in wanted}

    def parameters(self) -> list[Parameter]:
        """Return the options as typer takes them."""
        hints = get_type_hints(self.kind)
        defaults = {one.name: one.default for one in fields(self.kind)}
        return [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=defaults[name],
                annotation=Annotated[_asked_as(hints[name], option), _typer_option(name, option)],
            )
            for name, option in self.options().items()
        ]

    def taken(self, given: dict[str, Any]) -> dict[str, Any]:
        """Take the fields' values out of what was given, read."""
        return {
            name: option.read(given.pop(name))
            if option.read is not None and given[name] is not None
            else given.pop(name)
            for name, option in self.options().items()
        }


SearchFields = Annotated[dict[str, Any], FieldsOf(SearchSettings)]
"""Everything that decides a search and has an option of its own."""


def spelled_out(command: Callable[..., None]) -> Callable[..., None]:
    """Show typer the fields of the command's groups as options, in their place.

    A group is a parameter that is a dataclass, whose fields may be groups again, or is marked
    with `FieldsOf`. The command takes keywords only, as typer calls it.
    """
    expanded = _Expanded(command)
    shown = expanded.parameters()

    @wraps(command)
    def called(**given: Any) -> None:
        command(**expanded.arguments(given))

    called.__signature__ = Signature(shown)  # type: ignore[attr-defined]  # what typer reads
    called.__annotations__ = {one.name: one.annotation for one in shown}
    return called


@dataclass(frozen=True)
class _Expanded:
    """A command, or a group whose fields are annotated as options are."""

    kind: Any

    def parameters(self) -> list[Parameter]:
        """Return the options as typer takes them."""
        shown: list[Parameter] = []
        for one, hint, group in self._fields():
            own = [one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hint)]
            shown += own if group is None else group.parameters()
        return shown

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Take the values of the parameters out of what was given, a group's as one."""
        return {
            one.name: given.pop(one.name) if group is None else group.taken(given)
            for one, _, group in self._fields()
            if group is not None or one.name in given
        }

    def taken(self, given: dict[str, Any]) -> Any:
        """Take the fields' values out of what was given, as an instance."""
        return self.kind(**self.arguments(given))

    def _fields(self) -> Iterator[tuple[Parameter, Any, FieldsOf | _Expanded | None]]:
        hints = get_type_hints(self.kind, include_extras=True)
        for one in signature(self.kind).parameters.values():
            yield one, hints[one.name], _group(hints[one.name])


def _group(hint: Any) -> FieldsOf | _Expanded | None:
    marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, FieldsOf)]
    if marks:
        return marks[0]
    return _Expanded(hint) if is_dataclass(hint) else None


def _asked_as(hint: Any, option: Option) -> Any:
    """Return the type that typer reads an option as: text, unless it knows the setting's own."""
    if option.read is not None:
        return list[str] | None if option.several else str | None
    return hint if hint in (bool, int, float, int | None, float | None) else str


def _typer_option(name: str, option: Option) -> Any:
    return typer.Option(
        option.flag or f"--{name.replace('_', '-')}",
        help=option.help,
        min=option.min,
        metavar=option.metavar,
        show_default=option.shown or True,
        rich_help_panel=option.panel,
    )


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
        """Return what was given, except for `full_size`, which depends on the views too."""
        return {name: value for name, value in super().given().items() if name != "full_size"}

    def of(self, data: str, *, crops: bool) -> dict[str, Any]:
        """Return what was given, settled for these images; `crops`: views begin with crops."""
        full = images_kept.keeps_full_size(self.full_size, data, crops)
        return {**self.given(), **({"full_size": True} if full else {})}


@dataclass(frozen=True)
class TimeOptions:
    """How long a search may take, and what was planned for that."""

    time: options.TimeOption = None
    effort: options.EffortOption = None
    plan: options.PlanOption = None
    finish: options.FinishOption = False


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
        """Load the model, several as an ensemble, for images that are read like this."""
        return options.read_model(
            specs, device=device, size=reading.size, crop=reading.crop, **vars(self)
        )


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Everything that says how a model and its images are read."""

    group: options.GroupOption = None
    reading: ReadingOptions
    network: NetworkOptions
    device: options.DeviceOption = "auto"

    def given(self, **others: Any) -> dict[str, Any]:
        """Return what was given, with other options that say where inputs come from."""
        own = {**self.network.given(), **self.reading.given()}
        return options.origin(**others, group=self.group, **own)

    def read(
        self, model: list[str], data: str, test: str | None = None, *, crops: bool, out: Path
    ) -> tuple[Predictor, Dataset, Dataset | None]:
        """Load the model, its images and those of a separate test; `crops`: views begin with some.

        What does not fit into memory goes next to `out`.
        """
        predictor = self.network.load(model, self.device, self.reading)
        how = {
            "model": predictor,
            "overflow": images_kept.next_to(out),
            **self.reading.of(data, crops=crops),
        }
        dataset = options.read_data(data, self.group, **how)
        proof = None if test is None else options.read_data(test, like=dataset, **how)
        return predictor, dataset, proof


def _given(group: ImageOptions | NetworkOptions) -> dict[str, Any]:
    """Return the options that were given; a number 0 is one of them."""
    return {
        name: value
        for name, value in vars(group).items()
        if value is not None and value is not False
    }


_PANEL = "Latency"


@dataclass(frozen=True)
class LatencyOptions:
    """What a call of the deployed model may take."""

    latency: Annotated[
        str | None,
        typer.Option(
            help="Take the best views whose call is no slower than this, as 40ms: a median, "
            "measured here on the file.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None
    latency_batch: Annotated[
        int,
        typer.Option(help="Images in a call for --latency.", min=1, rich_help_panel=_PANEL),
    ] = 1

    def limit(self) -> Limit | None:
        """Return what was asked for, read."""
        return None if self.latency is None else Limit.read(self.latency, self.latency_batch)


def keep_latency(directory: Path | None, latency: Latency) -> None:
    """Write what was measured into the run, for `relook show` and the report."""
    if directory is not None:
        LATENCY.write(directory / "latency.json", latency)
        say(f"times are kept in {one_line(str(directory / 'latency.json'))}")
