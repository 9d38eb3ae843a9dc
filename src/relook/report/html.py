"""Pages from templates: names from files are escaped, whatever the template forgets."""

from __future__ import annotations

import re

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from relook.foundation import wording
from relook.version import __version__

# Neither HTML nor UTF-8 has a place for these, and a class name may hold any of them.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def _encodable(value: object) -> object:
    """Return a text from outside without characters that a page cannot hold."""
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
"""The templates of this package; `wording` writes numbers in them as everywhere else."""
ENVIRONMENT.globals |= {"wording": wording, "version": __version__}


def render(template: str, **data: object) -> Markup:
    """Return a template filled in, as HTML that other templates take as it is."""
    return Markup(ENVIRONMENT.get_template(template).render(data))  # noqa: S704  autoescaped
