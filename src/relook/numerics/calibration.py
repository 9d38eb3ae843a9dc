"""Temperature scaling and the calibrated log-likelihood (cLL), in float64.

Predictions are natural log-probabilities `[..., class]`; labels are int64 `[image]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.errors import RelookError
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.intervals import independent_images

LOG_FLOOR = -80.0
"""The floor of log-probabilities, so that probability 0 has a finite score."""

TEMPERATURE_RANGE = (0.05, 20.0)
"""The lowest and the highest temperature that a fit may return."""

SOUND_TEMPERATURES = (1e-3, 1e3)
"""The range of temperatures that may be read or given: wider than any fit returns, but too narrow
to turn predictions into infinities."""

PRIOR = 8.0
"""The weight of the prior that shrinks a fitted temperature to 1: log β − β, which is largest at
β = 1/τ = 1, times this is added to the log-likelihood's sum over all images. Of the values tried,
this loses least with 15 to 100 images; hundreds of images outweigh it (docs/concepts.md)."""

_BETA_RANGE = (1 / TEMPERATURE_RANGE[1], 1 / TEMPERATURE_RANGE[0])
_TOLERANCE = 1e-7  # of β; the score is flat there, so it is off by about 1e-14
_FLAT_SPREAD = 5e-11  # × the largest β: the score then moves by at most 1e-9, which is a tie
_MAX_PASSES = 200  # only a safeguard: every second pass halves the bracket or the step
_BLOCK_VALUES = 1 << 16  # values handled at once: small enough to stay in the cache


def temper(log_probs: LogProbs, temperature: float) -> FloatArray:
    """Return log softmax(log q / τ) over the last axis, with log q floored at −80."""
    check_temperature(temperature)
    scaled = floor_log_probs(log_probs) / temperature
    scaled -= scaled.max(axis=-1, keepdims=True)
    scaled -= np.log(np.exp(scaled).sum(axis=-1, keepdims=True))
    return scaled


def check_temperature(temperature: float) -> float:
    """Return the temperature, or raise if it is out of range."""
    low, high = SOUND_TEMPERATURES
    if not low <= temperature <= high:
        raise RelookError(f"expected a temperature from {low:g} to {high:g}, got {temperature!r}")
    return temperature


def fit_temperature(
    log_probs: LogProbs,
    labels: Labels,
    weights: FloatArray | None = None,
    *,
    groups: ArrayLike | None = None,
    prior: float = PRIOR,
    view_temperature: float = 1.0,
    start: float = 1.0,
) -> float:
    """Return the temperature that fits `log_probs` `[n, c]`, shrunk to 1 if images are few.

    An average of views at a `view_temperature` κ is flatter by about κ, so it is shrunk to 1/κ
    instead. A `prior` of 0 gives the likeliest temperature, as in the paper, which goes to its
    limit if all of fifty images are right. Images of one of the `groups` count as one.
    """
    images = np.ones(len(labels)) if weights is None else weights
    prior_per_image = prior / independent_images(images, groups)
    _, temperatures = calibrated_log_likelihoods(
        log_probs[None], labels, weights, start, prior_per_image, view_temperature
    )
    return float(temperatures[0])


def calibrated_log_likelihood(
    log_probs: LogProbs, labels: Labels, weights: FloatArray | None = None, start: float = 1.0
) -> tuple[float, float]:
    """Return max over τ of mean log softmax(log q / τ)[label], and that τ, for `[n, c]`.

    `weights` `[n]` turns the mean over images into a weighted one; `start` is a first guess
    of the temperature. If the score does not depend on τ (uniform predictions), τ is 1.
    """
    scores, temperatures = calibrated_log_likelihoods(log_probs[None], labels, weights, start)
    return float(scores[0]), float(temperatures[0])


def calibrated_log_likelihoods(
    log_probs: LogProbs,
    labels: Labels,
    weights: FloatArray | None = None,
    start: float = 1.0,
    prior: float = 0.0,
    likeliest: float = 1.0,
) -> tuple[FloatArray, FloatArray]:
    """Fit k sets of predictions `[k, n, c]` side by side: cLLs `[k]`, temperatures `[k]`.

    `prior` · (log β − β / `likeliest`) is added to the maximised score, not to the returned one.

    The score is concave in β = 1/τ, and a bracketed Newton iteration finds its maximum. A set's
    result is the same to the last bit whichever others are fitted with it.
    """
    gaps = floor_log_probs(log_probs)
    gaps -= gaps.max(axis=-1, keepdims=True)
    label_gaps = np.take_along_axis(gaps, labels[None, :, None], axis=-1)[..., 0]
    flat = gaps.min(axis=(1, 2)) >= -_FLAT_SPREAD
    beta = np.where(flat, 1.0, np.clip(1 / start, *_BETA_RANGE))
    bracket, scores = Bracket(len(beta)), np.empty_like(beta)
    left = np.arange(len(beta))
    for _ in range(_MAX_PASSES):
        part = slice(None) if len(left) == len(beta) else left
        scores[part], slope, bend = _derivatives(gaps[part], label_gaps[part], weights, beta[part])
        slope += prior * (1 / beta[part] - 1 / likeliest)
        bend += prior / beta[part] ** 2
        target, found = bracket.step(part, beta[part], slope, bend)
        unfinished = ~(found | flat[part])
        left = left[unfinished]
        if not len(left):
            break
        beta[left] = target[unfinished]
    return scores, 1 / beta


def mean_log_probs(
    log_probs: LogProbs, axis: int = 0, counts: NDArray[Any] | None = None
) -> FloatArray:
    """Return the log of the mean probability along `axis`, without leaving log space.

    `counts` has a weight for each entry of the axis: how often it is repeated.
    """
    moved = np.moveaxis(np.asarray(log_probs, dtype=np.float64), axis, -1)
    shares = np.ones(moved.shape[-1]) if counts is None else np.asarray(counts, dtype=np.float64)
    if shares.shape != moved.shape[-1:] or (shares < 0).any() or not shares.sum() > 0:
        raise RelookError(
            f"expected {moved.shape[-1]} counts ≥ 0, not all 0, to average predictions; "
            f"got {shares.tolist()}"
        )
    moved, shares = moved[..., shares > 0], shares[shares > 0]
    top = np.maximum(moved.max(axis=-1, keepdims=True), np.finfo(np.float64).min)
    with np.errstate(divide="ignore"):  # probability 0 in every entry gives −inf
        share = (np.exp(moved - top) * shares).sum(axis=-1) / shares.sum()
        return np.asarray(np.log(share) + top[..., 0])


def prefix_log_probs(log_probs: Iterable[LogProbs], lengths: Iterable[int]) -> Iterator[FloatArray]:
    """Yield the log of the mean probability `[n, c]` of the first k entries, for each length k.

    `log_probs` is `[entry, n, c]`, or an iterable of entries `[n, c]`; the lengths must rise.
    """
    entries = iter(log_probs)
    total, done = np.zeros(()), 0
    for length in lengths:
        if length <= done:
            raise RelookError(f"expected rising lengths of at least 1, got {length} after {done}")
        while done < length:
            entry = next(entries, None)
            if entry is None:
                raise RelookError(f"expected at least {length} predictions, got {done}")
            # float64 can represent e^−80, the floor of predictions, and its sums.
            total = total + np.exp(entry, dtype=np.float64)
            done += 1
        with np.errstate(divide="ignore"):  # predictions from elsewhere may hold probability 0
            yield np.log(total / done)


def floor_log_probs(log_probs: LogProbs) -> FloatArray:
    """Return a float64 copy in which nothing is below −80."""
    return np.maximum(log_probs, LOG_FLOOR, dtype=np.float64)


def weighted_mean(values: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return the mean over the last axis, weighted if weights `[n]` are given."""
    if weights is None:
        return np.asarray(values.mean(axis=-1))
    return np.asarray((values * weights).sum(axis=-1) / weights.sum())


