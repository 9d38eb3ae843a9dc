"""Shows objects of any layer as HTML, text or figures, with `relook.report` loaded on use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WRITER = "relook.report.notebook"
"""The only import from a higher layer, by name and on use."""


def html(shown: object) -> str:
    """Return a policy, a comparison or a search's result as HTML."""
    return str(import_module(_WRITER).html(shown))


def text(shown: object) -> str:
    """Return a comparison or a search's result as text that fits the screen."""
    return str(import_module(_WRITER).text(shown))


def figure(comparison: object, name: str) -> Any:
    """Return a figure of a comparison."""
    return import_module(_WRITER).figure(comparison, name)
