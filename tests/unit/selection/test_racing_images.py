import numpy as np
import pytest
from numpy.typing import NDArray

from relook.numerics.calibration import calibrated_log_likelihood, mean_log_probs, temper
from relook.selection.racing_images import CHANGES, image_order

IMAGES, CLASSES, PILOTS = 800, 4, 3

LogProbs = NDArray[np.float32]
Floats = NDArray[np.float64]


def predictions(seed: int, candidates: int = PILOTS) -> tuple[LogProbs, NDArray[np.int64]]:
    """Make predictions of images, every third a hard one; candidates are mixtures of few kinds."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, IMAGES)
    shared = generator.normal(size=(IMAGES, CLASSES))
    kinds = generator.normal(size=(3, IMAGES, CLASSES))
    mixtures = generator.normal(size=(candidates, 3))
    noise = generator.normal(size=(candidates, IMAGES, CLASSES))
    logits = shared + 0.5 * np.einsum("kf,fic->kic", mixtures, kinds) + 0.3 * noise
    logits[:, np.arange(IMAGES), labels] += np.where(np.arange(IMAGES) % 3, 5.0, 0.5)
    return temper(logits, 1.0).astype(np.float32), labels.astype(np.int64)


def gains_of(log_probs: LogProbs, average: Floats, labels: NDArray[np.int64]) -> Floats:
    """Return what one more view changes on each image, `[candidate, image]`, spelt out."""
    temperature = calibrated_log_likelihood(average, labels)[1]
    every = np.arange(len(labels))
    before = temper(average, temperature)[every, labels]
    mixed = [np.log((10 * np.exp(average) + np.exp(own)) / 11) for own in log_probs.astype(float)]
    return np.stack([temper(one, temperature)[every, labels] - before for one in mixed])


def ones() -> Floats:
    return np.ones(IMAGES)


def scaled(weights: Floats) -> Floats:
    return np.asarray(weights / weights.mean())


def test_the_weights_of_the_first_images_are_unbiased() -> None:
    log_probs, labels = predictions(3, PILOTS + 1)
    values = -log_probs[-1, np.arange(IMAGES), labels].astype(np.float64)
    estimates = []
    for seed in range(400):
        images = image_order(log_probs[:PILOTS], labels, ones(), seed)
        estimates.append((images.weights(100) * values[images.order[:100]]).sum() / IMAGES)
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates) - values.mean()) < 4 * error
    assert error < 0.02 * values.mean()


def test_images_that_tell_candidates_apart_come_first() -> None:
    log_probs, labels = predictions(0)
    images = image_order(log_probs, labels, ones(), 0)
    assert sorted(images.order.tolist()) == list(range(IMAGES))
    gains = gains_of(log_probs, mean_log_probs(log_probs), labels)
    spread = gains.std(axis=0)
    assert spread[images.order[:100]].mean() > 1.5 * spread.mean()


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log_probs, labels = predictions(2)
    whole = image_order(log_probs, labels, ones(), 0)
    monkeypatch.setattr("relook.selection.racing_images._BLOCK_VALUES", 100)
    parts = image_order(log_probs, labels, ones(), 0)
    np.testing.assert_array_equal(parts.order, whole.order)
    np.testing.assert_array_equal(parts.features, whole.features)


def test_matched_weights_estimate_the_gain_of_others_better() -> None:
    """What a race needs: how a candidate that is no pilot does on all images, from a few."""
    log_probs, labels = predictions(4, 40)
    gains = gains_of(log_probs, mean_log_probs(log_probs[:PILOTS]), labels)[PILOTS:]
    errors: dict[str, list[float]] = {"design": [], "matched": []}
    for seed in range(60):
        images = image_order(log_probs[:PILOTS], labels, ones(), seed)
        first, weights = images.order[:150], images.weights(150)
        ways = {"design": scaled(weights), "matched": images.matched(first, weights)}
        for name, own in ways.items():
            found = (gains[:, first] * own).mean(axis=1)
            errors[name].append(float(((found - gains.mean(axis=1)) ** 2).mean()))
    assert np.mean(errors["matched"]) < 0.8 * np.mean(errors["design"])


def test_matched_weights_have_the_means_of_all_images() -> None:
    log_probs, labels = predictions(5)
    images = image_order(log_probs, labels, ones(), 0)
    first, weights = images.order[:200], images.weights(200)
    before = (images.features[first] * scaled(weights)[:, None]).mean(axis=0)
    matched = images.matched(first, weights)
    after = (images.features[first] * matched[:, None]).mean(axis=0)
    assert matched.mean() == pytest.approx(1)
    assert (matched > 0).all()
    ratio = matched / weights
    assert ratio.max() / ratio.min() <= CHANGES[1] / CHANGES[0]
    assert np.abs(after[1:]).max() < 0.3 * np.abs(before[1:]).max()


def test_balanced_weights_give_classes_the_same_share() -> None:
    log_probs, labels = predictions(0)
    rng = np.random.default_rng(1)
    labels = np.where(rng.random(IMAGES) < 0.2, labels % 2, 2)  # one easy class of 80 %
    log_probs[:, labels == 2] = -9.0
    log_probs[:, labels == 2, 2] = -1e-3
    balance = IMAGES / (3 * np.bincount(labels, minlength=3)[labels])
    shares = []
    for seed in range(20):
        images = image_order(log_probs, labels, balance, seed)
        first = images.order[:200]
        matched = images.matched(first, images.weights(200))
        shares.append(np.bincount(labels[first], matched, 3) / matched.sum())
    assert np.mean(shares, axis=0) == pytest.approx([1 / 3] * 3, abs=0.05)


def test_pilots_that_agree_in_everything_leave_the_order_to_chance() -> None:
    labels = np.zeros(IMAGES, dtype=np.int64)
    log_probs = np.full((2, IMAGES, CLASSES), -np.log(CLASSES), dtype=np.float32)
    images = image_order(log_probs, labels, ones(), 0)
    assert np.ptp(images.chances) < 1e-9
    matched = images.matched(images.order[:50], images.weights(50))
    np.testing.assert_allclose(matched, 1, rtol=1e-6)
