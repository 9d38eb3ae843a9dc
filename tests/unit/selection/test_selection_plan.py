import numpy as np
import pytest

from relook.errors import RelookError
from relook.predictions.store import Predictions
from relook.selection import selection_needs
from relook.selection.plan import is_compact, plan_selection
from relook.selection.record import Selection, plan_of

CIFAR = (1101, 5000, 100)
IMAGENET = (900, 25_000, 1_000)
HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)


def test_what_fits_stays_in_memory() -> None:
    plan = plan_selection(CIFAR, SINGLE, "cll", 8 * 10**9, on_disk=True)
    assert not plan.mapped
    assert not plan.compact
    assert plan.predictions == 4 * 1101 * 5000 * 100
    assert plan.working == selection_needs(CIFAR)
    assert plan.memory == plan.predictions + plan.working <= plan.limit
    assert plan.beside == plan.limit - plan.predictions


def test_what_does_not_is_mapped_and_counts_for_nothing() -> None:
    limit = selection_needs(CIFAR) + 10**9
    plan = plan_selection(CIFAR, SINGLE, "cll", limit, on_disk=True)
    assert plan.mapped
    assert plan.memory == plan.working <= plan.beside == limit
    assert "2.2 GB of predictions, mapped from disk" in str(plan)


def test_imagenets_size_fits_the_memory_that_is_asked_for() -> None:
    plan = plan_selection(IMAGENET, HALF, "cll", 16 * 10**9, on_disk=True)
    assert plan.mapped
    assert plan.compact
    assert plan.predictions == 45 * 10**9
    assert plan.memory <= 16 * 10**9


@pytest.mark.parametrize("objective", ["accuracy", "ll", "brier"])
def test_other_objectives_need_little_beside(objective: str) -> None:
    plan = plan_selection(IMAGENET, HALF, objective, 8 * 10**9, on_disk=True)
    assert plan.mapped
    assert not plan.compact
    assert plan.memory < 4 * 10**9


@pytest.mark.parametrize(
    ("shape", "objective", "limit", "on_disk"),
    [
        (CIFAR, "cll", 10**9, True),
        (CIFAR, "cll", 3 * 10**9, False),
        (IMAGENET, "cll", 10**9, True),
        (IMAGENET, "cll", 40 * 10**9, False),
        (IMAGENET, "cll", 46 * 10**9, False),
        (IMAGENET, "accuracy", 10**9, True),
    ],
)
def test_what_cannot_fit_is_one_line(
    shape: tuple[int, int, int], objective: str, limit: int, on_disk: bool
) -> None:
    with pytest.raises(RelookError, match=r"needs .* GB of memory, got a limit of") as caught:
        plan_selection(
            shape, HALF if shape is IMAGENET else SINGLE, objective, limit, on_disk=on_disk
        )
    assert "\n" not in str(caught.value)


def test_the_limit_decides_picks_only_among_many_classes() -> None:
    assert is_compact(IMAGENET, "cll")
    assert not is_compact(IMAGENET, "accuracy")
    assert not is_compact(CIFAR, "cll")
    assert not is_compact((10, 10, 1000), "cll")


def test_a_conservative_selection_counts_the_images_that_it_repeats() -> None:
    small = (200, 1000, 10)
    plain = plan_selection(small, SINGLE, "cll", 8 * 10**9, on_disk=True)
    conservative = plan_selection(small, SINGLE, "cll", 8 * 10**9, on_disk=True, conservative=True)
    repeated = 4 * 200 * 4000 * 10 + selection_needs((200, 4000, 10))
    tempered = 4 * 200 * 1000 * 10
    assert conservative.working == tempered + repeated
    assert conservative.working > plain.working
    with pytest.raises(RelookError, match="needs"):
        plan_selection(small, SINGLE, "cll", plain.memory + 10**6, on_disk=False, conservative=True)
    # Too large to repeat: nothing more than any other selection takes.
    large = plan_selection(IMAGENET, HALF, "cll", 16 * 10**9, on_disk=True, conservative=True)
    assert large == plan_selection(IMAGENET, HALF, "cll", 16 * 10**9, on_disk=True)


def test_a_copy_at_a_view_temperature_is_planned_for() -> None:
    usual = plan_selection(CIFAR, SINGLE, "cll", 8 * 10**9, on_disk=False)
    for kappa, copies in ((1.0, 0), (2.0, 1)):
        plan = plan_selection(
            CIFAR, SINGLE, "cll", 8 * 10**9, on_disk=False, view_temperature=kappa
        )
        assert plan.memory == usual.memory + copies * usual.predictions
    selection = Selection(
        Predictions(CIFAR, SINGLE, lambda: np.zeros(0)),
        np.zeros(CIFAR[1], np.int64),
        5,
        view_temperature=2.0,
    )
    assert plan_of(selection, 8 * 10**9).memory == plan.memory
