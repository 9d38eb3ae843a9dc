from hypothesis import given, settings
from hypothesis import strategies as st

from relook.predictions.model_calls import calls_of
from relook.predictions.store import PredictionBlock


@settings(deadline=None)
@given(
    st.integers(0, 40),
    st.integers(1, 9),
    st.integers(0, 40),
    st.integers(1, 30),
    st.integers(1, 40),
)
def test_calls_cover_a_block_once_in_order_and_are_full(
    view: int, views: int, image: int, images: int, batch: int
) -> None:
    block = PredictionBlock(slice(view, view + views), slice(image, image + images))
    calls = list(calls_of(block, batch))
    covered = [
        (segment.view, i)
        for call in calls
        for segment in call.segments
        for i in range(segment.images.start, segment.images.stop)
    ]
    assert covered == [
        (v, i) for v in range(view, view + views) for i in range(image, image + images)
    ]
    assert all(call.size == batch for call in calls[:-1])
    assert [call.ends_block for call in calls] == [None] * (len(calls) - 1) + [block]
