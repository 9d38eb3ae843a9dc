from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.plain_search import Array, plain_cll, random_pool

from relook.numerics.calibration import floor_log_probs
from relook.selection.kernels import arithmetic
from relook.selection.kernels import pool as pool_module
from relook.selection.kernels.bounds import HIGHEST_BETA, LOWEST_BETA, Values, upper_bounds
from relook.selection.kernels.pool import PackedPool
from relook.selection.kernels.screening import slack

WHOLE_RANGE = np.concatenate([np.linspace(-80, 0, 4001), -np.logspace(-12, 1.9, 2001)])
BETAS = (LOWEST_BETA, 0.3, 0.8, 1.0, 1.3, 3.0, HIGHEST_BETA)


@pytest.fixture(scope="module")
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def mapped(function: object, values: Array) -> Array:
    assert callable(function)
    return np.array([function(value) for value in values], dtype=np.float64)


def test_float32_logarithm() -> None:
    values = np.exp(WHOLE_RANGE).astype(np.float32)
    expected = np.log2(values.astype(np.float64))
    np.testing.assert_allclose(mapped(arithmetic.log2, values), expected, rtol=1.5e-7)
    scaled = values * np.float32(2.0**24)
    np.testing.assert_allclose(mapped(arithmetic.scaled_log2, scaled), expected, rtol=1.5e-7)


def test_float32_powers() -> None:
    values = np.linspace(-125, 1, 5001).astype(np.float32)
    expected = np.exp2(values.astype(np.float64))
    np.testing.assert_allclose(mapped(arithmetic.exp2, values), expected, rtol=2.5e-7)
    assert arithmetic.exp2(np.float32(-1e30)) == pytest.approx(2.0**-125, rel=1e-6)


def test_float32_exponential_reaches_below_the_floor() -> None:
    values = np.concatenate([WHOLE_RANGE, np.linspace(-103, -80, 101)]).astype(np.float32)
    expected = np.exp(values.astype(np.float64)) * 2.0**24
    np.testing.assert_allclose(mapped(arithmetic.scaled_exp, values), expected, rtol=4e-7)
    assert arithmetic.scaled_exp(np.float32(-104)) == 0
    assert arithmetic.scaled_exp(np.float32(-np.inf)) == 0


def test_float64_logarithm_and_powers() -> None:
    values = np.exp(WHOLE_RANGE)
    np.testing.assert_allclose(
        mapped(arithmetic.log2_double, values), np.log2(values), rtol=4e-16, atol=4e-16
    )
    powers = np.linspace(-1000, 100, 5001)
    np.testing.assert_allclose(mapped(arithmetic.exp2_double, powers), np.exp2(powers), rtol=6e-16)


def exact(log_q: Array, labels: Array, beta: float) -> Values:
    """The score of `[k, n, c]` at β, its slope, and minus its second derivative, by NumPy."""
    log_q = floor_log_probs(log_q)
    own = np.take_along_axis(log_q, labels[None, :, None], axis=-1)[..., 0]
    scaled = beta * log_q - (beta * log_q).max(axis=-1, keepdims=True)
    tempered = np.exp(scaled) / np.exp(scaled).sum(axis=-1, keepdims=True)
    log_sum = np.log(np.exp(scaled).sum(axis=-1)) + (beta * log_q).max(axis=-1)
    mean = (tempered * log_q).sum(axis=-1)
    variance = (tempered * (log_q - mean[..., None]) ** 2).sum(axis=-1)
    return Values(
        (beta * own - log_sum).mean(axis=1), (own - mean).mean(axis=1), variance.mean(axis=1)
    )


def step_of(log_probs: Array, step: int, seed: int) -> tuple[Array, Array]:
    """An average of `step` − 1 of the candidates, and log q of each candidate added to it."""
    probabilities = np.exp(log_probs.astype(np.float64))
    chosen = np.random.default_rng(seed).integers(len(log_probs), size=step - 1)
    mean = probabilities[chosen].mean(axis=0) if step > 1 else np.zeros(log_probs.shape[1:])
    q = ((step - 1) * mean + probabilities) / step
    return mean, np.log(np.maximum(q, np.exp(-80.0)))


POOLS = {
    "seed": st.integers(0, 2**32 - 1),
    "images": st.integers(1, 200),
    "classes": st.sampled_from([2, 3, 10, 60, 400]),
    "sharpness": st.sampled_from([0.01, 0.5, 1.0, 3.0, 10.0, 40.0]),
    "zeros": st.sampled_from([0.0, 0.3]),
    "step": st.sampled_from([1, 2, 3, 50]),
}


