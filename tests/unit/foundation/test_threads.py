import threading
import time

import pytest

from relook.foundation.threads import AHEAD, made_ahead


def running() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("relook-ahead")]


def test_results_come_in_order_and_are_made_in_another_thread() -> None:
    makers = set()

    def square(number: int) -> int:
        makers.add(threading.get_ident())
        return number**2

    with made_ahead(square, range(20)) as made:
        assert list(made) == [n**2 for n in range(20)]
    assert makers
    assert threading.get_ident() not in makers
    assert running() == []


def test_the_maker_is_ahead_but_not_far() -> None:
    begun: list[int] = []
    with made_ahead(begun.append, range(50)) as made:
        for used, _ in enumerate(made):
            waited = time.monotonic() + 5
            while len(begun) < min(50, used + 1 + AHEAD) and time.monotonic() < waited:
                time.sleep(0.001)
            assert len(begun) == min(50, used + 1 + AHEAD)


def test_an_error_comes_in_its_place() -> None:
    def make(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    seen: list[int] = []

    def use() -> None:
        with made_ahead(make, range(9)) as made:
            for result in made:
                seen.append(result)

    with pytest.raises(ValueError, match="three"):
        use()
    assert seen == [0, 1, 2]
    assert running() == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_runs_on_when_the_user_fails(error: type[BaseException]) -> None:
    begun: list[int] = []

    def use() -> None:
        with made_ahead(begun.append, range(1000)) as made:
            for used, _ in enumerate(made):
                if used == 5:
                    raise error

    with pytest.raises(error):
        use()
    assert running() == []
    assert len(begun) <= 6 + AHEAD
