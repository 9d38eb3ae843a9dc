"""Learning an early exit from predictions of images that the selection did not use.

A price per view, in nats, defines a rule: backwards from the last view, an image gets the next view
if the gain exceeds the price, decided by a threshold on the confidence. Prices define a family of
rules, from which the target selects one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from relook.deploy.early_exit.rule import (
    EarlyExit,
    ScoredExits,
    exit_counts,
    exit_log_probs,
    first_exits,
    policy_fingerprint,
    take_exits,
)
from relook.errors import RelookError
from relook.io.identities import UNKNOWN, Identities, is_in, set_of, union
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.calibration import fit_temperature
from relook.numerics.intervals import images_needed, independent_images, loss_bound
from relook.numerics.splits import stratified_split
from relook.policy import Policy

TargetKind = Literal["accuracy-loss", "views"]
Thresholds = tuple[float, ...]

PRICES: tuple[float, ...] = tuple(float(price) for price in np.geomspace(1e-5, 1.0, 76))
"""Prices of a view, in nats of log-likelihood; rising, so that views fall."""

_BISECTIONS = 40
_BLENDS = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class ExitTarget:
    """The target of an early exit: a largest loss of accuracy, or a mean number of views."""

    kind: TargetKind
    value: float

    def __str__(self) -> str:
        return f"{self.kind}={self.value:g}"


def parse_target(text: str) -> ExitTarget:
    """Read `accuracy-loss=0.005` or `views=5`."""
    kind, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if kind == "accuracy-loss" and 0 < value < 1:
        return ExitTarget("accuracy-loss", value)
    if kind == "views" and 1 <= value < math.inf:
        return ExitTarget("views", value)
    raise RelookError(
        "target: expected accuracy-loss=SHARE (between 0 and 1, as 0.005) or views=MEAN (at least "
        f"1, as 5), got {text!r}"
    )


def check_target(
    target: ExitTarget, images: int, views: int, groups: ArrayLike | None = None
) -> None:
    """Raise if no rule for this number of distinct views can be learned on `images` images."""
    if views < 2:
        raise RelookError("expected a policy of at least 2 distinct views for early exit, got 1")
    if target.kind == "views" and target.value > views:
        raise RelookError(f"{target}: expected at most the policy's {views} distinct views")
    needed = 2 * images_needed(target.value) if target.kind == "accuracy-loss" else 2
    known = int(independent_images(np.ones(images), groups))
    if known < needed:
        raise RelookError(
            f"{target}: {known:,} {_units(groups)} to learn on are too few to support it: at least "
            f"{needed:,} are needed, half of them to learn the rule and half to check it: give "
            "more (--data), or allow a larger loss"
        )


def _units(groups: ArrayLike | None) -> str:
    return "images" if groups is None else "groups of images"


def learn_early_exit(
    log_probs: LogProbs,
    labels: Labels,
    policy: Policy,
    target: ExitTarget | str,
    *,
    seed: int = 0,
    groups: ArrayLike | None = None,
    identities: Identities | None = None,
) -> EarlyExit:
    """Learn thresholds and temperatures from the distinct views' predictions `[view, n, class]`.

    Images that the policy was found on, by their `identities` in a data set, are refused, and the
    rule records all. For a loss of accuracy, rules are learned on half of the images (whole
    `groups`) and tested on the other half, from the most careful one on, each by a one-sided 95 %
    bound that counts a group as one image, until one fails. If there are too few images to support
    the target, the error states how many are needed.
    """
    wanted = parse_target(target) if isinstance(target, str) else target
    counts = exit_counts(policy)
    check_target(wanted, len(labels), len(counts), groups)
    if identities is not None:
        check_unseen(identities, policy.seen)
    if labels.shape != log_probs.shape[1:2]:
        raise RelookError(
            f"expected a label for each of {log_probs.shape[1]} images, got {list(labels.shape)}"
        )
    log_probs = policy.tempered(log_probs)
    train = test = np.arange(len(labels))
    if wanted.kind == "accuracy-loss":
        train, test = stratified_split(labels, 0.5, seed, groups)
    own = None if groups is None else np.asarray(groups)[train]
    kappa = policy.view_temperature
    temperatures = fit_temperatures(log_probs[:, train], labels[train], counts, own, kappa)
    exits = ScoredExits.of(log_probs, labels, counts, temperatures)
    if wanted.kind == "views":
        thresholds = rule_within(wanted.value, exits)
    else:
        test_groups = None if groups is None else np.asarray(groups)[test]
        thresholds = _cheapest_supported(
            _family(exits.part(train)), exits.part(test), wanted, test_groups
        )
    views = first_exits(exits.confidence, thresholds)
    return EarlyExit(
        thresholds,
        temperatures,
        target=str(wanted),
        policy=policy_fingerprint(policy),
        images=len(labels),
        mean_views=float(views.mean()),
        seen=union(policy.seen, UNKNOWN if identities is None else set_of(identities)),
    )


def check_unseen(identities: Identities, seen: bytes) -> None:
    """Raise if images are among those that a policy or a rule was found on."""
    again = int(is_in(identities, seen).sum())
    if again:
        raise RelookError(
            f"expected images that neither the policy nor its early exit was found on, but "
            f"{again:,} of {len(identities):,} are among those: leave them out, or give others "
            "(--data)"
        )


def fit_temperatures(
    log_probs: LogProbs,
    labels: Labels,
    counts: Indices,
    groups: ArrayLike | None = None,
    view_temperature: float = 1.0,
) -> tuple[float, ...]:
    """Return the temperature of each exit's averaged prediction, over all images."""
    return tuple(
        fit_temperature(mean, labels, groups=groups, view_temperature=view_temperature)
        for mean in exit_log_probs(log_probs, counts)
    )


