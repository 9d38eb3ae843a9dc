"""How objects of every layer show themselves: by the report, which is loaded when asked."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WRITER = "relook.report.notebook"
"""The one name that reaches upwards: nothing is imported until somebody looks."""


def html(shown: object) -> str:
    """Return a policy, a comparison or a search's result as HTML."""
    return str(import_module(_WRITER).html(shown))


def text(shown: object) -> str:
    """Return a comparison or a search's result as text that fits a screen."""
    return str(import_module(_WRITER).text(shown))


def figure(comparison: object, name: str) -> Any:
    """Return a figure of a comparison."""
    return import_module(_WRITER).figure(comparison, name)
