from hypothesis import given
from hypothesis import strategies as st

from relook.policy import Policy, Step, SubPolicy
from relook.policy.pool import sample_pool
from relook.policy.transform_counts import TransformUse, transform_statistics

_FINISH = Step("crop_flip", 4)
_POOL = sample_pool("cifar", 40, seed=2)


def test_repeats_count_and_the_finish_does_not() -> None:
    turned = SubPolicy((Step("rotate", 10), Step("rotate", 20)), _FINISH)
    bright = SubPolicy((Step("brightness", 6, -1),), _FINISH)
    policy = Policy((turned, bright, turned, SubPolicy()))
    assert transform_statistics(policy) == (
        TransformUse("rotate", 4, 15.0),
        TransformUse("brightness", 1, 6.0),
    )


def test_a_transform_without_strength_has_a_dash() -> None:
    uses = transform_statistics(Policy((SubPolicy((Step("invert", 12),)),)))
    assert [(use.has_magnitude, use.magnitude_text) for use in uses] == [(False, "–")]
    assert TransformUse("rotate", 2, 3.14).magnitude_text == "3.1"


def test_the_plain_image_uses_nothing() -> None:
    assert transform_statistics(Policy((SubPolicy(),))) == ()


@given(st.lists(st.integers(0, 39), max_size=30))
def test_every_step_is_counted_once(picks: list[int]) -> None:
    pool = _POOL
    policy = Policy(tuple(pool[pick] for pick in picks))
    steps = [step for sub in policy for step in sub.steps]
    uses = transform_statistics(policy)
    assert sum(use.count for use in uses) == len(steps)
    total = sum(use.count * use.mean_magnitude for use in uses)
    assert abs(total - sum(step.magnitude for step in steps)) < 1e-6
    assert [use.count for use in uses] == sorted((use.count for use in uses), reverse=True)
