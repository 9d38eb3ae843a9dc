"""Prediction sets on stored predictions: coverage and size, learned views and the plain image.

A third of the images chooses views and temperatures, a third sets the thresholds, and a third shows
what the sets are worth; so for each of several random splits.

    python -m benchmarks.prediction_sets NAME.npy … [--splits 20] [--views 10] [--coverage 0.9,0.95]

NAME.npy has log-probabilities `[view, image, class]`, the plain image first, and NAME.labels.npy
the labels.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

import numpy as np

from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.calibration import fit_temperature, mean_log_probs, temper
from relook.numerics.conformal import Score, fit_sets
from relook.numerics.intervals import mean_and_deviation
from relook.numerics.view_temperature import choose_view_temperature
from relook.selection import greedy_search

POOL = 80  # candidates of the default search


def main() -> None:
    """Print a table in Markdown: a row per network, coverage and score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--views", type=int, default=10)
    parser.add_argument("--coverage", default="0.9,0.95")
    given = parser.parse_args()
    levels = [float(level) for level in given.coverage.split(",")]
    print(
        "| network | coverage | score | plain: covered % | classes | views: covered % | classes |",
        end="",
    )
    print(" change % |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
    for file in given.files:
        log_probs = np.load(file, mmap_mode="r")[:POOL].astype(np.float32)
        labels = np.load(file.with_suffix(".labels.npy")).astype(np.int64)
        for (level, score), figures in measured(log_probs, labels, levels, given).items():
            means = [mean_and_deviation(one)[0] for one in figures.T]
            change, deviation = mean_and_deviation(100 * (figures[:, 3] / figures[:, 1] - 1))
            print(
                f"| {file.stem} | {level:g} | {score} | {100 * means[0]:.1f} | {means[1]:.2f} "
                f"| {100 * means[2]:.1f} | {means[3]:.2f} | {change:+.1f} ± {deviation:.1f} |",
                flush=True,
            )


def measured(
    log_probs: LogProbs, labels: Labels, levels: list[float], given: argparse.Namespace
) -> dict[tuple[float, Score], FloatArray]:
    """Return covered, classes of the plain image, then of the views, `[split, 4]`, by rule."""
    found: dict[tuple[float, Score], list[list[float]]] = {}
    for seed in range(given.splits):
        order = np.random.default_rng(seed).permutation(len(labels))
        choose, fit, show = np.array_split(order, 3)
        chosen = log_probs[:, choose]
        at = choose_view_temperature(chosen, labels[choose])
        views = temper(log_probs, at).astype(np.float32)
        picks = greedy_search(views[:, choose], labels[choose], given.views).picks
        means = (log_probs[0], mean_log_probs(views[[*picks]]))
        kept = ((1.0, means[0]), (at, means[1]))
        shares = [
            np.exp(
                temper(one, fit_temperature(one[choose], labels[choose], view_temperature=kappa))
            )
            for kappa, one in kept
        ]
        for level in levels:
            for score in get_args(Score):
                row: list[float] = []
                for one in shares:
                    rule = fit_sets(one[fit], labels[fit], coverage=level, score=score)
                    sets = rule.sets(one[show])
                    hit = sets[np.arange(len(show)), labels[show]].mean()
                    row += [float(hit), float(sets.sum(axis=1).mean())]
                found.setdefault((level, score), []).append(row)
    return {key: np.array(rows) for key, rows in found.items()}


if __name__ == "__main__":
    main()
