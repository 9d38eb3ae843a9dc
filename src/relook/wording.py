"""Small pieces of text that several modules write alike."""

from __future__ import annotations

import re


def counted(number: float, noun: str) -> str:
    """Return `1 view` or `5 views`."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


def views_text(views: int) -> str:
    """Return `1 view` or `5 views`."""
    return counted(views, "view")


def with_minus_signs(text: str) -> str:
    """Return the text with the sign of negative numbers as it is printed; hyphens stay."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)
