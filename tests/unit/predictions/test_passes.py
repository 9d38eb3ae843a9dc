import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.support import refused
from tests.unit.predictions.passes_cases import FLIP, FRESH, VIEWS, Toy, contents
from torch import Tensor

from relook.errors import RelookError, RunError
from relook.policy import Step, SubPolicy
from relook.policy.views import apply_subpolicy
from relook.predictions.passes import View, distinct_views, estimate, fill_store, predict_views

pytestmark = pytest.mark.usefixtures("small_groups")

CALLS = (3, 3, 1, 3, 3, 1, 2, 2, 1)  # model calls a block: 7 views by 3, 5 images by 2
COMPARED = 1  # a call of what is done already, to see that the model still answers the same


@pytest.fixture
def images() -> Tensor:
    generator = np.random.default_rng(1)
    return torch.from_numpy(generator.integers(0, 256, (5, 1, 9, 8), dtype=np.uint8))


def by_hand(images: Tensor, views: list[View], seed: int) -> NDArray[np.float32]:
    indices = np.arange(len(images))
    made = [apply_subpolicy(v.subpolicy, images, indices, seed, v.index) for v in views]
    return np.stack([Toy()(view).numpy() for view in made])


def test_predictions_are_the_models_on_the_views(images: Tensor, tmp_path: Path) -> None:
    expected = by_hand(images, VIEWS, 7)
    for batch in (None, 1, 2, 5, 100):
        for store in (None, tmp_path / f"{batch}"):
            result = predict_views(Toy(), images, VIEWS, seed=7, batch=batch, store_path=store)
            assert result.dtype == np.float32
            np.testing.assert_array_equal(result, expected)


