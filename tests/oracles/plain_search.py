"""The naive twin of the search: SciPy's optimiser, one candidate after the other."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

Array = NDArray[Any]
Score = Callable[[Array, Array], float]


def plain_cll(log_q: Array, labels: Array) -> tuple[float, float]:
    """The calibrated log-likelihood of `[n, c]` and its temperature in [0.05, 20]."""
    log_q = np.maximum(np.asarray(log_q, dtype=np.float64), -80.0)

    def loss(temperature: float) -> float:
        return -float(
            log_softmax(log_q / temperature, axis=1)[np.arange(len(labels)), labels].mean()
        )

    found = minimize_scalar(loss, bounds=(0.05, 20.0), method="bounded", options={"xatol": 1e-9})
    return max((-loss(temperature), temperature) for temperature in (float(found.x), 0.05, 20.0))


def cll_score(log_q: Array, labels: Array) -> float:
    return plain_cll(log_q, labels)[0]


def plain_scores(
    probabilities: Array, labels: Array, prefix: list[int], score: Score = cll_score
) -> list[float]:
    """The score of each candidate `[k, n, c]` as the next one after the prefix."""
    scores = []
    for candidate in range(len(probabilities)):
        mean = probabilities[[*prefix, candidate]].mean(axis=0)
        scores.append(score(np.log(np.maximum(mean, np.exp(-80.0))), labels))
    return scores


def plain_search(
    log_probs: Array, labels: Array, length: int, score: Score = cll_score
) -> tuple[list[int], list[float]]:
    """Algorithm 1, word for word: picks and scores."""
    probabilities = np.exp(np.asarray(log_probs, dtype=np.float64))
    picks: list[int] = []
    best: list[float] = []
    for _ in range(length):
        scores = plain_scores(probabilities, labels, picks, score)
        picks.append(int(np.argmax(scores)))
        best.append(max(scores))
    return picks, best


def random_pool(
    seed: int,
    candidates: int,
    images: int,
    classes: int,
    *,
    skill: float = 2.0,
    sharpness: float = 1.5,
    zeros: float = 0.0,
) -> tuple[Array, Array]:
    """Float32 log-probabilities `[k, n, c]` of a made-up model, and labels `[n]`.

    `zeros` is the share of entries with probability 0.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=images)
    logits = rng.normal(size=(images, classes))
    logits[np.arange(images), labels] += skill
    logits = sharpness * (logits + 0.5 * rng.normal(size=(candidates, images, classes)))
    lost = rng.random(logits.shape) < zeros
    lost[..., 0] = False  # something must be left to normalise
    logits[lost] = -np.inf
    return log_softmax(logits, axis=-1).astype(np.float32), labels
