import threading
import time

import pytest

from relook.errors import RelookError
from relook.foundation.watchdog import CallLimit, limited_calls, watched


def test_a_call_that_takes_too_long_is_named_while_it_runs() -> None:
    named: list[str] = []
    told = threading.Event()

    def give_up(where: str) -> None:
        named.append(where)
        told.set()

    with limited_calls(CallLimit(0.01, give_up)):
        with watched(lambda: "images 0…9"):
            assert told.wait(10)
        with watched(lambda: "a short call"):
            pass
    time.sleep(0.05)
    assert named == ["images 0…9"]


def test_without_a_limit_nothing_is_started() -> None:
    before = threading.active_count()
    with watched(lambda: pytest.fail("asked")):
        assert threading.active_count() == before
    with limited_calls(CallLimit(60, lambda where: None)), watched(lambda: ""):
        assert threading.active_count() == before + 1
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_is_a_number_above_0(seconds: float) -> None:
    with pytest.raises(RelookError, match="--timeout: expected a number of seconds above 0"):
        CallLimit(seconds, lambda where: None)
