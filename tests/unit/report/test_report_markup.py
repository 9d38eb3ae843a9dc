from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.report.html_reader import read_html

from relook.evaluation.comparison import Measured
from relook.foundation import wording
from relook.numerics.intervals import Interval
from relook.report.markup import Html, element, escape, join

_ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


@given(_ANY_TEXT, _ANY_TEXT)
def test_text_and_attributes_come_back_as_they_were(text: str, attribute: str) -> None:
    page = element("p", text, title=attribute)
    page.encode("utf-8")
    found = read_html(page).children
    assert [one.name for one in found] == ["p"]
    assert found[0].children == []
    for before, after in ((text, found[0].text), (attribute, found[0].attributes["title"])):
        assert after is not None
        assert len(after) == len(before)
        assert all(a == b or b == "\ufffd" for a, b in zip(before, after, strict=True))


def test_elements_nest_without_escaping_twice() -> None:
    inner = element("b", "a < b")
    assert element("p", inner, None, " & c") == "<p><b>a &lt; b</b> &amp; c</p>"
    assert escape(Html("<i>")) == "<i>"
    assert join([inner, "<"]) == "<b>a &lt; b</b>&lt;"


def test_attributes_have_their_html_names() -> None:
    assert element("img", src="x", class_="a b", aria_hidden="true", hidden=True, alt=None) == (
        '<img src="x" class="a b" aria-hidden="true" hidden>'
    )


def test_numbers_have_true_signs() -> None:
    assert wording.signed(-0.01234, 3) == "−0.012"
    assert wording.signed(0.01234, 3) == "+0.012"
    assert wording.signed(-0.0001, 3) == wording.signed(0.0, 3) == "±0.000"
    assert wording.plain(-1.5, 2) == "−1.50"
    assert wording.measured(Measured(0.951, 0.0), 2, 100) == "95.10"
    assert wording.measured(Measured(0.951, 0.002), 2, 100) == "95.10 ± 0.20"
    assert wording.interval(Interval(0, -0.1, 0.25, 0.95), 1, 10) == "[−1.0, +2.5]"
    assert [wording.slowdown(x) for x in (1.0, 99.94, 99.96)] == ["1.0×", "99.9×", "100×"]
    assert wording.count(1, "entry", "entries") == "1 entry"
    assert wording.count(1200, "view") == "1,200 views"
