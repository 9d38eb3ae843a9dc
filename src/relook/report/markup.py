"""HTML that is safe by construction: whatever is not an element already is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | None
Attribute = str | int | float | bool | None

_EMPTY = frozenset({"img", "br"})
# Neither HTML nor UTF-8 has a place for these, and a class name may hold any of them.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> Html:
    """Return the text as HTML; HTML stays what it is."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(_FORBIDDEN.sub("\ufffd", text)))


def join(children: Iterable[Child]) -> Html:
    """Put children one after the other; None is left out."""
    return Html("".join(escape(child) for child in children if child is not None))


def element(name: str, *children: Child, **attributes: Attribute) -> Html:
    """Return `<name attributes>children</name>`; `class_` is class, `aria_label` aria-label.

    An attribute that is None or False is left out.
    """
    head = name + "".join(
        _attribute(key, value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _EMPTY:
        return Html(f"<{head}>")
    return Html(f"<{head}>{join(children)}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
