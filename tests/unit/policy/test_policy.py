from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import refused

from relook import TRANSFORMS, Policy, RelookError, Step, SubPolicy
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
    assert type(step.magnitude) is float
    assert step == Step("rotate", 3)
    assert hash(step) == hash(Step("rotate", 3))


@pytest.mark.parametrize(
    "magnitude", [-1, float("nan"), float("inf"), 10**400, "3", None, True, [3], 1j]
)
def test_a_bad_magnitude_is_refused(magnitude: Any) -> None:
    refused(r"^rotate: expected a finite magnitude ≥ 0, got ", Step, "rotate", magnitude)


def test_minus_zero_is_zero() -> None:
    assert str(Step("rotate", -0.0)) == "rotate 0"


@pytest.mark.parametrize("name", ["rotat", "", None, 3, ["rotate"]])
def test_an_unknown_transform_is_refused(name: Any) -> None:
    refused("unknown transform", Step, name, 1)


def test_a_misspelt_transform_gets_a_hint() -> None:
    refused("did you mean 'rotate'", Step, "rotat", 1)


@pytest.mark.parametrize("direction", [0, 2, True, "1", 0.5, float("nan")])
def test_a_bad_direction_is_refused(direction: Any) -> None:
    refused(r"^color: expected a direction of \+1 or −1", Step, "color", 1, direction)


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


@pytest.mark.parametrize(
    ("name", "draws"),
    [
        ("rotate", {"sign": 0}),
        ("rotate", {"sign": "−"}),
        ("rotate", {"sign": None}),
        ("shear_x", {"sign": 1, "edge": -1}),
        ("cutout", {"x": 0.5, "y": 1.0001}),
        ("cutout", {"x": float("nan"), "y": 0}),
        ("cutout", {"x": 10**400, "y": 0}),
        ("crop_flip", {"x": 0, "y": 0, "flip": 0.5}),
    ],
)
def test_a_bad_draw_is_refused(name: str, draws: Any) -> None:
    refused(f"^{name}: expected .* to be .*; got ", Step, name, 1, draws=draws)


@pytest.mark.parametrize("draws", [3, "sign", [1, 2], [([], 1)]])
def test_draws_must_be_a_mapping(draws: Any) -> None:
    refused(r"^rotate: expected draws as a mapping", Step, "rotate", 1, draws=draws)


def test_the_order_of_draws_makes_no_difference() -> None:
    one = Step("cutout", 1, draws={"x": 0.5, "y": 0.25})
    other = Step("cutout", 1, draws=(("y", 0.25), ("x", 0.5)))
    assert one == other
    assert hash(one) == hash(other)


def test_printing() -> None:
    fresh = SubPolicy((Step("rotate", 13.2), Step("color", 7.1), Step("cutout", 30)))
    assert str(fresh) == "rotate 13.2 · color +7.1 · cutout 30"
    fixed = SubPolicy(
        (
            Step("shear_x", 5, draws={"sign": -1, "edge": 1}),
            Step("brightness", 12.345, -1),
            Step("invert", 3),
        ),
        FIXED_FINISH,
    )
    assert str(fixed) == (
        "shear_x 5 (−, far edge) · brightness −12.3 · invert · crop_flip 4 (x 0.50, y 0.25, flip)"
    )
    assert str(PLAIN) == "plain image"
    assert (
        str(Policy((FRESH, PLAIN, FRESH))) == "  2 × rotate 13.2 · crop_flip 4\n  1 × plain image"
    )
    assert str(Policy(())) == "empty policy"


@pytest.mark.parametrize("steps", [("rotate",), (None,), (FRESH,)])
def test_a_subpolicy_takes_steps_only(steps: Any) -> None:
    refused("expected a sub-policy of Step objects", SubPolicy, steps)


def test_a_finish_must_be_a_step() -> None:
    refused("expected a sub-policy of Step objects", SubPolicy, (), "crop_flip")


def test_a_policy_takes_subpolicies_only() -> None:
    refused("expected a policy of SubPolicy objects, got Step", Policy, (FINISH,))


@pytest.mark.parametrize(
    "temperatures",
    [3.0, "12", [1, 0], [1, -1], [1, float("nan")], [1, "2"], [1, None], [1, 10**400]],
)
def test_bad_temperatures_are_refused(temperatures: Any) -> None:
    refused("temperatures", Policy, (PLAIN, PLAIN), temperatures)


def test_temperatures_are_one_a_prefix() -> None:
    assert Policy((PLAIN, PLAIN), np.array([1, 2])).temperatures == (1.0, 2.0)  # type: ignore[arg-type]
    refused("expected 2 temperatures, one per prefix, got 1", Policy, (PLAIN, PLAIN), (1.0,))


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, "1", None, True])
def test_a_bad_seed_is_refused(seed: Any) -> None:
    refused("expected a seed", Policy, (), seed=seed)


def test_a_recipe_is_a_name() -> None:
    refused("expected a recipe's name or None, got 3", Policy, (), recipe=3)


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


def test_a_prefix_of_an_uncalibrated_policy_is_uncalibrated() -> None:
    assert Policy((FRESH, PLAIN))[:1].temperatures is None


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


def test_a_budget_is_at_least_one() -> None:
    with pytest.raises(RelookError, match="at least 1 view, got 0"):
        Policy((PLAIN,)).for_budget(0)


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
    bare = [[replace(step, draws=None) for step in sub.all_steps] for sub in frozen]
    assert bare == [list(sub.all_steps) for sub in policy]


def test_freezing_a_fixed_policy_changes_no_view() -> None:
    policy = Policy((FIXED, PLAIN), (1, 1))
    assert policy.freeze(3).subpolicies == policy.subpolicies


def test_repeats_of_a_fresh_subpolicy_freeze_to_different_views() -> None:
    assert Policy((FRESH,) * 6).freeze(0).views > 1
