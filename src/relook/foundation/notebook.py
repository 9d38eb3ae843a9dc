"""How objects of every layer show themselves in a notebook: by the report, loaded when asked."""

from __future__ import annotations

from importlib import import_module

_WRITER = "relook.report.notebook"
"""The one name that reaches upwards: nothing is imported until a notebook asks."""


def html(shown: object) -> str:
    """Return a policy, a comparison or a search's result as HTML."""
    text: str = import_module(_WRITER).html(shown)
    return text
