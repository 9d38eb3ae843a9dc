import numpy as np
import pytest
from sklearn.utils.class_weight import compute_sample_weight
from tests.oracles.plain_search import Array, random_pool
from tests.support import refused

from relook.errors import RelookError
from relook.numerics.calibration import calibrated_log_likelihood
from relook.numerics.metrics import accuracy, brier, ece, log_likelihood
from relook.selection.objectives import OBJECTIVES, class_weights, resolve_objective

POOL, LABELS = random_pool(0, 1, 80, 5)
LOG_PROBS = POOL[0].astype(np.float64)


def test_the_table_maximises() -> None:
    expected = {
        "cll": calibrated_log_likelihood(LOG_PROBS, LABELS)[0],
        "ll": log_likelihood(LOG_PROBS, LABELS),
        "accuracy": accuracy(LOG_PROBS, LABELS),
        "brier": -brier(LOG_PROBS, LABELS),
        "ece": -ece(LOG_PROBS, LABELS),
    }
    found = {name: row.score(LOG_PROBS, LABELS, None) for name, row in OBJECTIVES.items()}
    assert found == expected


def test_class_weights_agree_with_scikit_learn() -> None:
    labels = np.array([0, 0, 0, 0, 2, 2, 5])
    weights = class_weights(labels)
    np.testing.assert_allclose(weights, compute_sample_weight("balanced", labels))
    np.testing.assert_allclose(np.bincount(labels, weights)[[0, 2, 5]], 7 / 3)
    assert weights.mean() == pytest.approx(1)


def test_names_are_looked_up_and_callables_wrapped() -> None:
    def margin(log_probs: Array, labels: Array) -> float:
        return float(log_probs[np.arange(len(labels)), labels].min())

    assert resolve_objective("cll") is OBJECTIVES["cll"]
    wrapped = resolve_objective(margin)
    assert wrapped.name == "margin"
    assert wrapped.score(LOG_PROBS, LABELS, None) == margin(LOG_PROBS, LABELS)


@pytest.mark.parametrize("name", ["acuracy", 3, None])
def test_unknown_objectives_are_refused(name: object) -> None:
    refused("unknown objective", resolve_objective, name)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, None, "high", np.zeros(3)])
def test_a_callable_must_return_a_finite_number(value: object) -> None:
    def odd(log_probs: Array, labels: Array) -> float:
        return value  # type: ignore[return-value]

    with pytest.raises(RelookError, match="objective odd: expected a finite number"):
        resolve_objective(odd).score(LOG_PROBS, LABELS, None)
