import numpy as np
from numpy.typing import NDArray

from relook.deploy.early_exit.rule import EarlyExit, policy_fingerprint
from relook.policy import Policy
from relook.policy.pool import sample_pool

VIEWS = 6


def policy_of(views: int = VIEWS) -> Policy:
    return Policy(sample_pool("cifar", 20, 0)[:views], recipe="cifar")


def predictions(
    images: int, seed: int = 0, views: int = VIEWS, classes: int = 5
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Views of easy and hard images: their errors are independent, so averaging helps."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, images)
    logits = generator.normal(size=(views, images, classes)) * 1.5
    logits += 0.6 * generator.normal(size=(images, classes))
    logits[:, np.arange(images), labels] += 6 / (0.3 + generator.exponential(size=images))
    logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return logits.astype(np.float32), labels


def some_rule(policy: Policy, thresholds: tuple[float, ...]) -> EarlyExit:
    temperatures = tuple(1.0 + 0.1 * row for row in range(len(thresholds) + 1))
    return EarlyExit(thresholds, temperatures, "views=2", policy_fingerprint(policy), 40, 2.0)
