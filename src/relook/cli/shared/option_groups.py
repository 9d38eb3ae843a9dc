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
    **keywords: Any,
) -> Any:
    """Declare an option as the default of a command's parameter or of a group's field.

    A default of `...` makes it required; `shown` is the default as help texts put it in words.
    Within `Annotated[…]` it declares an option that several commands share.
    """
    declared = kind(
        *names, help=help, rich_help_panel=panel, show_default=shown or True, **keywords
    )
    return field(default=MISSING if default is ... else default, metadata={"option": declared})


argument: Callable[..., Any] = partial(option, kind=typer.Argument)

Declaration = tuple[str, Any, Any]
"""An option: the parameter's name, its type, and its default or the field that has it."""


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Show typer the options of the command and of its groups as one flat signature.

    A group is a parameter that is a dataclass, whose fields may be groups again, or is marked
    with `FieldsOf`. The command is called with keywords, as typer does.
    """
    parameters = [_parameter(*declaration) for declaration in _options(command)]

    @wraps(command)
    def wrapper(**values: Any) -> None:
        command(**_arguments(command, values))

    wrapper.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    wrapper.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapper


@dataclass(frozen=True)
class FieldsOf:
    """Marks a command's parameter as a dict of values for the fields of a settings class.

    `names` are the fields to declare options for; by default all that have an `Option`.
    """

    kind: Any
    names: tuple[str, ...] = ()

    def options(self) -> Iterator[Declaration]:
        """Yield the fields' options."""
        hints = get_type_hints(self.kind)
        for one, declared in self._fields():
            flag = declared.flag or f"--{one.name.replace('_', '-')}"
            keywords: dict[str, Any] = {"min": declared.min, "metavar": declared.metavar}
            keywords |= {"default": one.default, "panel": declared.panel, "shown": declared.shown}
            hint = _option_type(hints[one.name], declared)
            yield one.name, hint, option(declared.help, flag, **keywords)

    def take(self, values: dict[str, Any]) -> dict[str, Any]:
        """Remove the fields' values from `values`, and return them parsed."""
        taken = {}
        for one, declared in self._fields():
            value, read = values.pop(one.name), declared.read
            taken[one.name] = value if read is None or value is None else read(value)
        return taken

    def _fields(self) -> Iterator[tuple[Field[Any], Option]]:
        for one in fields(self.kind):
            if "option" in one.metadata and (not self.names or one.name in self.names):
                yield one, one.metadata["option"]


def _options(kind: Any) -> Iterator[Declaration]:
    """Yield the options of a command or a group, with nested groups expanded in place."""
    for name, hint, default in _members(kind):
        if fields_of := _fields_of(hint):
            yield from fields_of.options()
        elif is_dataclass(hint):
            yield from _options(hint)
        else:
            yield name, hint, default


def _arguments(kind: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Remove the parameters' values from `values`, and return them with groups rebuilt."""
    arguments: dict[str, Any] = {}
    for name, hint, _ in _members(kind):
        if fields_of := _fields_of(hint):
            arguments[name] = fields_of.take(values)
        elif is_dataclass(hint):
            arguments[name] = hint(**_arguments(hint, values))  # type: ignore[operator]  # a class
        else:
            arguments[name] = values.pop(name)
    return arguments


def _members(kind: Any) -> Iterator[Declaration]:
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
    declared = getattr(default, "metadata", {}).get("option")
    for mark in getattr(hint, "__metadata__", ()):
        declared = getattr(mark, "metadata", {}).get("option", declared)
    if declared is not None:
        plain_type = hint.__origin__ if hasattr(hint, "__metadata__") else hint
        hint = Annotated[plain_type, declared]
    value = default.default if isinstance(default, Field) else default
    value = Parameter.empty if value is MISSING else value
    return Parameter(name, Parameter.KEYWORD_ONLY, default=value, annotation=hint)


def _option_type(hint: Any, option: Option) -> Any:
    """Return the type that typer parses: the field's own if typer supports it, or else text."""
    if option.read is not None:
        return list[str] | None if option.several else str | None
    return hint if hint in (bool, int, float, int | None, float | None) else str
