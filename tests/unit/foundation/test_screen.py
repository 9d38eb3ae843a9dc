import io

import pytest

from relook.foundation.screen import Screen


def test_what_is_no_terminal_is_wide_unless_columns_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    piped = Screen(file=io.StringIO())
    assert piped.width == 160
    monkeypatch.setenv("COLUMNS", "90")
    assert piped.width == 90
    monkeypatch.delenv("COLUMNS")
    assert Screen(file=io.StringIO(), force_terminal=True).width != 160
