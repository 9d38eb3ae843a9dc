"""Against cleanlab, the reference implementation of confident learning."""

import numpy as np
import pytest
from cleanlab.count import compute_confident_joint, get_confident_thresholds
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_self_confidence_for_each_label
from tests.oracles.plain_search import random_pool

from relook.evaluation.suspects import (
    NO_CLASS,
    class_thresholds,
    confident_classes,
    self_confidence,
)


@pytest.mark.parametrize("seed", range(8))
def test_thresholds_counts_and_ranks_are_those_of_cleanlab(seed: int) -> None:
    pool, labels = random_pool(seed, 1, 400, 7, sharpness=3.0)
    log_probs = pool[0].astype(np.float64)
    log_probs -= np.log(np.exp(log_probs).sum(axis=1, keepdims=True))
    probs = np.exp(log_probs)
    found = class_thresholds(log_probs, labels)
    np.testing.assert_allclose(found, get_confident_thresholds(labels, probs), atol=1e-6)
    own = self_confidence(log_probs, labels)
    np.testing.assert_allclose(own, get_self_confidence_for_each_label(labels, probs), atol=1e-6)
    classes = confident_classes(log_probs, found)
    sure = classes != NO_CLASS
    joint = np.zeros((7, 7), dtype=int)
    np.add.at(joint, (labels[sure], classes[sure]), 1)
    np.fill_diagonal(joint, joint.diagonal().clip(min=1))
    np.testing.assert_array_equal(joint, compute_confident_joint(labels, probs, calibrate=False))
    likeliest = probs.argmax(axis=1)
    suspect = np.flatnonzero((classes == likeliest) & (likeliest != labels))
    ranked = find_label_issues(
        labels,
        probs,
        return_indices_ranked_by="self_confidence",
        filter_by="confident_learning",
        n_jobs=1,
    )
    # cleanlab also lists images whose likeliest class is not the confident one.
    ranked = [one for one in ranked if classes[one] == likeliest[one]]
    np.testing.assert_array_equal(suspect[np.argsort(own[suspect], kind="stable")], ranked)


def test_a_class_with_few_images_has_no_threshold() -> None:
    log_probs = np.log(np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]))
    found = class_thresholds(log_probs, np.array([0, 0, 1]), fewest=2)
    np.testing.assert_allclose(found, [0.85, np.inf])
    assert confident_classes(log_probs, found).tolist() == [0, NO_CLASS, NO_CLASS]
