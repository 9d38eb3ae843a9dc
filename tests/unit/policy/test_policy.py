from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import refused

from relook import TRANSFORMS, Policy, Step, SubPolicy
from relook.policy.pool import sample_pool

FINISH = Step("crop_flip", 4)
FIXED_FINISH = Step("crop_flip", 4, draws={"x": 0.5, "y": 0.25, "flip": 1})
FRESH = SubPolicy((Step("rotate", 13.2),), FINISH)
FIXED = SubPolicy((Step("color", 7.1),), FIXED_FINISH)
PLAIN = SubPolicy()


def test_a_step_knows_its_value() -> None:
    assert Step("rotate", 13.5).value == pytest.approx(18.0)
    assert Step("color", 10, -1).value == pytest.approx(-0.3)
    assert Step("color", 10).direction == 1
    assert Step("rotate", 10).direction is None


@pytest.mark.parametrize("magnitude", [3, 3.0, np.float32(3), np.int64(3), Fraction(3)])
def test_a_magnitude_is_a_float(magnitude: Any) -> None:
    step = Step("rotate", magnitude)
    assert str(Step("autocontrast", -0.0)) == "autocontrast 0 % cut off"
    assert type(step.magnitude) is float
    assert step == Step("rotate", 3)
    assert hash(step) == hash(Step("rotate", 3))


NAN, HUGE = float("nan"), 10**400
REFUSED: list[tuple[Callable[..., object], str, str, list[Any]]] = [
    (Step, "transform", "unknown transform", ["", None, 3, ["rotate"]]),
    (Step, "transform", "did you mean 'rotate'", ["rotat"]),
    (
        *(partial(Step, "rotate"), "magnitude", "^rotate: expected a finite magnitude ≥ 0, got "),
        [-1, NAN, float("inf"), HUGE, "3", None, True, [3], 1j],
    ),
    (
        *(partial(Step, "color", 1), "direction", r"^color: expected a direction of \+1 or −1"),
        [0, 2, True, "1", 0.5, NAN],
    ),
    (
        *(partial(Step, "rotate", 1), "draws", "^rotate: expected draws as a mapping"),
        [3, "sign", [1, 2], [([], 1)]],
    ),
    (
        *(partial(Step, "rotate", 1), "draws", "^rotate: expected .* to be .*; got "),
        [{"sign": 0}, {"sign": "−"}, {"sign": None}],
    ),
    (
        *(partial(Step, "crop_flip", 1), "draws", "^crop_flip: expected .* to be .*; got "),
        [
            {"x": 0.5, "y": 1.0001, "flip": 1},
            {"x": NAN, "y": 0, "flip": 1},
            {"x": HUGE, "y": 0, "flip": 1},
            {"x": 0, "y": 0, "flip": 0.5},
        ],
    ),
    (SubPolicy, "steps", "of Step objects", [("rotate",), (None,), (FRESH,)]),
    (SubPolicy, "finish", "of Step objects", ["crop_flip"]),
    (Policy, "subpolicies", "of SubPolicy objects, got Step", [(FINISH,)]),
    (
        *(partial(Policy, (PLAIN, PLAIN)), "temperatures", "temperatures"),
        [3.0, "12", [1, 0], [1, -1], [1, NAN], [1, "2"], [1, None], [1, HUGE]],
    ),
    (partial(Policy, ()), "seed", "expected a seed", [-1, 2**64, 1.0, "1", None, True]),
    (partial(Policy, ()), "recipe", "expected a recipe's name or None, got 3", [3]),
    (Policy((PLAIN,)).for_budget, "views", "at least 1 view, got 0", [0]),
]


@pytest.mark.parametrize(("make", "name", "message", "values"), REFUSED)
def test_what_makes_no_sense_is_refused(
    make: Callable[..., object], name: str, message: str, values: list[Any]
) -> None:
    others = {"magnitude": 1} if name == "transform" else {}
    for value in values:
        refused(message, make, **{name: value}, **others)


@pytest.mark.parametrize("name", [row.name for row in TRANSFORMS.values() if not row.signed])
def test_only_signed_transforms_have_a_direction(name: str) -> None:
    refused("expected no direction, got 1", Step, name, 1, 1)


@pytest.mark.parametrize("row", TRANSFORMS.values(), ids=lambda row: row.name)
def test_draws_are_all_or_nothing(row: Any) -> None:
    good = dict.fromkeys(row.draws, 1)
    step = Step(row.name, 1, draws=good)
    assert step.fixed_draws == good
    assert step.is_fixed
    assert Step(row.name, 1).is_fixed == (not row.draws)
    for bad in ({**good, "other": 1}, dict(list(good.items())[1:]), {"flip": 1, "sign": 1}):
        if bad != good:
            refused(f"^{row.name}: expected the draws", Step, row.name, 1, draws=bad)


def test_the_order_of_draws_makes_no_difference() -> None:
    one = Step("cutout", 1, draws={"x": 0.5, "y": 0.25})
    other = Step("cutout", 1, draws=(("y", 0.25), ("x", 0.5)))
    assert one == other
    assert hash(one) == hash(other)


