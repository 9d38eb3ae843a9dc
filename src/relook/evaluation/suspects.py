"""Suspect labels: images whose label the average of a policy's views contradicts, ranked.

By confident learning (Northcutt et al. 2021): labels that confident predictions contradict.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from relook.data.base import Dataset
from relook.evaluation.comparison import class_names
from relook.evaluation.cross_validation import cross_calibrated
from relook.evaluation.results import csv_text
from relook.foundation.wording import count, views_text
from relook.io.files import write_text_atomic
from relook.io.identities import is_in
from relook.models import Predictor
from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.calibration import mean_log_probs
from relook.policy import Policy
from relook.predictions.passes import View, distinct_views, predict_views

NO_CLASS = -1
_LEAST_SHOWN = 1e-5

_SLACK = 1e-6  # for rounding: a probability equal to its threshold is confident


def self_confidence(log_probs: LogProbs, labels: Labels) -> FloatArray:
    """Return the probability of each image's own label `[n]`: the lower, the more suspect."""
    own = np.take_along_axis(log_probs, labels[:, None], axis=1)[:, 0]
    return np.exp(own, dtype=np.float64)


def class_thresholds(log_probs: LogProbs, labels: Labels, fewest: int = 1) -> FloatArray:
    """Return each class's mean self-confidence `[c]`; infinity with fewer images than `fewest`."""
    classes = log_probs.shape[1]
    images = np.bincount(labels, minlength=classes)
    sums = np.bincount(labels, self_confidence(log_probs, labels), minlength=classes)
    return np.where(images >= fewest, sums / np.maximum(images, 1), np.inf)


def confident_classes(log_probs: LogProbs, thresholds: FloatArray) -> Labels:
    """Return each image's likeliest class of those above their thresholds `[n]`, or `NO_CLASS`."""
    reached = np.exp(log_probs, dtype=np.float64) >= thresholds - _SLACK
    likeliest = np.where(reached, log_probs, -np.inf).argmax(axis=1)
    return np.where(reached.any(axis=1), likeliest, NO_CLASS)


FEWEST = 5
"""A class with fewer images has no threshold, so no prediction of it is confident."""


@dataclass(frozen=True)
class Suspect:
    """An image whose most probable class is not its label.

    `score` is the label's probability, `probability` that of the suggested class; `views_agree`
    counts the views that suggest the same class by themselves. `confident` is meant as in confident
    learning; `searched`: the policy was found on the image.
    """

    file: str
    index: int
    label: str
    suggested: str
    score: float
    probability: float
    views_agree: int
    confident: bool
    searched: bool

    @property
    def name(self) -> str:
        """The image's file, or `image 428` if it has none."""
        return f"image {self.index}" if self.file == str(self.index) else self.file

    @property
    def score_text(self) -> str:
        """The label's probability, with the digits that small ones need."""
        return f"{self.score:.5f}" if self.score >= _LEAST_SHOWN else f"<{_LEAST_SHOWN:.5f}"


@dataclass(frozen=True, eq=False)
class Suspects:
    """Suspect labels of a data set, the most suspect first, found with this many views."""

    dataset: Dataset
    found: tuple[Suspect, ...]
    views: int
    few: tuple[str, ...] = ()
    """The classes with too few images for a threshold."""

    @property
    def sentence(self) -> str:
        """The result, in a few sentences."""
        sure = sum(one.confident for one in self.found)
        searched = int(sum(one.searched for one in self.found))
        images = count(len(self.dataset), "image")
        text = (
            f"Of {images}, {count(len(self.found), 'label is', 'labels are')} contradicted by the "
            f"average of {views_text(self.views)}, {sure:,} of them with confidence."
        )
        if searched:
            text += f" {searched:,} of the suspects are images used in the search."
        if self.few:
            text += (
                f" Too few images to be confident of: {', '.join(self.few[:5])}"
                f"{' …' if len(self.few) > 5 else ''} (fewer than {FEWEST})."
            )
        return text

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return {
            "images": len(self.dataset),
            "views": self.views,
            "sentence": self.sentence,
            "suspects": [asdict(one) for one in self.found],
        }

    def to_csv(self, path: str | Path) -> None:
        """Write a row per suspect, atomically."""
        rows = (asdict(one).values() for one in self.found)
        write_text_atomic(path, csv_text((one.name for one in fields(Suspect)), rows))


def find_suspects(predictor: Predictor, dataset: Dataset, policy: Policy, **how: Any) -> Suspects:
    """Return the images whose label the policy contradicts, the least probable label first.

    Predictions are calibrated with the same labels, each image's with those of others. The model
    must not have been trained on these images: it may have memorised wrong labels. `how` is as for
    `predict_views`.
    """
    views, order = distinct_views([View(sub, place) for place, sub in enumerate(policy)])
    log_probs = policy.tempered(
        predict_views(predictor, dataset.images, views, seed=policy.seed, **how)
    )
    labels = dataset.labels
    calibrated = cross_calibrated(
        mean_log_probs(log_probs, axis=0, counts=np.bincount(order)),
        labels,
        seed=0,
        groups=dataset.units,
        view_temperature=policy.view_temperature,
    )
    names = class_names(dataset, calibrated.shape[1])
    suggested, scores = calibrated.argmax(axis=1), self_confidence(calibrated, labels)
    agree = (log_probs.argmax(axis=2) == suggested).sum(axis=0)
    thresholds = class_thresholds(calibrated, labels, FEWEST)
    confident = confident_classes(calibrated, thresholds) == suggested
    searched = is_in(dataset.identities, policy.seen)
    files = dataset.columns.get("path", np.arange(len(dataset)))
    wrong = np.flatnonzero(suggested != labels)
    found = (
        Suspect(
            file=str(files[i]),
            index=int(i),
            label=names[labels[i]],
            suggested=names[suggested[i]],
            score=float(scores[i]),
            probability=float(np.exp(calibrated[i, suggested[i]])),
            views_agree=int(agree[i]),
            confident=bool(confident[i]),
            searched=bool(searched[i]),
        )
        for i in wrong[np.argsort(scores[wrong], kind="stable")]
    )
    few = tuple(name for name, one in zip(names, thresholds, strict=True) if np.isinf(one))
    return Suspects(dataset, tuple(found), len(views), few)
