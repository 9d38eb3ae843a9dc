"""How commands declare options: one by one, in groups, or as the fields of a settings class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

import typer

from relook.policy_search.settings import Option


def option(
    help: str | None = None,
    *names: str,
    default: Any = None,
    panel: str | None = None,
    shown: str | None = None,
    kind: Callable[..., Any] = typer.Option,
    **how: Any,
) -> Any:
    """Declare an option as the default of a command's parameter or of a group's field.

    A default of `...` says that it must be given, and `shown` how help puts the default in words.
    Within `Annotated[…]` it declares what several commands share.
    """
    asked = kind(*names, help=help, rich_help_panel=panel, show_default=shown or True, **how)
    default = MISSING if default is ... else default
    return field(default=default, metadata={"option": asked})


argument: Callable[..., Any] = partial(option, kind=typer.Argument)

Declared = tuple[str, Any, Any]
"""An option: the parameter's name, its type, and its default; a field holds its default."""


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Show typer the options of the command and of its groups, in their place.

    A group is a parameter that is a dataclass, whose fields may be groups again, or is marked
    with `FieldsOf`. The command is called by keywords, as typer does.
    """
    shown = [_parameter(*one) for one in _options(command)]

    @wraps(command)
    def called(**given: Any) -> None:
        command(**_arguments(command, given))

    called.__signature__ = Signature(shown)  # type: ignore[attr-defined]  # what typer reads
    called.__annotations__ = {one.name: one.annotation for one in shown}
    return called


@dataclass(frozen=True)
class FieldsOf:
    """Marks a command's parameter: a dict with the values of a settings class's fields.

    `names` are those to ask for; by default all that know their option.
    """

    kind: Any
    names: tuple[str, ...] = ()

    def options(self) -> Iterator[Declared]:
        """Yield the fields' options."""
        hints = get_type_hints(self.kind)
        for one, asked in self._fields():
            flag = asked.flag or f"--{one.name.replace('_', '-')}"
            how: dict[str, Any] = {"min": asked.min, "metavar": asked.metavar}
            how |= {"default": one.default, "panel": asked.panel, "shown": asked.shown}
            yield one.name, _asked_as(hints[one.name], asked), option(asked.help, flag, **how)

    def taken(self, given: dict[str, Any]) -> dict[str, Any]:
        """Take the fields' values out of what was given, read."""
        found = {}
        for one, asked in self._fields():
            value = given.pop(one.name)
            found[one.name] = value if asked.read is None or value is None else asked.read(value)
        return found

    def _fields(self) -> Iterator[tuple[Field[Any], Option]]:
        for one in fields(self.kind):
            if "option" in one.metadata and (not self.names or one.name in self.names):
                yield one, one.metadata["option"]


def _options(kind: Any) -> Iterator[Declared]:
    """Yield the options of a command or a group, those of the groups in it in their place."""
    for name, hint, default in _own(kind):
        if fields_of := _fields_of(hint):
            yield from fields_of.options()
        elif is_dataclass(hint):
            yield from _options(hint)
        else:
            yield name, hint, default


def _arguments(kind: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Take the values of the parameters out of what was given, a group's as one."""
    found: dict[str, Any] = {}
    for name, hint, _ in _own(kind):
        if fields_of := _fields_of(hint):
            found[name] = fields_of.taken(given)
        elif is_dataclass(hint):
            found[name] = hint(**_arguments(hint, given))  # type: ignore[operator]  # a class
        else:
            found[name] = given.pop(name)
    return found


def _own(kind: Any) -> Iterator[Declared]:
    """Yield the parameters of a command or the fields of a group."""
    hints = get_type_hints(kind, include_extras=True)
    if is_dataclass(kind):
        yield from ((one.name, hints[one.name], one) for one in fields(kind))
        return
    for name, one in signature(kind).parameters.items():
        yield name, hints[name], one.default


def _fields_of(hint: Any) -> FieldsOf | None:
    marks = getattr(hint, "__metadata__", ())
    return next((mark for mark in marks if isinstance(mark, FieldsOf)), None)


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    """Return a parameter as typer takes it, whether its default or its type declares the option."""
    own = getattr(default, "metadata", {}).get("option")
    for mark in getattr(hint, "__metadata__", ()):
        own = getattr(mark, "metadata", {}).get("option", own)
    if own is not None:
        hint = Annotated[hint.__origin__ if hasattr(hint, "__metadata__") else hint, own]
    value = default.default if isinstance(default, Field) else default
    value = Parameter.empty if value is MISSING else value
    return Parameter(name, Parameter.KEYWORD_ONLY, default=value, annotation=hint)


def _asked_as(hint: Any, option: Option) -> Any:
    """Return the type that typer reads an option as: text, unless it knows the setting's own."""
    if option.read is not None:
        return list[str] | None if option.several else str | None
    return hint if hint in (bool, int, float, int | None, float | None) else str
