from typing import Any

import numpy as np
import pytest
import torch
from tests.support import refused
from torch import Tensor

from relook.evaluation import cost
from relook.evaluation.cost import Slowdown, measure_slowdown
from relook.models import CallablePredictor
from relook.policy import Policy, Step, SubPolicy
from relook.policy.views import apply_subpolicy

PLAIN = SubPolicy()
CROP = SubPolicy((), Step("crop", 2))
TURNS = tuple(SubPolicy((Step("quarter_turn", k),)) for k in (1, 2, 3))


class Clock:
    """Time that passes only when the model works: so much an image, so much a call."""

    def __init__(self, image: float = 1.0, call: float = 0.0) -> None:
        self.now = 0.0
        self.image, self.call = image, call
        self.calls: list[int] = []

    def __call__(self) -> float:
        return self.now

    def predictor(self) -> CallablePredictor:
        def work(images: Tensor) -> Tensor:
            self.calls.append(len(images))
            self.now += self.call + self.image * len(images)
            return torch.zeros(len(images), 2)

        return CallablePredictor(work, outputs="logits", classes=2)


def images(count: int = 40) -> Tensor:
    return torch.zeros((count, 1, 8, 8), dtype=torch.uint8)


def measured(clock: Clock, **policies: Policy) -> dict[str, Slowdown]:
    return measure_slowdown(clock.predictor(), images(), policies, clock=clock)


def test_views_that_cost_the_same_cost_as_many_times_the_plain_pass() -> None:
    clock = Clock(image=1e-4)
    found = measured(clock, turns=Policy((PLAIN, *TURNS)), plain=Policy((PLAIN,)))
    assert found["turns"].costs == pytest.approx((1, 1, 1, 1))
    for views in (1, 2, 3, 4, 10, 100):
        assert found["turns"].at(views) == pytest.approx(views)
    assert found["plain"].at(1) == pytest.approx(1)


def test_fixed_repeats_are_free_and_fresh_ones_are_not() -> None:
    policies = {"fixed": Policy((TURNS[0],) * 5), "fresh": Policy((CROP,) * 5)}
    found = measured(Clock(image=1e-4), **policies)
    assert len(found["fixed"].costs) == 1
    assert len(found["fresh"].costs) == 5


def test_a_slow_model_is_measured_on_fewer_images_and_less_often() -> None:
    clock = Clock(image=1.0)
    found = measured(clock, x=Policy(TURNS))
    assert found["x"].at(3) == pytest.approx(3)
    assert set(clock.calls) == {32, 1}
    assert clock.calls.count(1) == 3 + 3 * 4  # each view once, then rounds of 4 seconds within 15


def test_a_quick_model_is_measured_fifteen_times() -> None:
    clock = Clock(image=1e-6)
    measured(clock, x=Policy(TURNS[:1]))
    # Before: the plain image once, thrice to know its time, and the policy's first view.
    assert len(clock.calls) == 5 + 15 * 2


@pytest.mark.parametrize("seed", range(5))
def test_other_work_on_the_machine_changes_little(seed: int) -> None:
    """Two passes in three are held up, by up to ten times what they take."""
    clock, generator = Clock(image=1e-4), np.random.default_rng(seed)
    predictor = clock.predictor()

    def held_up(batch: Tensor) -> Tensor:
        clock.now += 1e-4 * len(batch) * generator.choice([0, 1, 10]) * generator.uniform()
        return predictor(batch)

    busy = CallablePredictor(held_up, outputs="log_probs", classes=2)
    policies = {"turns": Policy(TURNS), "crops": Policy((CROP,) * 12), "plain": Policy((PLAIN,))}
    found = measure_slowdown(busy, images(), policies, clock=clock)
    assert found["turns"].at(3) == pytest.approx(3, rel=0.05)
    assert found["crops"].at(12) == pytest.approx(12, rel=0.05)


def test_a_view_that_is_held_up_in_every_round_costs_no_more() -> None:
    clock = Clock(image=1e-4)
    predictor = clock.predictor()

    def held_up(batch: Tensor) -> Tensor:
        clock.now += 1.0 if len(clock.calls) % 4 == 2 else 0.0
        return predictor(batch)

    busy = CallablePredictor(held_up, outputs="log_probs", classes=2)
    found = measure_slowdown(busy, images(), {"x": Policy(TURNS)}, clock=clock)
    assert found["x"].costs == pytest.approx((1, 1, 1))


def test_making_a_view_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(image=1e-4)
    make = apply_subpolicy

    def slowly(subpolicy: SubPolicy, batch: Tensor, *own: Any) -> Tensor:
        clock.now += 2e-4 * len(batch) * (subpolicy == CROP)
        return make(subpolicy, batch, *own)

    monkeypatch.setattr(cost, "apply_subpolicy", slowly)
    found = measured(clock, x=Policy((TURNS[0], CROP)))
    assert found["x"].costs == pytest.approx((1, 3))


def test_what_the_first_call_of_a_view_takes_is_not_counted() -> None:
    clock, corners = Clock(image=1e-4), set[int]()
    predictor = clock.predictor()

    def compiled_at_first(batch: Tensor) -> Tensor:
        corner = int(batch[0, 0, 0, 0])  # another one in every quarter turn
        clock.now += 0.0 if corner in corners else 100.0
        corners.add(corner)
        return predictor(batch)

    model = CallablePredictor(compiled_at_first, outputs="log_probs", classes=2)
    pictures = torch.arange(64, dtype=torch.uint8).reshape(1, 1, 8, 8).repeat(40, 1, 1, 1)
    found = measure_slowdown(model, pictures, {"x": Policy(TURNS)}, clock=clock)
    assert len(corners) == 4
    assert found["x"].costs == pytest.approx((1, 1, 1))


def test_no_images_are_refused() -> None:
    own = Clock().predictor(), images(0), {"x": Policy(TURNS)}
    refused("at least one image", measure_slowdown, *own)


def test_views_add_up_and_those_not_timed_cost_the_mean() -> None:
    line = Slowdown((1.0, 4.0, 1.0))
    assert [line.at(k) for k in (1, 2, 3, 6)] == [1.0, 5.0, 6.0, 12.0]


def test_real_time_is_taken_by_default() -> None:
    predictor = CallablePredictor(lambda x: torch.zeros(len(x), 2), outputs="logits", classes=2)
    found = measure_slowdown(predictor, images(), {"x": Policy(TURNS)}, seconds=0.05)
    assert 0 < found["x"].at(1) < found["x"].at(100)
