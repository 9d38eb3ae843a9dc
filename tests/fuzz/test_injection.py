"""Names from outside stay names: in the report, in CSV tables, on the terminal."""

import csv
import io
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from relook.io.files import csv_safe, for_terminal
from relook.report.html import ENVIRONMENT

HOSTILE = st.one_of(
    st.text(max_size=40),
    st.builds(
        "".join,
        st.lists(
            st.sampled_from(
                [
                    *("<script>", "</script>", "<img src=x onerror=", '"', "'", ">", "-->", "&lt;"),
                    *("=", "+", "-", "@", "\t", "\r", "\n", " ", "＝", "cmd|' /C calc'!A0", ","),
                    *("\x1b[2J", "\x00", "\u202e", "javascript:", "\ud800", "a"),
                ]
            ),
            max_size=12,
        ),
    ),
)
PARAGRAPH = ENVIRONMENT.from_string(
    '<p title="{{ attribute }}" aria-label="{{ name }}"><b>{{ name }}</b>{{ name }}</p>'
)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))


@given(HOSTILE, HOSTILE)
def test_no_name_becomes_markup(name: str, attribute: str) -> None:
    page = PARAGRAPH.render(name=name, attribute=attribute)
    parser = Tags()
    parser.feed(page)
    parser.close()
    assert parser.tags == [("p", ("title", "aria-label")), ("b", ())]
    assert page.encode()  # no surrogates are left


@given(HOSTILE)
def test_no_name_becomes_a_formula(name: str) -> None:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerow([csv_safe(name), "1"])
    ((cell, _),) = csv.reader(io.StringIO(file.getvalue()))
    assert not cell.startswith(tuple("=+-@＝＋－＠\t\r\n "))
    assert file.getvalue().count("\n") == 1


@given(HOSTILE)
def test_no_name_moves_the_cursor(name: str) -> None:
    shown = for_terminal(name * 500)
    assert shown.isprintable()
    assert len(shown) <= 2000
