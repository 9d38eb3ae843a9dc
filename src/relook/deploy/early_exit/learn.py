"""Learning an early exit from predictions of images that the selection did not use.

A price for each further view, in nats, makes one rule: backwards from the last view, an image
goes on where going on is worth more than it costs, judged by isotonic regression of that worth
on the confidence. Prices make a family of rules; the target picks one of it.
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
from relook.numerics.intervals import (
    group_numbers,
    images_needed,
    independent_images,
    loss_bound,
    mean_and_error,
)
from relook.numerics.splits import stratified_split
from relook.policy import Policy

TargetKind = Literal["accuracy-loss", "views"]
Thresholds = tuple[float, ...]

PRICES: tuple[float, ...] = tuple(float(price) for price in np.geomspace(1e-5, 1.0, 76))
"""What a view may cost, in nats of log-likelihood; rising, so views fall."""

_VIEWS_ERROR = 0.1  # of a budget: how far off the mean number of views may be
_Z95 = 1.96
_BISECTIONS = 40
_BLENDS = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class ExitTarget:
    """What an early exit is learned for: at most this loss of accuracy, or this mean of views."""

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
    """Raise where no rule for this number of distinct views can be learned on `images` images."""
    if views < 2:
        raise RelookError("expected a policy of at least 2 distinct views for early exit, got 1")
    if target.kind == "views" and target.value > views:
        raise RelookError(f"{target}: expected at most the policy's {views} distinct views")
    needed = 2 * images_needed(target.value) if target.kind == "accuracy-loss" else 2
    known = int(independent_images(np.ones(images), groups))
    if known < needed:
        raise RelookError(
            f"{target}: {known:,} {_units(groups)} to learn on are too few to support it: at least "
            f"{needed:,} are needed, half of them to make the rule and half to check it"
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

    Images that the policy was found on are refused, by their `identities` (those of a data set),
    and the rule remembers all. For a loss of accuracy, half of them (whole `groups`) make rules and
    the other half must support the one that is chosen: rules are tried from the most careful on,
    each by a one-sided 95 % bound, for which the images of a group are one, until one fails. Too
    few images to support the target are an error that says how many it takes.
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
    make = prove = np.arange(len(labels))
    if wanted.kind == "accuracy-loss":
        make, prove = stratified_split(labels, 0.5, seed, groups)
    own = None if groups is None else np.asarray(groups)[make]
    kappa = policy.view_temperature
    temperatures = fit_temperatures(log_probs[:, make], labels[make], counts, own, kappa)
    exits = ScoredExits.of(log_probs, labels, counts, temperatures)
    if wanted.kind == "views":
        thresholds = rule_within(wanted.value, exits)
    else:
        proof = None if groups is None else np.asarray(groups)[prove]
        thresholds = _cheapest_supported(
            _family(exits.part(make)), exits.part(prove), wanted, proof
        )
    views = first_exits(exits.confidence, thresholds)
    if wanted.kind == "views":
        _check_budget(views, wanted, groups)
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
    """Raise where images are among those that a policy or a rule was found on."""
    again = int(is_in(identities, seen).sum())
    if again:
        raise RelookError(
            f"expected images that neither the policy nor its early exit was found on, but "
            f"{again:,} of {len(identities):,} are among those: leave them out"
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
    """Return the thresholds of the rule for a price of a view, in nats, backwards."""
    worth = fitted.likelihood[-1]
    thresholds = []
    for row in range(len(fitted.confidence) - 2, -1, -1):
        going_on, stopping = worth - price, fitted.likelihood[row]
        threshold = _threshold(fitted.confidence[row], going_on - stopping)
        worth = np.where(fitted.confidence[row] > threshold, stopping, going_on)
        thresholds.append(threshold)
    return tuple(reversed(thresholds))


def _threshold(confidence: FloatArray, gain: FloatArray) -> float:
    """Return the confidence up to which going on pays: the best cut of the sorted images."""
    order = np.argsort(confidence, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(gain[order])])
    # A cut between equal confidences cannot be made by a threshold.
    cut = np.concatenate([[True], np.diff(confidence[order]) > 0, [True]])
    best = int(np.argmax(np.where(cut, sums, -np.inf)))
    if best in (0, len(order)):
        return float(best > 0)
    return float(min(1.0, (confidence[order[best - 1]] + confidence[order[best]]) / 2))


def rule_within(budget: float, fitted: ScoredExits) -> Thresholds:
    """Return the rule whose mean number of views is the budget or just below it, if that pays."""

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


def _check_budget(views: Indices, target: ExitTarget, groups: ArrayLike | None) -> None:
    even = np.ones(len(views))
    known = independent_images(even, groups)
    numbers = None if groups is None else group_numbers(groups, len(views))
    _, error = mean_and_error(views.astype(np.float64), even, numbers)
    spread = error * math.sqrt(known / (known - 1)) if known > 1 else math.inf
    needed = known * (_Z95 * spread / (_VIEWS_ERROR * target.value)) ** 2
    if not needed <= known:
        many = f"about {math.ceil(needed):,}" if math.isfinite(needed) else "more"
        raise RelookError(
            f"{target}: {int(known):,} {_units(groups)} are too few to know the mean number of "
            f"views within {_VIEWS_ERROR:.0%}: {many} are needed".replace("0%", "0 %")
        )


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
    """Go through rules from the most careful on, and return the last one before the first failure.

    In a fixed order and up to the first failure, each rule may be tested at the full level. The
    images of a group may all be lost together: as many count as there are groups.
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
    """Say how many images would do if the rates stayed as they are."""
    if (lost - gained) / images >= loss:
        return "allow a larger loss"
    factor = 1
    while loss_bound(lost * factor, gained * factor, images * factor) > loss:
        factor += 1
    return f"about {2 * images * factor:,.0f} are needed, or allow a larger loss"
