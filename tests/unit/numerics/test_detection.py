"""Foreign images against scikit-learn, and DeLong's interval against the bootstrap."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from relook.numerics.metrics import auroc, auroc_gain, fpr95


@pytest.mark.parametrize("ties", [False, True])
def test_auroc_and_fpr95_are_those_of_scikit_learn(ties: bool) -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        own, foreign = generator.normal(1, 1, 150), generator.normal(0, 1, 90)
        if ties:
            own, foreign = own.round(1), foreign.round(1)
        is_own = np.repeat([1, 0], [150, 90])
        scores = np.concatenate([own, foreign])
        assert auroc(own, foreign) == pytest.approx(roc_auc_score(is_own, scores), abs=1e-9)
        passing, kept, _ = roc_curve(is_own, scores, drop_intermediate=False)
        assert fpr95(own, foreign) == pytest.approx(passing[np.argmax(kept >= 0.95)], abs=1e-9)


def test_the_interval_of_a_difference_is_about_that_of_the_bootstrap() -> None:
    generator = np.random.default_rng(1)
    own, foreign = generator.normal(1, 1, (2, 300)), generator.normal(0, 1, (2, 200))
    own[1] += 0.5 * own[0]
    foreign[1] += 0.5 * foreign[0]
    found = auroc_gain((own[0], foreign[0]), (own[1], foreign[1]))
    assert found.estimate == pytest.approx(auroc(own[0], foreign[0]) - auroc(own[1], foreign[1]))
    drawn = []
    for _ in range(500):
        mine, theirs = own[:, generator.integers(0, 300, 300)], generator.integers(0, 200, 200)
        one, other = (auroc(mine[i], foreign[i, theirs]) for i in range(2))
        drawn.append(one - other)
    half = (found.high - found.low) / 2
    assert half == pytest.approx(1.96 * np.std(drawn), rel=0.12)