def test_printing() -> None:
    fresh = SubPolicy((Step("rotate", 13.2), Step("color", 7.1), Step("cutout", 30)))
    assert str(fresh) == "rotate ±17.6° · color × 1.21 · cutout 50 % of the width"
    fixed = SubPolicy(
        (
            Step("shear_x", 5, draws={"sign": -1, "edge": 1}),
            Step("brightness", 12.345, -1),
            Step("invert", 3),
        ),
        FIXED_FINISH,
    )
    assert str(fixed) == (
        "shear_x −0.0833, bottom kept · brightness × 0.671 · invert · shift 2 px down, mirrored"
    )
    assert str(PLAIN) == "plain image"
    assert (
        str(Policy((FRESH, PLAIN, FRESH)))
        == "  2 × rotate ±17.6° · random shift by up to 4 px, mirrored or not\n  1 × plain image"
    )
    assert str(Policy(())) == "empty policy"


def test_temperatures_are_one_a_prefix() -> None:
    assert Policy((PLAIN, PLAIN), np.array([1, 2])).temperatures == (1.0, 2.0)  # type: ignore[arg-type]
    refused("expected 2 temperatures, one per prefix, got 1", Policy, (PLAIN, PLAIN), (1.0,))


def test_a_policy_is_a_sequence_that_can_be_hashed() -> None:
    policy = Policy([FRESH, PLAIN, FIXED, PLAIN], seed=np.int64(3))  # type: ignore[arg-type]
    assert list(policy) == [FRESH, PLAIN, FIXED, PLAIN]
    assert policy[-1] == policy[np.int64(1)] == PLAIN
    assert policy.index(FIXED) == 2
    assert {policy, Policy((FRESH, PLAIN, FIXED, PLAIN), seed=3)} == {policy}
    with pytest.raises(IndexError):
        policy[4]


_SLICE = st.builds(
    slice,
    st.none() | st.integers(-6, 6),
    st.none() | st.integers(-6, 6),
    st.none() | st.integers(-3, 3).filter(bool),
)


@given(key=_SLICE)
def test_only_a_prefix_keeps_its_temperatures(key: slice) -> None:
    assert Policy((FRESH, PLAIN))[:1].temperatures is None
    subs = tuple(SubPolicy((Step("rotate", m),)) for m in range(5))
    policy = Policy(subs, (1, 2, 3, 4, 5), "cifar", 7)
    part = policy[key]
    assert part.subpolicies == subs[key]
    assert (part.recipe, part.seed) == ("cifar", 7)
    if part.temperatures is not None:
        assert part.temperatures == (1.0, 2.0, 3.0, 4.0, 5.0)[: len(part)]
        assert part.subpolicies == subs[: len(part)]
    elif part:
        assert part.subpolicies != subs[: len(part)] or len(part) == 1


def test_a_repeat_costs_nothing_when_it_is_the_same_view() -> None:
    assert Policy((FRESH, FRESH)).views == 2
    assert Policy((FIXED, FIXED)).views == 1
    assert Policy((PLAIN, FIXED, PLAIN, FRESH, FRESH)).views == 4
    assert Policy(()).views == 0


_SUBS = [PLAIN, FRESH, FIXED, SubPolicy((Step("color", 3),)), SubPolicy((Step("cutout", 9),))]


@given(subs=st.lists(st.sampled_from(_SUBS), max_size=12), budget=st.integers(1, 9))
def test_a_budget_is_met_by_the_longest_prefix(subs: list[SubPolicy], budget: int) -> None:
    policy = Policy(tuple(subs), tuple(range(1, len(subs) + 1)))
    prefixes = [policy[:k] for k in range(len(policy) + 1)]
    assert policy.for_budget(budget) == [p for p in prefixes if p.views <= budget][-1]


def test_counts_are_in_the_order_of_first_use() -> None:
    policy = Policy((FIXED, PLAIN, FIXED, FRESH, PLAIN, FIXED))
    assert policy.counts() == [(FIXED, 3), (PLAIN, 2), (FRESH, 1)]


def test_freezing_draws_every_constant_once() -> None:
    subs = sample_pool("cifar", 40, seed=1, draws="fresh")
    policy = Policy(subs, range(1, 41), "cifar", 5)  # type: ignore[arg-type]
    frozen = policy.freeze(9)
    assert frozen.is_fixed
    assert not policy.is_fixed
    assert frozen.temperatures is None
    assert (frozen.recipe, frozen.seed) == ("cifar", 9)
    assert frozen == policy.freeze(9)
    assert frozen.subpolicies != policy.freeze(10).subpolicies
    assert Policy((FRESH,) * 6).freeze(0).views > 1
    fixed = Policy((FIXED, PLAIN), (1, 1))
    assert fixed.freeze(3).subpolicies == fixed.subpolicies
    bare = [[replace(step, draws=None) for step in sub.all_steps] for sub in frozen]
    assert bare == [list(sub.all_steps) for sub in policy]
