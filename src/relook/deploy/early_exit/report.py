"""Evaluates an early exit on unseen images, against fixed numbers of views."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relook.deploy.early_exit.learn import check_unseen, rule_within
from relook.deploy.early_exit.rule import (
    EarlyExit,
    ScoredExits,
    calibrated_exits,
    exit_counts,
    first_exits,
    take_exits,
)
from relook.errors import RelookError
from relook.evaluation.unseen import doubt_of
from relook.io.identities import Identities
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.intervals import Interval, likely_variance, paired_interval, share_interval
from relook.policy import Policy

BUDGETS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 14.0, 20.0, 30.0, 50.0)
"""Mean numbers of views on the curve, up to the policy's own."""

_VIEWS_ERROR = 0.1  # of the mean number of views, beyond which more images are asked for
_SAMPLE = 256  # images from which the variance of a difference in cLL is estimated


@dataclass(frozen=True)
class ExitPoint:
    """A mean number of views, and the scores with it."""

    views: float
    cll: float
    accuracy: float


@dataclass(frozen=True)
class Difference:
    """Early exit minus a number of views that is the same for every image.

    For a number between two whole ones, an image's score is the weighted mean of its scores with
    both, as if each image got one of them at random.
    """

    views: float
    cll: Interval
    accuracy: Interval


@dataclass(frozen=True)
class ExitReport:
    """An early exit compared with fixed budgets, on `images` images that it was not learned on.

    cLL is the log-likelihood at the rule's own temperatures, for the fixed budgets as well.
    `views` has the interval of the mean number of views. `over_same` compares with the fixed budget
    that costs exactly the same, `over_next` with the next whole number of views, `over_full` with
    all views. `curve` holds rules for other mean numbers of views, `fixed` every number of views;
    `exits` counts images by their views.
    """

    rule: EarlyExit
    images: int
    own: ExitPoint
    views: Interval
    over_same: Difference
    over_next: Difference
    over_full: Difference
    curve: tuple[ExitPoint, ...]
    fixed: tuple[ExitPoint, ...]
    exits: tuple[int, ...]
    doubt: str = ""

    @property
    def saving(self) -> float:
        """The policy's number of views divided by the mean number used."""
        return self.rule.views / self.own.views

    @property
    def sentence(self) -> str:
        """The result in a sentence."""
        same, full = self.over_same, self.over_full.accuracy
        versus = "better than" if same.cll.low > 0 else "no better than"
        text = (
            f"{self.own.views:.2f} [{self.views.low:.2f}, {self.views.high:.2f}] views per image "
            f"instead of {self.rule.views} "
            f"({self.saving:.1f} × fewer): accuracy {100 * full.estimate:+.2f} points "
            f"[{100 * full.low:+.2f}, {100 * full.high:+.2f}] against all views, "
            f"and {versus} a fixed {same.views:.2f} views per image (cLL {same.cll})"
        ).replace("-", "−")
        return f"{text}. {self.doubt}" if self.doubt else text

    @property
    def note(self) -> str | None:
        """How uncertain the mean number of views is, if it is the target and that is much."""
        error = (self.views.high - self.views.low) / 2 / self.own.views
        if not self.rule.target.startswith("views") or error <= _VIEWS_ERROR:
            return None
        needed = math.ceil(self.images * (error / _VIEWS_ERROR) ** 2)
        return (
            f"{self.images:,} images tell the mean number of views only within "
            f"{100 * error:.0f} %; about {needed:,} to report on would tell it within "
            f"{100 * _VIEWS_ERROR:.0f} % (--data)"
        )

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
    groups: ArrayLike | None = None,
    identities: Identities | None = None,
) -> ExitReport:
    """Score a rule on predictions `[view, n, class]` of the policy's distinct views.

    The curve's rules are learned from the predictions and labels `learned_on`, as this one was.
    Intervals are over images (whole `groups`). Images that the rule or the policy was found on,
    by their `identities` in a data set, are refused.
    """
    rule.check_policy(policy)
    known = np.zeros(len(labels), np.uint64) if identities is None else identities
    check_unseen(known, rule.seen)
    if labels.shape != log_probs.shape[1:2] or len(labels) < 2:
        raise RelookError(
            f"expected labels of {log_probs.shape[1]} images, at least 2, got {list(labels.shape)}"
        )
    counts = exit_counts(policy)
    exits, learned = (
        ScoredExits.of(policy.tempered(given), truth, counts, rule.temperatures)
        for given, truth in ((log_probs, labels), learned_on)
    )
    views = first_exits(exits.confidence, rule.thresholds)
    some = np.unique(np.linspace(0, len(labels) - 1, _SAMPLE).round().astype(np.int64))
    sample = calibrated_exits(policy.tempered(log_probs[:, some]), counts, rule.temperatures)

    def over(number: float) -> Difference:
        cll, accuracy = (
            take_exits(scores, views) - _score_at(scores, number)
            for scores in (exits.likelihood, exits.correct)
        )
        likely = likely_variance(take_exits(sample, views[some]), _score_at(sample, number))
        return Difference(
            number,
            paired_interval(cll, groups=groups, likely=likely),
            share_interval(accuracy, groups=groups),
        )

    rules = (rule_within(budget, learned) for budget in BUDGETS if budget < rule.views)
    return ExitReport(
        rule=rule,
        images=len(labels),
        own=_point(exits, views),
        views=_mean_views(views, first_exits(learned.confidence, rule.thresholds), groups),
        over_same=over(float(views.mean())),
        over_next=over(math.ceil(views.mean())),
        over_full=over(rule.views),
        # From some budget on, all have the same rule.
        curve=tuple(
            _point(exits, first_exits(exits.confidence, one)) for one in dict.fromkeys(rules)
        ),
        fixed=tuple(_point(exits, np.full(len(labels), k)) for k in range(1, rule.views + 1)),
        exits=tuple(int(count) for count in np.bincount(views, minlength=rule.views + 1)[1:]),
        doubt=doubt_of(known, rule.seen),
    )


def _mean_views(views: Indices, learned: Indices, groups: ArrayLike | None) -> Interval:
    """Return the mean number of views; a few images may vary less than those `learned` on."""
    found = paired_interval(views, groups=groups, likely=float(learned.var()))
    return replace(found, low=max(1.0, found.low))


def _point(exits: ScoredExits, views: Indices) -> ExitPoint:
    """Return the scores of images with their own numbers of views `[n]`."""
    cll, correct = take_exits(exits.likelihood, views), take_exits(exits.correct, views)
    return ExitPoint(float(views.mean()), float(cll.mean()), float(correct.mean()))


def _score_at(scores: FloatArray, views: float) -> FloatArray:
    """Return images' scores `[n, …]` with a number of views, from `[exit, n, …]`."""
    low, high = math.floor(views), math.ceil(views)
    share = views - low
    return np.asarray((1 - share) * scores[low - 1] + share * scores[high - 1])
