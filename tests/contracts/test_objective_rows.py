"""What every row of OBJECTIVES promises; a new row enrols itself."""

import numpy as np
import pytest
from tests.oracles.plain_search import Array, random_pool

from relook.selection.objectives import OBJECTIVES, Objective

POOL, LABELS = random_pool(0, 1, 80, 5)
LOG_PROBS = POOL[0].astype(np.float64)

every_objective = pytest.mark.parametrize("row", OBJECTIVES.values(), ids=OBJECTIVES)


def sure_of(classes: Array) -> Array:
    """Log-probabilities that give 1 to these classes and 0 to all others."""
    with np.errstate(divide="ignore"):
        return np.log(np.eye(5)[classes])


@every_objective
def test_is_found_by_its_name(row: Objective) -> None:
    assert OBJECTIVES[row.name] is row


@every_objective
@pytest.mark.parametrize(
    "log_probs",
    [LOG_PROBS, sure_of(LABELS), sure_of((LABELS + 1) % 5), np.full((80, 5), np.log(0.2))],
    ids=["usual", "sure and right", "sure and wrong", "uniform"],
)
@pytest.mark.parametrize("images", [1, 80])
def test_is_a_finite_float(row: Objective, log_probs: Array, images: int) -> None:
    value = row.score(log_probs[:images], LABELS[:images], None)
    assert isinstance(value, float)
    assert np.isfinite(value)


@every_objective
def test_higher_is_better(row: Objective) -> None:
    best = row.score(sure_of(LABELS), LABELS, None)
    assert best > row.score(LOG_PROBS, LABELS, None)
    assert best > row.score(sure_of((LABELS + 1) % 5), LABELS, None)


@every_objective
def test_the_order_of_images_and_classes_is_of_no_account(row: Objective) -> None:
    rng = np.random.default_rng(1)
    images, classes = rng.permutation(80), rng.permutation(5)
    usual = row.score(LOG_PROBS, LABELS, None)
    assert row.score(LOG_PROBS[images], LABELS[images], None) == pytest.approx(usual, abs=1e-12)
    renamed = np.argsort(classes)[LABELS]
    assert row.score(LOG_PROBS[:, classes], renamed, None) == pytest.approx(usual, abs=1e-12)


@every_objective
def test_weights_count_as_repeated_images(row: Objective) -> None:
    counts = np.random.default_rng(1).integers(0, 4, size=80)
    weighted = row.score(LOG_PROBS, LABELS, counts.astype(np.float64))
    repeated = row.score(LOG_PROBS.repeat(counts, axis=0), LABELS.repeat(counts), None)
    assert weighted == pytest.approx(repeated, abs=1e-9)
    even = row.score(LOG_PROBS, LABELS, np.full(80, 3.0))
    assert even == pytest.approx(row.score(LOG_PROBS, LABELS, None), abs=1e-12)


@every_objective
def test_leaves_its_inputs_alone(row: Objective) -> None:
    before = LOG_PROBS.tobytes(), LABELS.tobytes()
    row.score(LOG_PROBS, LABELS, np.ones(80))
    assert (LOG_PROBS.tobytes(), LABELS.tobytes()) == before
