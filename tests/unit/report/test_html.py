"""Templates: text stays text, and what a template was not given is an error."""

from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from tests.unit.report.html_reader import read_html

from relook.report.html import ENVIRONMENT
from relook.report.tables import Cell, Column, Table, html

_ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
_PARAGRAPH = ENVIRONMENT.from_string(
    "{% macro bold(text) %}<b>{{ text }}</b>{% endmacro %}"
    '<p title="{{ attribute }}">{{ bold(text) }}{{ text }}</p>'
)


@given(_ANY_TEXT, _ANY_TEXT)
def test_text_and_attributes_come_back_as_they_were(text: str, attribute: str) -> None:
    page = _PARAGRAPH.render(text=text, attribute=attribute)
    page.encode("utf-8")
    (paragraph,) = read_html(page).children
    (bold,) = paragraph.children
    assert (paragraph.name, bold.name, bold.children) == ("p", "b", [])
    assert paragraph.text == 2 * bold.text
    for before, after in ((text, bold.text), (attribute, paragraph.attributes["title"])):
        assert after is not None
        assert len(after) == len(before)
        assert all(a == b or b == "\ufffd" for a, b in zip(before, after, strict=True))


def test_macros_nest_without_escaping_twice() -> None:
    page = _PARAGRAPH.render(text="a < b & c", attribute='"')
    assert page == '<p title="&#34;"><b>a &lt; b &amp; c</b>a &lt; b &amp; c</p>'


def test_what_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="attribute"):
        _PARAGRAPH.render(text="")


def test_every_template_compiles_and_says_what_it_is() -> None:
    folder = files("relook.report") / "templates"
    names = {path.name for path in folder.iterdir()}
    assert names == set(ENVIRONMENT.list_templates())
    for name in names:
        ENVIRONMENT.get_template(name)
        assert name.endswith(".css") or (folder / name).read_text("utf-8").startswith("{# ")


def test_a_table_escapes_its_cells() -> None:
    columns = (Column("<name>", number=False), Column("value"))
    lines = (
        (Cell("<i>a</i>"), Cell("1.5", "0.1", "[1, 2]", bold=True)),
        (Cell("b"), Cell("2", interval="[<1, 3]")),
    )
    page = str(html(Table("<title>", columns, (lines,), note="a & b")))
    read = read_html(page)
    assert [one.words() for one in read.all("p")] == ["<title>", "a & b"]
    assert [one.words() for one in read.all("th")] == ["<name>", "value"]
    assert [one.words() for one in read.all("td")] == [
        "<i>a</i>",
        "1.5±0.1 [1, 2]",
        "b",
        "2[<1, 3]",
    ]
    assert '<td class="number"><b>1.5</b><span class="interval">±0.1 [1, 2]</span></td>' in page