def test_numpy_images_read_only_give_the_same(images: Tensor, tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", images.numpy())
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    store = tmp_path / "store"
    expected = predict_views(Toy(), images, VIEWS, seed=7, batch=2, store_path=store)
    np.testing.assert_array_equal(predict_views(Toy(), mapped, VIEWS, seed=7, batch=2), expected)
    resumed = Toy()
    predict_views(resumed, mapped, VIEWS, seed=7, batch=2, store_path=store)
    assert resumed.calls == COMPARED


def test_each_batch_goes_through_the_whole_pool(images: Tensor) -> None:
    toy = Toy()
    predict_views(toy, images, VIEWS, seed=0, batch=2)
    assert toy.sizes == [2] * 7 + [2] * 7 + [2, 1, 2, 1, 1]


def test_views_of_several_subpolicies_fill_a_batch(images: Tensor) -> None:
    seen: list[Tensor] = []

    class Watched(Toy):
        def __call__(self, images: Tensor) -> Tensor:
            seen.append(images)
            return super().__call__(images)

    predict_views(Watched(), images, VIEWS, seed=7, batch=8)
    assert [len(each) for each in seen] == [8, 7, 8, 7, 5]  # blocks of 3, 3 and 1 views
    indices = np.arange(len(images))
    made = [apply_subpolicy(v.subpolicy, images, indices, 7, v.index) for v in VIEWS]
    assert torch.equal(torch.cat(seen), torch.cat(made))


def test_the_batch_follows_from_the_images_size(tmp_path: Path) -> None:
    def batch(height: int, width: int) -> int:
        pixels = torch.zeros(1, 1, height, width, dtype=torch.uint8)
        path = tmp_path / f"{height}-{width}"
        return fill_store(Toy(), pixels, VIEWS[:1], path, seed=0).plan.batch

    assert [batch(32, 32), batch(64, 64), batch(96, 96)] == [64, 64, 64]
    assert [batch(224, 224), batch(224, 300), batch(800, 800)] == [16, 8, 8]


def test_the_models_outputs_may_be_arrays_or_track_gradients(images: Tensor) -> None:
    class Arrays(Toy):
        def __call__(self, images: Tensor) -> Tensor:
            return super().__call__(images).numpy()  # type: ignore[return-value]

    class Gradients(Toy):
        def __call__(self, images: Tensor) -> Tensor:
            return super().__call__(images).requires_grad_()

    expected = by_hand(images, VIEWS, 0)
    for predictor in (Arrays(), Gradients()):
        np.testing.assert_array_equal(predict_views(predictor, images, VIEWS, seed=0), expected)


def test_classes_are_asked_of_the_first_batch_if_need_be(images: Tensor) -> None:
    toy = Toy()
    toy.classes = None
    result = predict_views(toy, images, VIEWS, seed=0, batch=2)
    assert toy.calls == sum(CALLS) + 1
    np.testing.assert_array_equal(result, by_hand(images, VIEWS, 0))


def test_results_for_some_indices_are_slices_of_the_whole(images: Tensor) -> None:
    whole = predict_views(Toy(), images, VIEWS, seed=3)
    for indices in ([1, 2], [4, 0, 3], [2]):
        part = predict_views(Toy(), images[indices], VIEWS, seed=3, indices=indices, batch=2)
        np.testing.assert_array_equal(part, whole[:, indices])
    elsewhere = predict_views(Toy(), images, VIEWS, seed=3, indices=np.arange(5) + 100)
    assert not np.array_equal(elsewhere, whole)  # fresh draws belong to the index


def test_seed_and_view_index_move_fresh_views_only(images: Tensor) -> None:
    first = predict_views(Toy(), images, VIEWS, seed=0)
    second = predict_views(Toy(), images, VIEWS, seed=1)
    same = [np.array_equal(a, b) for a, b in zip(first, second, strict=True)]
    assert same == [view.subpolicy.is_fixed for view in VIEWS]
    assert not np.array_equal(first[1], first[6])  # one sub-policy, two view indices


def test_equal_views_are_predicted_and_stored_once(images: Tensor, tmp_path: Path) -> None:
    views = [
        View(FLIP, 0),
        View(FRESH[0], 1),
        View(FLIP, 2),
        View(FRESH[0], 3),
        View(SubPolicy((Step("flip", 0),)), 4),
        View(FRESH[0], 1),
        View(SubPolicy(), 5),
    ]
    distinct, order = distinct_views(views)
    assert distinct == (views[0], views[1], views[3], views[6])
    assert order == [0, 1, 0, 2, 0, 1, 3]
    for store in (None, tmp_path / "store"):
        toy = Toy()
        result = predict_views(toy, images, views, seed=0, store_path=store)
        assert sum(toy.sizes) == 4 * len(images)
        np.testing.assert_array_equal(result, by_hand(images, views, 0))
    stored = fill_store(Toy(), images, distinct, tmp_path / "store", seed=0)
    assert stored.plan.views == 4
    np.testing.assert_array_equal(stored.read(), by_hand(images, list(distinct), 0))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_same_bytes_after_an_interruption_anywhere(
    images: Tensor, tmp_path: Path, error: type[BaseException]
) -> None:
    whole = tmp_path / "whole"
    expected = predict_views(Toy(), images, VIEWS, seed=0, batch=2, store_path=whole)
    for calls in range(sum(CALLS)):
        store = tmp_path / f"cut{calls}"
        raised = KeyboardInterrupt if error is KeyboardInterrupt else RelookError
        with pytest.raises(raised):
            predict_views(Toy(calls, error), images, VIEWS, seed=0, batch=2, store_path=store)
        resumed = Toy()
        result = predict_views(resumed, images, VIEWS, seed=0, batch=2, store_path=store)
        np.testing.assert_array_equal(result, expected)
        assert contents(store) == contents(whole)
        kept = max(total for total in itertools.accumulate(CALLS, initial=0) if total <= calls)
        assert resumed.calls == sum(CALLS) - kept + (COMPARED if kept else 0)


def test_a_damaged_chunk_is_computed_again(images: Tensor, tmp_path: Path) -> None:
    expected = predict_views(Toy(), images, VIEWS, seed=0, batch=2, store_path=tmp_path)
    sound = contents(tmp_path)
    chunk = tmp_path / "c/1/1/0"
    data = bytearray(chunk.read_bytes())
    data[20] ^= 1
    chunk.write_bytes(data)
    again = Toy()
    result = predict_views(again, images, VIEWS, seed=0, batch=2, store_path=tmp_path)
    assert again.calls == 3 + COMPARED
    np.testing.assert_array_equal(result, expected)
    assert contents(tmp_path) == sound


@pytest.mark.parametrize("whole", [False, True], ids=["begun", "whole"])
def test_a_model_that_answers_otherwise_than_before_is_refused(
    images: Tensor, tmp_path: Path, whole: bool
) -> None:
    if whole:
        predict_views(Toy(), images, VIEWS, seed=0, batch=2, store_path=tmp_path)
    else:
        with pytest.raises(RelookError):
            predict_views(Toy(9, RuntimeError), images, VIEWS, seed=0, batch=2, store_path=tmp_path)
    before = contents(tmp_path)

    class Changed(Toy):
        def __call__(self, images: Tensor) -> Tensor:
            return super().__call__(images).flip(1)

    with pytest.raises(RunError, match=r"no longer answers as it did when .* was begun"):
        predict_views(Changed(), images, VIEWS, seed=0, batch=2, store_path=tmp_path)
    assert contents(tmp_path) == before


def other_model() -> Toy:
    toy = Toy()
    toy.fingerprint = "other"
    return toy


def test_a_store_of_something_else_is_refused(images: Tensor, tmp_path: Path) -> None:
    def call(
        predictor: Toy | None = None,
        pixels: Tensor = images,
        views: list[View] = VIEWS,
        seed: int = 0,
        batch: int = 2,
        indices: list[int] | None = None,
    ) -> None:
        predict_views(
            predictor or Toy(),
            pixels,
            views,
            seed=seed,
            batch=batch,
            indices=indices,
            store_path=tmp_path,
        )

    call()
    sound = contents(tmp_path)
    changed = images.clone()
    changed[-1, -1, -1, -1] ^= 1
    changes: dict[str, Callable[[], None]] = {
        "model: ": lambda: call(other_model()),
        "data: ": lambda: call(pixels=changed),
        "(?s)data: ": lambda: call(indices=[0, 1, 2, 3, 5]),
        "pool: ": lambda: call(views=[VIEWS[0], View(FRESH[0], 9), *VIEWS[2:]]),
        "plan.views: 7 there, 6 here": lambda: call(views=VIEWS[:6]),
        "seed: 0 there, 1 here": lambda: call(seed=1),
        "plan.batch: 2 there, 3 here": lambda: call(batch=3),
    }
    for message, attempt in changes.items():
        refused(message, attempt, error=RunError)
    call()
    assert contents(tmp_path) == sound


class Faulty(Toy):
    """Spoils its outputs for one view of one batch."""

    def __init__(self, spoil: Callable[[Tensor], object]):
        super().__init__()
        self.spoil = spoil

    def __call__(self, images: Tensor) -> Tensor:
        outputs = super().__call__(images)
        return self.spoil(outputs) if self.calls == 12 else outputs  # type: ignore[return-value]


def put(value: float, *rows: int) -> Callable[[Tensor], Tensor]:
    def spoil(outputs: Tensor) -> Tensor:
        outputs[list(rows), 1] = value
        return outputs

    return spoil


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (put(math.nan, 0, 1), "NaN for images 12…13, view “mirrored”"),
        (put(math.nan, 1), "NaN for image 13, view “mirrored”"),
        (put(math.inf, 0), "+∞ for image 12, view"),
        (put(0.0, 0), "probabilities that do not sum to 1 for image 12, view"),
        (lambda out: out * 1e30, "probabilities that do not sum to 1 for images 12…13"),
        (lambda out: out.exp(), "probabilities that do not sum to 1 for images 12…13"),
        (lambda out: torch.full_like(out, -math.inf), "do not sum to 1 for images 12…13"),
        (lambda out: out[:1], "shape [1, 4] for images 12…13, view “mirrored”: expected"),
        (lambda out: out[:, :3], "shape [2, 3] for images 12…13"),
        (lambda out: out[0], "shape [4] for images"),
        (lambda out: {"logits": out}, "a dict for images 12…13"),
    ],
)
def test_bad_outputs_name_the_images_and_the_view(
    images: Tensor, tmp_path: Path, spoil: Callable[[Tensor], object], says: str
) -> None:
    indices = np.arange(10, 15)
    with pytest.raises(RelookError) as caught:
        predict_views(
            Faulty(spoil), images, VIEWS, seed=0, batch=2, indices=indices, store_path=tmp_path
        )
    message = str(caught.value)
    assert says in message
    assert "expected normalised log-probabilities [2, 4]" in message
    assert "\n" not in message
    mended = Toy()
    predict_views(mended, images, VIEWS, seed=0, batch=2, indices=indices, store_path=tmp_path)
    # The block with the fault was not kept.
    assert mended.calls == sum(CALLS) - 10 + COMPARED


