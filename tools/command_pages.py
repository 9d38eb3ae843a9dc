"""The command reference as Markdown, read off the commands themselves."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from relook.cli.verbs import VERBS, Verb, load

FOLDER = "reference/commands"
_OPTION = re.compile(r"^(?P<names>--?[\w-]+(?:(?:, | / )--?[\w-]+)*)(?: (?P<value>.+))?$")
_ARGUMENT = re.compile(r"^(?P<names>\S+) (?P<value><.+>)$")
_FACTS = re.compile(r"\s*\[(?P<facts>[^\[\]]*(?:required|default: |[<>]=?)[^\[\]]*)\]$")
_CODE = re.compile(r"(--[a-z][\w-]*|\b[a-z][a-z0-9]*[:@]\S*?[A-Z]{3,}\]?(?=[\s,.;)]|$))")
_VALUES = {
    "str": "text",
    "int": "number",
    "int range": "number",
    "float": "number",
    "float range": "number",
    "list[str]": "text, may be repeated",
    "list[Path]": "path, may be repeated",
}


def command_pages() -> dict[str, str]:
    """Return each command's page by its path below docs/, in the order of `relook --help`."""
    return {f"{FOLDER}/{_file(verb)}": command_page(verb) for verb in VERBS.values()}


def overview() -> str:
    """Return the commands as one table for each panel of `relook --help`."""
    panels: dict[str, list[Verb]] = {}
    for verb in VERBS.values():
        panels.setdefault(verb.panel, []).append(verb)
    return "\n\n".join(_panel_table(panel, verbs) for panel, verbs in panels.items())


def _panel_table(panel: str, verbs: list[Verb]) -> str:
    rows = [f"| [`relook {verb.name}`]({_file(verb)}) | {_markdown(verb.help)} |" for verb in verbs]
    return "\n".join([f"## {panel}\n", "| command | what it does |", "| --- | --- |", *rows])


def command_page(verb: Verb) -> str:
    """Return the page of one verb: what it does, its usage and all options by panel."""
    path = f"relook {verb.name}"
    return "\n".join(
        [f"# {path}", "", _markdown(verb.help), "", *_body(load(verb), path, verb.help)]
    )


def _file(verb: Verb) -> str:
    return f"{verb.name.replace(' ', '-')}.md"


def _body(command: Any, path: str, said: str) -> Iterator[str]:
    context = typer.Context(command, info_name=path)
    if command.help and command.help != said:
        yield from (_markdown(command.help), "")
    panels = _panels(command, context)
    yield from ("```text", _usage(path, panels), "```", "")
    for panel, params in panels.items():
        yield from (f"## {panel}", "")
        for param in params:
            yield from _entry(param, context, path)


def _usage(path: str, panels: Mapping[str, list[Any]]) -> str:
    """Return the line of usage: what must be given by name, then the rest."""
    params = [param for panel in panels.values() for param in panel]
    needed = [f"{_longest(p)} …" for p in params if p.required and not _is_argument(p)]
    words = {True: "{}", False: "[{}]"}
    arguments = [words[p.required].format(p.name.upper()) for p in params if _is_argument(p)]
    return " ".join([path, *needed, "[OPTIONS]", *arguments])


def _panels(command: Any, context: typer.Context) -> dict[str, list[Any]]:
    """Return what may be given, by panel; what must be given comes first."""
    panels: dict[str, list[Any]] = {}
    for param in command.get_params(context):
        if getattr(param, "hidden", False) or "--help" in param.opts:
            continue
        own = getattr(param, "rich_help_panel", None)
        default = "Arguments" if _is_argument(param) else "Options"
        panels.setdefault(own or default, []).append(param)
    ordered = sorted(panels.items(), key=lambda item: not any(p.required for p in item[1]))
    return {panel: sorted(params, key=lambda p: not p.required) for panel, params in ordered}


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _longest(param: Any) -> str:
    return str(max(param.opts, key=len))


def _entry(param: Any, context: typer.Context, path: str) -> Iterator[str]:
    """Yield one option as an entry of a definition list, with an anchor of its own."""
    declared, described = param.get_help_record(context)
    matched = (_ARGUMENT if _is_argument(param) else _OPTION).match(declared)
    names, value = matched.group("names", "value") if matched else (declared, None)
    if _is_argument(param):
        names = names.upper()
    text, facts = _apart(described)
    anchor = re.sub(r"\W+", "-", f"{path} {_longest(param)}").strip("-")
    codes = ", ".join(f"`{name}`" for name in re.split(r", | / ", names))
    inner = (value or "").strip("<>")
    shown = f' <span class="value">{html.escape(_VALUES.get(inner, inner))}</span>' if inner else ""
    yield f'<span id="{anchor}"></span>{codes}{shown}'
    yield " ".join([f":   {text}", *(f'<span class="fact">{fact}</span>' for fact in facts)])
    yield ""


def _apart(described: str) -> tuple[str, list[str]]:
    """Split help from the facts that typer appends: `[default: 3; x>=1]`, `[required]`."""
    found = _FACTS.search(described)
    if found is None:
        return _markdown(described), []
    facts = re.split(r";\s+(?=x[<>]|-?[\d.]+<|required)", found["facts"])
    return _markdown(described[: found.start()]), [_fact(fact) for fact in facts]


def _fact(fact: str) -> str:
    if fact.startswith("default: "):
        value = fact.removeprefix("default: ")
        in_words = value.startswith("(") and value.endswith(")")
        return f"default: {_markdown(value[1:-1]) if in_words else f'`{value}`'}"
    bound = re.fullmatch(r"x>=(-?[\d.]+)", fact)
    return f"at least {bound[1]}" if bound else html.escape(fact)


def _markdown(text: str) -> str:
    """Return help as Markdown: options and specs as code, everything else as it is read."""
    parts = _CODE.split(text.replace("\\[", "[").strip())
    return "".join(
        f"`{part}`" if odd % 2 else re.sub(r"([*_<])", r"\\\1", part)
        for odd, part in enumerate(parts)
    )
