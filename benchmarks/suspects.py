"""How many of the first suspect labels are wrong, where 3 % of them are made so.

    python benchmarks/suspects.py --draws 5 DIR/akamaster-resnet20-cifar10.npy …

NAME.npy holds log-probabilities [view, image, class] of the default pool of 80 views of CIFAR
images (quality.py predicts them; the first is the plain image), and NAME.labels.npy their labels.
In each draw, 3 % of the labels become another class; a policy is searched on a third of the images
with these labels, and all images are ranked by it and by the plain image.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.pop(0)  # this directory, whose coverage.py would hide the package of its name

from relook.evaluation.cross_validation import cross_calibrated
from relook.evaluation.suspects import self_confidence
from relook.numerics.arrays import FloatArray, Labels
from relook.numerics.calibration import mean_log_probs, temper
from relook.policy.pool import conservative_pool
from relook.selection import greedy_search

NOISE = 0.03
_POOL, _LENGTH = 80, 20
_SHARES = (1 / 3, 1.0)


def with_noise(labels: Labels, classes: int, seed: int) -> tuple[Labels, NDArray[np.int64]]:
    """Return labels of which 3 % are wrong, and where."""
    generator = np.random.default_rng(seed)
    wrong = generator.choice(len(labels), round(NOISE * len(labels)), replace=False)
    noisy = labels.copy()
    noisy[wrong] = (noisy[wrong] + generator.integers(1, classes, len(wrong))) % classes
    return noisy, wrong


def averages(log_probs: NDArray[np.float32], labels: Labels, seed: int) -> dict[str, FloatArray]:
    """Return the calibrated predictions of the plain image and of a policy, searched on a third."""
    order = np.random.default_rng(1000 + seed).permutation(len(labels))
    third, defaults = order[: len(labels) // 3], range(conservative_pool("cifar", _POOL).defaults)
    found = greedy_search(log_probs[:, third], labels[third], _LENGTH, defaults=defaults)
    kappa = found.view_temperature
    mean = mean_log_probs(temper(log_probs[list(found.picks)], kappa))
    return {
        "plain image": cross_calibrated(log_probs[0], labels, seed=0),
        "policy": cross_calibrated(mean, labels, seed=0, view_temperature=kappa),
    }


def measure(log_probs: NDArray[np.float32], labels: Labels, draws: int) -> dict[str, FloatArray]:
    """Return the precision among the first suspects `[draw, share of the noise]`."""
    found: dict[str, list[list[float]]] = {}
    for seed in range(draws):
        noisy, wrong = with_noise(labels, log_probs.shape[2], seed)
        firsts = [round(share * len(wrong)) for share in _SHARES]
        for name, predicted in averages(log_probs, noisy, seed).items():
            order = np.argsort(self_confidence(predicted, noisy), kind="stable")
            precisions = [float(np.isin(order[:first], wrong).mean()) for first in firsts]
            found.setdefault(name, []).append(precisions)
    return {name: np.array(values) for name, values in found.items()}


def main() -> None:
    """Print a line per network."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("files", type=Path, nargs="+")
    options.add_argument("--draws", type=int, default=5)
    chosen = options.parse_args()
    print("| network | first third: plain image | policy | as many as are wrong: plain | policy |")
    print("| --- | --- | --- | --- | --- |")
    for file in chosen.files:
        labels = np.load(file.with_suffix(".labels.npy"))
        found = measure(np.load(file)[:_POOL], labels, chosen.draws)
        means = np.transpose([values.mean(axis=0) for values in found.values()])
        cells = " | ".join(f"{value:.3f}" for value in means.ravel())
        print(f"| {file.stem} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
