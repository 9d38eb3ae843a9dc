"""Detecting foreign images, of no class that the model knows, by its predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from relook.errors import RelookError
from relook.evaluation.comparison import Detection
from relook.evaluation.scoring import MethodRun
from relook.evaluation.setup import Setup
from relook.numerics.arrays import FloatArray, LogProbs
from relook.numerics.calibration import mean_log_probs, temper
from relook.numerics.metrics import (
    auroc,
    auroc_gain,
    confidences,
    entropy,
    fpr95,
    mutual_information,
)
from relook.policy import SubPolicy
from relook.predictions.passes import Images, View, predict_views

FEWEST = 20
"""Nothing is claimed on fewer foreign images."""

_CONFIDENCE = 1 - 0.05 / 3  # the policy has three scores, whose intervals hold together


def detect(
    setup: Setup,
    foreign: Sequence[Images],
    line: MethodRun,
    averages: Mapping[str, LogProbs],
    calibrated: Mapping[str, LogProbs],
    disagreement: FloatArray,
) -> tuple[Detection, ...]:
    """Return how well scores of the plain image and of a policy detect foreign images.

    `averages` and `calibrated` are log-probabilities `[n, c]` of "plain" and "policy"; foreign
    images get the temperatures that are fitted on all own images.
    """
    ends = np.cumsum([len(part) for part in foreign])
    if ends[-1] < FEWEST:
        raise RelookError(
            f"expected at least {FEWEST} foreign images, got {ends[-1]}: too few to tell"
        )
    views = [View(SubPolicy(), 0), *(View(sub, i) for i, sub in enumerate(line.policy))]
    parts = [
        predict_views(
            setup.predictor,
            part,
            views,
            seed=setup.seed,
            batch=setup.batch,
            indices=np.arange(end - len(part), end),
        )
        for part, end in zip(foreign, ends, strict=True)
    ]
    log_probs = np.concatenate(parts, axis=1)
    policy = line.policy.tempered(log_probs[1:])
    kappas = {"plain": 1.0, "policy": line.policy.view_temperature}
    found: dict[tuple[str, str], tuple[FloatArray, FloatArray]] = {}
    for method, theirs in (("plain", log_probs[0]), ("policy", mean_log_probs(policy))):
        fitted = setup.temperature(np.asarray(averages[method]), kappas[method])
        other, own = temper(theirs, fitted), calibrated[method]
        found[method, "max_probability"] = confidences(own), confidences(other)
        found[method, "entropy"] = -entropy(own), -entropy(other)
    found["policy", "mutual_information"] = -disagreement, -mutual_information(policy)
    groups = setup.dataset.units
    return tuple(
        Detection(
            method=method,
            score=score,
            auroc=auroc(*pair),
            fpr95=fpr95(*pair),
            over_plain=None
            if method == "plain"
            else auroc_gain(pair, found["plain", "max_probability"], groups, _CONFIDENCE),
        )
        for (method, score), pair in found.items()
    )
