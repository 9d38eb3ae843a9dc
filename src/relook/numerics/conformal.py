"""Prediction sets with a guarantee: split conformal prediction.

A class is in an image's set if its score is at most a threshold, fitted on other labelled images:
the true class of a new image is then in its set with the wanted coverage, on average over images,
whatever the network. Scores are deterministic functions of probabilities `[image, class]`:

- lac: 1 − the class's probability (Sadinle and others 2019): smallest sets, which may be empty;
- aps: the probability of all likelier classes together (Romano and others 2020; Angelopoulos and
  others 2021 with u = 0), so that the likeliest class is in every set;
- raps: the same, with a penalty for each class after the first few (Angelopoulos and others 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.errors import RelookError, unknown_name
from relook.numerics.arrays import FloatArray, Indices, Labels
from relook.numerics.intervals import group_numbers

Score = Literal["lac", "aps", "raps"]
PENALTY, FREE = 0.01, 5
"""The defaults of raps: the penalty for each class after so many that are free."""

SLACK = 1e-6
"""The tolerance above a threshold: scores in float32 differ between engines."""

_ROUNDING = 1e-9  # of numbers of images computed from shares


@dataclass(frozen=True)
class SetRule:
    """The classes of a set: those whose score is at most the threshold, common or per class.

    It is valid for probabilities at its `temperature`. `penalty` and `free` are for raps alone.
    """

    score: Score
    coverage: float
    thresholds: tuple[float, ...]
    temperature: float
    penalty: float = 0.0
    free: int = 0

    def sets(self, probabilities: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
        """Return a mask of the classes in each image's set, `[image, class]`."""
        self.check_classes(probabilities.shape[1])
        scores = set_scores(probabilities, self.score, self.penalty, self.free)
        return np.asarray(scores <= np.array(self.thresholds) + SLACK)

    def check_classes(self, classes: int) -> None:
        """Raise unless there is one threshold, or one for each class."""
        if len(self.thresholds) not in (1, classes):
            raise RelookError(
                f"expected {len(self.thresholds)} classes, as prediction sets have thresholds, "
                f"got {classes}: make them again with  relook conformal"
            )


def set_scores(
    probabilities: NDArray[np.floating[Any]], score: Score, penalty: float = 0.0, free: int = 0
) -> FloatArray:
    """Return the score of each class, `[image, class]`: the lower, the sooner it is in a set."""
    shares = np.asarray(probabilities, dtype=np.float64)
    if score == "lac":
        return np.asarray(1 - shares)
    order = np.argsort(-shares, axis=1, kind="stable")
    ranked = np.take_along_axis(shares, order, axis=1)
    above = np.cumsum(ranked, axis=1) - ranked
    if score == "raps":
        above += penalty * np.maximum(np.arange(1, shares.shape[1] + 1) - free, 0)
    scores = np.empty_like(shares)
    np.put_along_axis(scores, order, above, axis=1)
    return scores


def fit_sets(
    probabilities: NDArray[np.floating[Any]],
    labels: Labels,
    *,
    coverage: float = 0.9,
    score: Score = "aps",
    per_class: bool = False,
    penalty: float = PENALTY,
    free: int = FREE,
    temperature: float = 1.0,
    groups: ArrayLike | None = None,
    classes: tuple[str, ...] = (),
) -> SetRule:
    """Fit the rule on labels of images that nothing was learned on.

    With `per_class` each class has the coverage, not only their mean. With `groups` of images that
    belong together, the coverage is for images of a new group. `classes` are names for messages.
    """
    check_sets(coverage=coverage, score=score, penalty=penalty, free=free)
    if score != "raps":
        penalty, free = 0.0, 0
    scores = set_scores(probabilities, score, penalty, free)[np.arange(len(labels)), labels]
    names = classes or tuple(map(str, range(probabilities.shape[1])))
    check_enough(labels, names if per_class else (), coverage=coverage, groups=groups)
    units = np.arange(len(labels)) if groups is None else group_numbers(groups, len(labels))
    thresholds = tuple(
        _threshold(scores[own], coverage, units[own])
        for own, _ in _parts(labels, names if per_class else ())
    )
    return SetRule(score, coverage, thresholds, temperature, penalty, free)


def _parts(labels: Labels, names: tuple[str, ...]) -> list[tuple[Indices, str]]:
    """Return the images of each threshold (one per class if those have names), and their name."""
    if not names:
        return [(np.arange(len(labels)), "")]
    return [(np.flatnonzero(labels == k), f" of {name}") for k, name in enumerate(names)]


def check_enough(
    labels: Labels,
    names: tuple[str, ...] = (),
    *,
    coverage: float = 0.9,
    groups: ArrayLike | None = None,
) -> None:
    """Raise if images are too few for a threshold; with `names` of classes, for one of each."""
    least, what = images_for_coverage(coverage), "images" if groups is None else "groups of images"
    units = np.arange(len(labels)) if groups is None else np.asarray(groups)
    for own, of in _parts(labels, names):
        known = len(np.unique(units[own]))
        if known < least:
            raise RelookError(
                f"a coverage of {coverage:g} takes at least {least:,} {what}{of} that nothing was "
                f"learned on, got {known:,}: give more, or a lower coverage"
            )


def images_for_coverage(coverage: float) -> int:
    """Return the fewest images, or groups of them, that a threshold can be fitted on."""
    return math.ceil(coverage / (1 - coverage) - _ROUNDING)


def coverage_deviation(coverage: float, images: int) -> float:
    """Return the standard deviation of the coverage over choices of the threshold's images.

    With independent images the coverage has a beta distribution.
    """
    rank = math.ceil((images + 1) * coverage - _ROUNDING)
    share = rank / (images + 1)
    return math.sqrt(share * (1 - share) / (images + 2))


def _threshold(scores: FloatArray, coverage: float, units: Indices) -> float:
    """Return the ⌈(n + 1)·coverage⌉-th smallest of n scores.

    Of groups, each counts as one and a new one as the worst (Lee, Barber and Willett 2023).
    """
    _, own, sizes = np.unique(units, return_inverse=True, return_counts=True)
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(1 / sizes[own[order]]) / (len(sizes) + 1)
    return float(scores[order][np.searchsorted(reached, coverage - _ROUNDING)])


def check_sets(
    coverage: float = 0.9,
    score: str = "aps",
    per_class: bool = False,
    penalty: float = PENALTY,
    free: int = FREE,
) -> None:
    """Raise unless there are such sets."""
    if score not in get_args(Score):
        raise unknown_name("score", score, get_args(Score))
    for name, value, sound, wanted in (
        ("coverage", coverage, 0 < coverage < 1, "a share between 0 and 1, as 0.9 for 90 %"),
        ("penalty", penalty, 0 <= penalty < math.inf, "a number from 0 on"),
        ("free", free, free >= 1, "a whole number from 1 on"),
    ):
        if not sound:
            raise RelookError(f"{name}: expected {wanted}, got {value!r}")