def _derivatives(
    gaps: FloatArray, label_gaps: FloatArray, weights: FloatArray | None, beta: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the score at β `[k]`, its slope, and minus its second derivative.

    `gaps` `[k, n, c]` are log-probabilities minus the image's largest, so exp cannot overflow.
    """
    k, n, c = gaps.shape
    rows, betas = gaps.reshape(k * n, c), np.repeat(beta, n)[:, None]
    sums = np.empty((3, k * n))  # of e^(βg), g·e^(βg), g²·e^(βg) over the classes
    block = max(1, _BLOCK_VALUES // c)
    for begin in range(0, k * n, block):
        part = slice(begin, begin + block)
        terms = np.exp(rows[part] * betas[part])
        terms.sum(axis=-1, out=sums[0, part])
        terms *= rows[part]
        terms.sum(axis=-1, out=sums[1, part])
        terms *= rows[part]
        terms.sum(axis=-1, out=sums[2, part])
    total, first, second = sums.reshape(3, k, n)
    mean = first / total
    score = weighted_mean(beta[:, None] * label_gaps - np.log(total), weights)
    slope = weighted_mean(label_gaps - mean, weights)
    bend = weighted_mean(np.maximum(second / total - mean**2, 0.0), weights)
    return score, slope, bend


class Bracket:
    """The interval of β around the best one of each of `count` sets, and its last step's length."""

    def __init__(self, count: int) -> None:
        self.low, self.high = np.zeros(count), np.full(count, np.inf)
        self.last_move = np.full(count, np.inf)

    def step(
        self, which: Indices | slice, beta: FloatArray, slope: FloatArray, bend: FloatArray
    ) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the next β of some sets, and whether the current one is the best.

        That is Newton's step if it stays in the bracket and shrinks fast; else the bracket is
        halved. An end at 0 or infinity has not been tried yet: the limit on that side comes first.
        """
        low = np.where(slope >= 0, beta, self.low[which])
        high = np.where(slope >= 0, self.high[which], beta)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = slope / bend
        # 0/0: every label is so certain that sharper predictions are as good.
        newton = np.clip(beta + np.where(np.isnan(step), np.inf, step), *_BETA_RANGE)
        move = np.abs(newton - beta)
        bottom, top = np.clip(low, *_BETA_RANGE), np.clip(high, *_BETA_RANGE)
        found = (move <= _TOLERANCE * beta) | (top - bottom <= _TOLERANCE * beta)
        trusted = (low < newton) & (newton < high) & (move <= self.last_move[which] / 2)
        ahead = np.where(slope >= 0, high, low)
        untried = (ahead == 0) | np.isinf(ahead)
        limit = np.where(slope >= 0, top, bottom)
        target = np.where(trusted, newton, np.where(untried, limit, np.sqrt(bottom * top)))
        self.low[which], self.high[which] = low, high
        self.last_move[which] = np.abs(target - beta)
        return target, found