def test_scattered_images_are_counted(images: Tensor) -> None:
    class Always(Toy):
        def __call__(self, images: Tensor) -> Tensor:
            return super().__call__(images) * math.nan

    for indices, says in (
        ([4, 9, 2, 7, 1], "images 4, 9, 2 and 2 more,"),
        ([4, 9], "images 4, 9,"),
    ):
        with pytest.raises(RelookError, match=says):
            predict_views(Always(), images[: len(indices)], VIEWS, seed=0, indices=indices)


def test_a_model_that_fails_is_one_line_with_its_cause(images: Tensor) -> None:
    with pytest.raises(RelookError) as caught:
        predict_views(Toy(4), images, VIEWS, seed=0, batch=2)
    assert str(caught.value) == (
        "the model failed on images 0…1, view “mirrored”: RuntimeError: out of memory"
    )
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(RelookError, match="view “mirrored”: out of memory"):
        predict_views(Toy(4, RelookError), images, VIEWS, seed=0, batch=2)


def test_impossible_classes_are_floored(images: Tensor, tmp_path: Path) -> None:
    class Certain(Toy):
        def __call__(self, images: Tensor) -> Tensor:
            row = torch.tensor([0.0, -math.inf, -100.0, -79.5])
            return row.expand(len(images), 4)

    for store in (None, tmp_path):
        result = predict_views(Certain(), images, VIEWS[:1], seed=0, store_path=store)
        np.testing.assert_array_equal(result[0, 0], [0.0, -80.0, -80.0, -79.5])


