from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tests.support import refused

from relook.evaluation.latency import FEW, ROUNDS, Latency, Limit, Rung, Stopwatch, choose
from relook.numerics.intervals import Interval

PLAIN = Rung("plain", "", 1, -0.5)


def ladder(gains: Sequence[float]) -> list[Rung]:
    return [PLAIN, *(Rung("gps", "policy", k + 1, -0.5 + g) for k, g in enumerate(gains))]


class Bench:
    """Places that take a known time; notes which were measured thoroughly."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times, self.thorough = times, set[int]()

    def __call__(self, places: Sequence[int], rounds: int) -> dict[int, float]:
        assert rounds in (FEW, ROUNDS)
        if rounds == ROUNDS:
            self.thorough |= set(places)
        return {place: self.times[place] for place in places}


def test_the_best_within_the_budget_is_found_and_few_are_measured() -> None:
    bench = Bench([2.0, *(2.0 * k for k in range(1, 101))])
    rungs = ladder([0.001 * k for k in range(100)])
    measured, place = choose(rungs, 27.0, bench)
    assert (measured[place].views, measured[place].milliseconds) == (13, 26.0)
    assert len(measured) < 12
    assert {one.views for one in measured} >= {1, 2, 3, 5, 10, 13, 14}


def test_more_views_that_are_worse_are_not_taken_and_the_choice_is_measured() -> None:
    gains = [0.0, 0.01, 0.02, 0.09, 0.03, 0.04, 0.05, 0.05, 0.05, 0.06]
    bench = Bench([1.0, *(1.0 * k for k in range(1, 11))])
    measured, place = choose(ladder(gains), 9.5, bench)
    assert measured[place].views == 4
    assert 4 in bench.thorough  # though no step leads there


def test_views_that_lose_leave_the_plain_image() -> None:
    measured, place = choose(ladder([-0.1, -0.05]), 99.0, Bench([1.0, 1.0, 2.0]))
    assert measured[place].method == "plain"


def test_without_scores_it_is_as_many_views_as_fit() -> None:
    rungs = [replace(one, cll=None) for one in ladder([0.0] * 7)]
    measured, place = choose(rungs, 6.5, Bench([1.0, *range(1, 8)]))
    assert measured[place].views == 6


def test_a_time_that_the_plain_image_misses_is_refused_with_its_figure() -> None:
    refused(
        "within 1.5 ms, got 2 ms for the plain image", choose, ladder([0.1]), 1.5, Bench([2, 3])
    )


def test_medians_come_from_rounds_that_time_everything_in_turn() -> None:
    now, order = 0.0, list[int]()

    def open_call(place: int) -> Callable[[], object]:
        def call() -> None:
            nonlocal now
            order.append(place)
            # Every fifth call is held up by other work.
            now += 0.001 * (place + 1) * (50 if len(order) % 5 == 0 else 1)

        return call

    found = Stopwatch(open_call, lambda: now)([0, 2], ROUNDS)
    assert found == pytest.approx({0: 1.0, 2: 3.0})
    assert order[:2] == [0, 2]  # the first calls are not counted
    assert order[2:] == [0, 2] * ROUNDS


def test_limits_are_times_with_a_unit() -> None:
    assert Limit.read("40ms") == Limit(40.0)
    assert Limit.read("0.2 s", 8) == Limit(200.0, 8)
    for wrong in ("40", "ms", "-3ms", "0ms", "40 min", 40, "nanms"):
        refused("expected a time with its unit, as 40ms or 0.2s", Limit.read, wrong)
    refused("expected a batch of at least 1 image, got 0", Limit.read, "1s", 0)


def test_the_answer_in_words() -> None:
    gain = Interval(0.02, 0.01, 0.03, 0.95)
    rungs = (
        replace(PLAIN, milliseconds=2.0),
        Rung("gps", "policy", 3, -0.48, gain, 6.0),
        Rung("gps", "policy", 5, -0.47, gain, 11.0),
    )
    found = Latency(rungs, 1, 8.0, 1, "ONNX Runtime", "cpu", 2, "image of 32 × 32", "")
    assert found.sentence == (
        "Within 8 ms: policy, 3 views, 6 ms, cLL −0.4800 (+0.0200 [+0.0100, +0.0300] over the "
        "plain image). Too slow: policy, 5 views, 11 ms."
    )
    assert [found.further(place) for place in range(3)] == [None, 2.0, 2.5]
    assert "2 threads" in found.where
    advised = replace(found, rungs=rungs[:1], chosen=0, budget=60.0, plain_advised=True)
    assert advised.sentence == (
        "Within 60 ms: the plain image, 2 ms, cLL −0.5000, as the verdict recommends; more views "
        "were not timed: method='policy' (--method policy) finds how many fit."
    )