def thresholds_at(price: float, fitted: ScoredExits) -> Thresholds:
    """Return the thresholds of the rule for a price per view, in nats."""
    value = fitted.likelihood[-1]  # of an image that gets the next view
    thresholds = []
    for row in range(len(fitted.confidence) - 2, -1, -1):
        going_on, stopping = value - price, fitted.likelihood[row]
        threshold = _threshold(fitted.confidence[row], going_on - stopping)
        value = np.where(fitted.confidence[row] > threshold, stopping, going_on)
        thresholds.append(threshold)
    return tuple(reversed(thresholds))


def _threshold(confidence: FloatArray, gain: FloatArray) -> float:
    """Return the confidence up to which the next view pays: the best cut of the sorted images."""
    order = np.argsort(confidence, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(gain[order])])
    # No threshold separates equal confidences.
    cut = np.concatenate([[True], np.diff(confidence[order]) > 0, [True]])
    best = int(np.argmax(np.where(cut, sums, -np.inf)))
    if best in (0, len(order)):
        return float(best > 0)
    return float(min(1.0, (confidence[order[best - 1]] + confidence[order[best]]) / 2))


def rule_within(budget: float, fitted: ScoredExits) -> Thresholds:
    """Return the rule that spends a budget of mean views, or less if more views do not pay."""

    def within(rule: Thresholds) -> bool:
        return bool(first_exits(fitted.confidence, rule).mean() <= budget)

    above = thresholds_at(PRICES[0], fitted)
    if within(above):
        return above
    below = (0.0,) * len(above)
    for price in PRICES[1:]:
        rule = thresholds_at(price, fitted)
        if within(rule):
            below = rule
            break
        above = rule
    low, high = 0.0, 1.0  # the share of the rule below
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if within(_blend(above, below, middle)) else (middle, high)
    return _blend(above, below, high)


def _blend(one: Thresholds, other: Thresholds, share: float) -> Thresholds:
    return tuple((1 - share) * a + share * b for a, b in zip(one, other, strict=True))


def _family(fitted: ScoredExits) -> Iterator[Thresholds]:
    """Yield rules from the most careful to the boldest, with blends between neighbours."""
    last = (1.0,) * (len(fitted.confidence) - 1)
    for price in PRICES:
        rule = thresholds_at(price, fitted)
        yield from (_blend(last, rule, share) for share in _BLENDS)
        last = rule


def _cheapest_supported(
    family: Iterable[Thresholds],
    exits: ScoredExits,
    target: ExitTarget,
    groups: ArrayLike | None = None,
) -> Thresholds:
    """Test rules from the most careful on, and return the last one before the first failure.

    In a fixed order and up to the first failure, each rule may be tested at the full level. The
    images of a group may all be lost together, so that a group counts as one image.
    """
    full = exits.correct[-1] > 0
    images = independent_images(np.ones(len(full)), groups)
    share = images / len(full)
    chosen = None
    lost = gained = 0.0
    for rule in family:
        views = first_exits(exits.confidence, rule)
        own = take_exits(exits.correct, views) > 0
        lost, gained = share * (full & ~own).sum(), share * (own & ~full).sum()
        if loss_bound(lost, gained, images) > target.value:
            break
        if views.min() < len(exits.correct):
            chosen = rule
    if chosen is None:
        raise RelookError(
            f"{target}: {2 * images:,.0f} {_units(groups)} support no rule that saves views: the "
            f"most careful loses {lost:.3g} and gains {gained:.3g} of {images:,.0f}; "
            + _more_images(lost, gained, images, target.value)
        )
    return chosen


def _more_images(lost: float, gained: float, images: float, loss: float) -> str:
    """Say how many images would be enough at the same rates."""
    if (lost - gained) / images >= loss:
        return "allow a larger loss"
    factor = 1
    while loss_bound(lost * factor, gained * factor, images * factor) > loss:
        factor += 1
    return (
        f"about {2 * images * factor:,.0f} are needed: give more (--data), or allow a larger loss"
    )
