"""Pages from templates; text from files is always escaped."""

from __future__ import annotations

import re

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from relook.foundation import wording
from relook.version import __version__

# HTML or UTF-8 forbids these characters, but a class name may have them.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def _encodable(value: object) -> object:
    """Replace characters that are not allowed on a page."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _FORBIDDEN.sub("\ufffd", value)
    return value


ENVIRONMENT = Environment(
    loader=PackageLoader("relook.report"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_encodable,
    trim_blocks=True,
    lstrip_blocks=True,
)
"""This package's templates; they format numbers with `wording`, as everywhere else."""
ENVIRONMENT.globals |= {"wording": wording, "version": __version__}


def render(template: str, **data: object) -> Markup:
    """Fill in a template; the result is safe HTML, which other templates do not escape again."""
    return Markup(ENVIRONMENT.get_template(template).render(data))  # noqa: S704  autoescaped
