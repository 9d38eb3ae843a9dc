import io
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console
from rich.progress import Task

from relook.api import progress_bars
from relook.foundation import wording


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands at the number in the list."""
    now = [100.0]
    monkeypatch.setattr("relook.api.progress_bars.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is shown where stderr is no terminal."""
    return shown(monkeypatch)


def shown(monkeypatch: pytest.MonkeyPatch, terminal: bool | None = None) -> io.StringIO:
    text = io.StringIO()
    console = Console(file=text, width=200, force_terminal=terminal)
    monkeypatch.setattr(progress_bars, "messages", console)
    return text


def test_a_log_gets_a_line_every_half_minute(text: io.StringIO, seconds: list[float]) -> None:
    with progress_bars.progress_bar("predicting", "views") as report:
        report(1000, 5000)  # what an earlier run has done
        for second in range(1, 100):
            seconds[0] += 1
            report(1000 + 10 * second, 5000)
    lines = [line for line in text.getvalue().splitlines() if " left" in line]
    assert lines == [
        "predicting: 1,300 of 5,000 (26 %), about 6 min left",
        "predicting: 1,600 of 5,000 (32 %), about 6 min left",
        "predicting: 1,900 of 5,000 (38 %), about 5 min left",
    ]


def test_the_next_stage_of_the_same_work_is_timed_by_itself(
    text: io.StringIO, seconds: list[float]
) -> None:
    with progress_bars.progress_bar("search") as report:
        for done, total in ((0, 1000), (999, 1000), (10, 200), (40, 200)):
            report(done, total)
            seconds[0] += 3000 if done == 999 else 31
    assert "search: 10 of 200 (5 %)\n" in text.getvalue()
    assert "40 of 200 (20 %), about 3 min left" in text.getvalue()


def test_a_rate_of_one_is_singular() -> None:
    def rate(speed: float) -> str:
        task = SimpleNamespace(finished_speed=None, speed=speed)
        return progress_bars._Rate("epochs").render(cast(Task, task)).plain

    assert [rate(one) for one in (1.2, 2, 1234)] == ["1 epoch/s", "2 epochs/s", "1,234 epochs/s"]


def test_work_that_stands_still_has_no_time_left(text: io.StringIO, seconds: list[float]) -> None:
    with progress_bars.progress_bar("predicting") as report:
        report(5, 10)
        seconds[0] += 40
        report(5, 10)
    assert "predicting: 5 of 10 (50 %)\n" in text.getvalue()


def test_a_terminal_has_its_bar_alone(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float]
) -> None:
    text = shown(monkeypatch, terminal=True)
    with progress_bars.progress_bar("predicting") as report:
        for done in range(10):
            seconds[0] += 40
            report(done, 10)
    assert " left" not in text.getvalue()


@pytest.mark.parametrize(
    ("duration", "text"),
    [(90, "90 s"), (120, "2 min"), (5399, "90 min"), (7200, "2.0 h"), (864_000, "10 days")],
)
def test_durations(duration: float, text: str) -> None:
    assert wording.duration(duration) == text