def test_progress_counts_passes_and_what_is_stored(images: Tensor, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def report(done: int, total: int) -> None:
        seen.append((done, total))

    expected = [(batch * 14 + 2 * view, 35) for batch in (0, 1) for view in range(7)]
    expected += [(done, 35) for done in (28, 30, 31, 33, 34, 35)]
    predict_views(Toy(), images, VIEWS, seed=0, batch=2, progress=report)
    assert seen == expected
    seen.clear()
    refused(".", predict_views, Toy(10), images, VIEWS, seed=0, batch=2, store_path=tmp_path)
    predict_views(Toy(), images, VIEWS, seed=0, batch=2, store_path=tmp_path, progress=report)
    assert seen == expected[10:]
    seen.clear()
    predict_views(Toy(), images, VIEWS, seed=0, batch=2, store_path=tmp_path, progress=report)
    assert seen == [(35, 35)]


def test_input_that_makes_no_sense_is_refused(images: Tensor) -> None:
    def call(pixels: object = images, views: list[View] = VIEWS, **options: object) -> None:
        predict_views(Toy(), pixels, views, **{"seed": 0, **options})  # type: ignore[arg-type]

    refused("at least 1 view", call, views=[])
    refused("at least 1, got none", call, images[:0])
    refused("got a list", call, [1])
    refused("expected uint8", call, images.float())
    refused(r"expected images of shape \[n, c, h, w\]", call, images[0])
    refused("5 indices", call, indices=[1, 2])
    refused("5 indices", call, indices=[-1, 0, 1, 2, 3])
    refused("5 indices", call, indices=[0.0, 1.0, 2.0, 3.0, 4.0])
    refused("batch to be at least 1", call, batch=0)
    refused("expected a seed", call, seed=-1)


def test_the_estimate_times_view_and_model(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    class Slow(Toy):
        def __call__(self, images: Tensor) -> Tensor:
            clock[0] += (100.0 if self.calls == 0 else 0.0) + 0.25 * len(images)
            return super().__call__(images)

    monkeypatch.setattr("relook.predictions.passes.time.perf_counter", lambda: clock[0])
    for count in (1, 2, 4, 5, 7):
        slow = Slow()
        assert estimate(slow, images, VIEWS[:count], seed=0) == 0.25
        assert slow.calls <= 8
        assert estimate(Slow(), images, VIEWS[:count], seed=0, batch=2) == 0.25


def test_single_disturbed_rounds_do_not_make_the_estimate_longer(
    images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, busy = [0.0], itertools.cycle([1.0, 30.0, 1.0])  # one call in three is disturbed

    class Disturbed(Toy):
        def __call__(self, images: Tensor) -> Tensor:
            clock[0] += 0.001 * len(images) * next(busy)
            return super().__call__(images)

    monkeypatch.setattr("relook.predictions.passes.time.perf_counter", lambda: clock[0])
    assert estimate(Disturbed(), images, VIEWS[:1], seed=0) == pytest.approx(0.001)
