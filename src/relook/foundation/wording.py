"""Numbers as text: the same digits and signs wherever they are printed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

_ROUNDING = 1e-6
_NEXT_SENTENCE = re.compile(r"(?<=\.)(?<!\b[A-Z]\.)(?<!\b[A-Z][a-z]\.) (?=[A-Z])")  # not “St. ”


class Spread(Protocol):
    """A mean over runs, and its standard deviation."""

    @property
    def mean(self) -> float:
        """The mean."""

    @property
    def deviation(self) -> float:
        """The standard deviation; 0 for a single run."""


class Range(Protocol):
    """An interval's two ends."""

    @property
    def low(self) -> float:
        """The lower end."""

    @property
    def high(self) -> float:
        """The upper end."""


def signed(value: float, digits: int) -> str:
    """Return a number with its sign, a true minus (U+2212); zero gets ±."""
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text.replace("-", "±").replace("+", "±")


def plain(value: float, digits: int) -> str:
    """Return a number with a true minus."""
    return f"{value:.{digits}f}".replace("-", "−")


def measured(value: Spread, digits: int, scale: float = 1.0) -> str:
    """Return a mean, with ± the standard deviation unless that is 0."""
    text = plain(value.mean * scale, digits)
    if value.deviation > 0:
        text += f" ± {value.deviation * scale:.{digits}f}"
    return text


def interval(value: Range, digits: int, scale: float = 1.0) -> str:
    """Return `[low, high]`."""
    low, high = signed(value.low * scale, digits), signed(value.high * scale, digits)
    return f"[{low}, {high}]"


def is_zero(found: Range | None) -> bool:
    """Whether an interval is [0, 0] up to rounding, as between equal predictions."""
    return found is not None and max(abs(found.low), abs(found.high)) < _ROUNDING


def slowdown(value: float) -> str:
    """Return a cost relative to one plain pass: `4.9×`."""
    return f"{value:.1f}×" if value < 99.95 else f"{value:.0f}×"


def count(number: int, one: str, many: str | None = None) -> str:
    """Return `1 view`, `1,000 views`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def views_text(views: int) -> str:
    """Return `1 view` or `5 views`."""
    return count(views, "view")


def at_view_temperature(value: float) -> str:
    """Return `, view temperature …` to append to a list; empty for the usual average."""
    return "" if value == 1 else f", view temperature {value:.4g}"


def two_temperatures(view_temperature: float) -> str:
    """Return an explanation of a view temperature, and of the temperature beside it."""
    return (
        f"the view temperature, {view_temperature:.4g}, makes each view's prediction flatter "
        "before views are averaged; the temperature then makes their average as sure as it should "
        "be (below 1: sharper)"
    )


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes, hours or days."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:,.0f} days"


def with_minus_signs(text: str) -> str:
    """Return a text with true minus signs before numbers; hyphens in names stay."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def facts(text: str) -> list[str]:
    """Return the sentences of a text."""
    return _NEXT_SENTENCE.split(text)


def first_few(names: Sequence[str]) -> str:
    """Return the first three names, with `, …` if there are more."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if the message is empty."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