@given(**POOLS)
@settings(max_examples=40, deadline=None)
def test_float32_scores_are_within_the_stated_slack_and_bounded_by_likely_classes(
    seed: int, images: int, classes: int, sharpness: float, zeros: float, step: int
) -> None:
    log_probs, labels = random_pool(seed, 5, images, classes, sharpness=sharpness, zeros=zeros)
    mean, log_q = step_of(log_probs, step, seed)
    with ThreadPoolExecutor(1) as threads:
        pool = PackedPool(log_probs, labels, None, 1e-3, threads)
        pool.start_step(mean, step)
        for beta in BETAS:
            which = np.arange(5), np.full(5, beta)
            found, true = pool.evaluate(*which), exact(log_q, labels, beta)
            allowed = [slack(score, beta, classes) for score in true.score]
            assert (np.abs(found.score - true.score) <= allowed).all()
            np.testing.assert_allclose(found.slope, true.slope, rtol=1e-4, atol=1e-3)
            np.testing.assert_allclose(found.bend, true.bend, rtol=1e-3, atol=2e-2)
            if beta <= pool.steepest:
                assert (pool.bound(*which).score >= true.score - allowed).all()


@given(**POOLS)
@settings(max_examples=40, deadline=None)
def test_no_score_exceeds_its_upper_bound(
    seed: int, images: int, classes: int, sharpness: float, zeros: float, step: int
) -> None:
    log_probs, labels = random_pool(seed, 3, images, classes, sharpness=sharpness, zeros=zeros)
    _, log_q = step_of(log_probs, step, seed)
    best = np.array([plain_cll(each, labels)[0] for each in log_q])
    for beta in BETAS:
        for spread in (80.0, float(-floor_log_probs(log_q).min())):
            bounds = upper_bounds(np.full(3, beta), exact(log_q, labels, beta), spread, classes)
            assert (bounds >= best - 1e-9 * (1 + np.abs(best))).all()


def test_the_upper_bound_is_tight_near_the_maximum() -> None:
    log_probs, labels = random_pool(0, 1, 500, 10)
    best, temperature = plain_cll(log_probs[0], labels)
    for away, gap in ((1.02, 1e-4), (1.002, 1e-6)):
        beta = np.array([away / temperature])
        bound = upper_bounds(beta, exact(log_probs, labels, beta[0]), 80.0, 10)
        assert best <= bound[0] <= best + gap


def test_sums_do_not_depend_on_the_threads() -> None:
    log_probs, labels = random_pool(1, 30, 1500, 7)
    mean, _ = step_of(log_probs, 4, 1)
    results = []
    for count in (1, 2, 5):
        with ThreadPoolExecutor(count) as threads:
            pool = PackedPool(log_probs, labels, None, 1e-3, threads)
            pool.start_step(mean, 4)
            values = pool.evaluate(np.arange(30), np.linspace(0.5, 2, 30))
            bounds = pool.bound(np.arange(30), np.linspace(0.5, 2, 30))
            results.append((values.score.tobytes(), values.slope.tobytes(), bounds.score.tobytes()))
    assert results[0] == results[1] == results[2]


def test_candidates_are_evaluated_alike_in_any_slot(
    threads: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_probs, labels = random_pool(3, 21, 130, 60, sharpness=6.0)
    betas = np.linspace(0.5, 2, 21)
    together = (
        PackedPool(log_probs, labels, None, 1e-3, threads).evaluate(np.arange(21), betas).score
    )
    monkeypatch.setattr(pool_module, "slots", lambda shape: 4)
    tight = PackedPool(log_probs, labels, None, 1e-3, threads)
    for which in ([20], [4, 9, 17], [9, 3, 4, 1], range(21), [0, 20]):
        chosen = np.array(which)
        assert tight.evaluate(chosen, betas[chosen]).score.tolist() == together[chosen].tolist()


def test_images_without_weight_are_left_out(threads: Executor) -> None:
    log_probs, labels = random_pool(7, 6, 300, 12)
    inside = np.arange(300) % 4 != 1
    mean, _ = step_of(log_probs, 5, 7)
    whole = PackedPool(log_probs, labels, inside.astype(float), 1e-3, threads)
    part = PackedPool(log_probs[:, inside], labels[inside], None, 1e-3, threads)
    whole.start_step(mean, 5)
    part.start_step(mean[inside], 5)
    every, betas = np.arange(6), np.linspace(0.7, 1.4, 6)
    np.testing.assert_allclose(
        whole.evaluate(every, betas).score, part.evaluate(every, betas).score, rtol=1e-6
    )
    np.testing.assert_allclose(
        whole.bound(every, betas).score, part.bound(every, betas).score, rtol=0.01
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.5, -0.001])
def test_the_layout_notices_suspect_rows(threads: Executor, value: float) -> None:
    log_probs, labels = random_pool(4, 12, 90, 6)
    assert not PackedPool(log_probs, labels, None, 1e-3, threads).wrong.any()
    log_probs[9, 77, 3] = value
    wrong = PackedPool(log_probs, labels, None, 1e-3, threads).wrong
    assert np.flatnonzero(wrong).tolist() == [9]
