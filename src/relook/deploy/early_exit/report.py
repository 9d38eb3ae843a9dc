"""What an early exit is worth on images that it has not seen: beside fixed numbers of views."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.deploy.early_exit.learn import FittedExits, rule_within
from relook.deploy.early_exit.rule import (
    EarlyExit,
    calibrated_exits,
    exit_counts,
    first_exits,
    take_exits,
)
from relook.errors import RelookError
from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.intervals import Interval, paired_bootstrap
from relook.numerics.metrics import per_image_accuracy, per_image_log_likelihood
from relook.policy import Policy

BUDGETS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 14.0, 20.0, 30.0, 50.0)
"""Mean numbers of views that the curve is drawn for, as far as the policy goes."""


@dataclass(frozen=True)
class Point:
    """One way to spend views: their mean number, and what it reaches."""

    views: float
    cll: float
    accuracy: float


@dataclass(frozen=True)
class Difference:
    """Early exit minus a number of views that is the same for every image.

    A number between two whole ones gives each image the mean of what it scores with both: the
    fewer for some images, the more for others, drawn at random.
    """

    views: float
    cll: Interval
    accuracy: Interval


@dataclass(frozen=True)
class ExitReport:
    """An early exit beside fixed budgets, on `images` images that it was not learned on.

    cLL is the log-likelihood at temperatures learned on other images, the rule's own, for the
    fixed budgets as well. `over_same` compares with the fixed budget that costs exactly the
    same, `over_next` with the next whole number of views, `over_full` with all views. `curve`
    holds rules for other mean numbers of views, `fixed` every number of views; `exits` counts
    images by their views.
    """

    rule: EarlyExit
    images: int
    own: Point
    over_same: Difference
    over_next: Difference
    over_full: Difference
    curve: tuple[Point, ...]
    fixed: tuple[Point, ...]
    exits: tuple[int, ...]

    @property
    def saving(self) -> float:
        """How many times fewer views than the whole policy."""
        return self.rule.views / self.own.views

    @property
    def sentence(self) -> str:
        """The result in a sentence."""
        same, full = self.over_same, self.over_full
        versus = "better than" if same.cll.low > 0 else "not better than"
        return (
            f"{self.own.views:.2f} views an image instead of {self.rule.views} "
            f"({self.saving:.1f} × fewer): accuracy {_points(full.accuracy)} against all views, "
            f"and {versus} {same.views:.2f} views for every image (cLL {same.cll})"
        ).replace("-", "−")

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-able data."""
        content = asdict(self)
        return {**content, "rule": self.rule.to_json(), "saving": self.saving}


def report_early_exit(
    rule: EarlyExit,
    log_probs: LogProbs,
    labels: Labels,
    policy: Policy,
    *,
    learned_on: tuple[LogProbs, Labels],
    seed: int = 0,
    groups: ArrayLike | None = None,
    resamples: int = 2000,
) -> ExitReport:
    """Score a rule on predictions `[view, n, class]` of the policy's distinct views.

    `learned_on` are the predictions and labels that the rule was learned on: the curve's rules
    are made of them. Intervals are paired bootstraps over images (whole `groups`).
    """
    rule.check_policy(policy)
    if labels.shape != log_probs.shape[1:2] or len(labels) < 2:
        raise RelookError(
            f"expected labels of {log_probs.shape[1]} images, at least 2, got {list(labels.shape)}"
        )
    counts = exit_counts(policy)
    exits = _Scored.of(log_probs, labels, counts, rule.temperatures)
    views = first_exits(exits.log_probs, rule.thresholds)
    cll, correct = exits.of_images(views)

    def over(number: float) -> Difference:
        found = [
            paired_bootstrap(
                own - _at(fixed, number), seed=seed, resamples=resamples, groups=groups
            )
            for own, fixed in ((cll, exits.cll), (correct, exits.correct))
        ]
        return Difference(number, *found)

    return ExitReport(
        rule=rule,
        images=len(labels),
        own=exits.point(views),
        over_same=over(float(views.mean())),
        over_next=over(math.ceil(views.mean())),
        over_full=over(rule.views),
        curve=_curve(exits, _Scored.of(*learned_on, counts, rule.temperatures)),
        fixed=tuple(
            exits.point(np.full(len(labels), number)) for number in range(1, rule.views + 1)
        ),
        exits=tuple(int(count) for count in np.bincount(views, minlength=rule.views + 1)[1:]),
    )


@dataclass(frozen=True)
class _Scored:
    """Every exit's predictions `[exit, n, class]` with what images score there `[exit, n]`."""

    log_probs: FloatArray
    cll: FloatArray
    correct: FloatArray

    @classmethod
    def of(
        cls,
        log_probs: LogProbs,
        labels: Labels,
        counts: NDArray[np.int64],
        temperatures: tuple[float, ...],
    ) -> _Scored:
        exits = calibrated_exits(log_probs, counts, temperatures)
        return cls(
            exits,
            np.stack([per_image_log_likelihood(one, labels) for one in exits]),
            np.stack([per_image_accuracy(one, labels) for one in exits]),
        )

    def of_images(self, views: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Return each image's cLL and correctness `[n]` after its own number of views."""
        return take_exits(self.cll, views), take_exits(self.correct, views)

    def point(self, views: NDArray[np.int64]) -> Point:
        cll, correct = self.of_images(views)
        return Point(float(views.mean()), float(cll.mean()), float(correct.mean()))

    def fitted(self) -> FittedExits:
        return FittedExits(self.log_probs, np.exp(self.log_probs.max(axis=-1)), self.cll)


def _at(scores: FloatArray, views: float) -> FloatArray:
    """Return what images score `[n]` with so many views, from `[exit, n]`."""
    low, high = math.floor(views), math.ceil(views)
    share = views - low
    return np.asarray((1 - share) * scores[low - 1] + share * scores[high - 1])


def _curve(exits: _Scored, learned: _Scored) -> tuple[Point, ...]:
    fitted = learned.fitted()
    budgets = [budget for budget in BUDGETS if budget < len(exits.log_probs)]
    # Budgets beyond what pays have one and the same rule.
    rules = dict.fromkeys(rule_within(budget, fitted) for budget in budgets)
    return tuple(exits.point(first_exits(exits.log_probs, rule)) for rule in rules)


def _points(difference: Interval) -> str:
    low, high = 100 * difference.low, 100 * difference.high
    return f"{100 * difference.estimate:+.2f} points [{low:+.2f}, {high:+.2f}]"
