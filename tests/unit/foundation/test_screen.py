import io

import pytest

from relook.foundation.screen import Screen, print_facts, print_prose, wrapped


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


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


VERDICT = (
    "Helps: use the learned policy with 8 views. Compared with the plain image: held-out cLL "
    "+0.0628 [+0.0255, +0.1002], accuracy +1.4 points [+0.1, +3.0]. It loses on 1 class: "
    "St. Bernard."
)


@pytest.mark.parametrize("width", [40, 47, 60, 80])
def test_prose_is_wrapped_on_a_terminal_alone(width: int) -> None:
    terminal, piped = (Screen(file=file, width=width) for file in (Terminal(), io.StringIO()))
    for console in (terminal, piped):
        print_prose(console, VERDICT)
    lines = terminal.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) > 2
    assert max(map(len, lines)) <= width
    assert " ".join(lines) == VERDICT  # broken at spaces, and nothing else changed
    for whole in ("+0.0628 [+0.0255, +0.1002],", "+1.4 points", "8 views."):
        assert any(whole in line for line in lines)
    assert piped.file.getvalue() == f"{VERDICT}\n"  # type: ignore[attr-defined]


def test_a_command_is_not_broken() -> None:
    command = "relook export runs/a-rather-long-name/policy.json -o model.onnx"
    text = f"written to runs/a-rather-long-name:  {command}  deploys it; and so on, and so on"
    lines = wrapped(text, 50).splitlines()
    assert lines == [
        "written to runs/a-rather-long-name:",
        command,
        "deploys it; and so on, and so on",
    ]


def test_a_verdict_is_a_list_of_facts() -> None:
    console = Screen(file=Terminal(), width=80, color_system=None)
    print_facts(console, VERDICT)
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "Helps: use the learned policy with 8 views.",
        "  Compared with the plain image: held-out cLL +0.0628 [+0.0255, +0.1002],",
        "    accuracy +1.4 points [+0.1, +3.0].",
        "  It loses on 1 class: St. Bernard.",
    ]
