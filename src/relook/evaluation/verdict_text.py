"""The sentences of a verdict: what to deploy, what it gains and what it costs, a fact in each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor, log10

from relook.evaluation.baselines import POLICY_LABEL, POLICY_METHOD, has_own_budget
from relook.evaluation.comparison import (
    AVERAGING,
    HELPS,
    HURTS,
    NO_DIFFERENCE,
    RELEVANT_GAIN,
    TOO_FEW,
    Row,
    Verdict,
)
from relook.evaluation.where import Where
from relook.foundation.wording import count, interval, plain, signed, views_text
from relook.numerics.intervals import Interval, corrected

_MOST_CLASSES = 3
_BASED_ON_CLL = ", but the recommendation is based on cLL"
_NAMES = {
    "plain": "the plain image",
    "flip": "the image and its mirror image",
    "random": "the random policy",
}


@dataclass(frozen=True)
class CheaperRow:
    """A row that is cheap and nearly as good, but not recommended.

    `gain` is that over the plain image, `is_proven` says whether it counts as one, and `shortfall`
    is by how much the cLL may be below that of the `best` row.
    """

    row: Row
    gain: Interval
    is_proven: bool
    best: Row
    shortfall: float


@dataclass(frozen=True)
class Facts:
    """What a verdict states.

    `policy_outcome` is that of the policy against the plain image. `rival` is the best baseline,
    None if that is the plain image; `tried` rows were candidates besides policy and plain image.
    `cross_fit`: the images are not held out; `left_out` counts those that the search left out.
    `higher_rival`: the rival's cLL is above that of the recommended row, but shows no gain.
    """

    outcome: str
    policy_outcome: str
    plain: Row
    policy: Row
    recommended: Row
    rival: Row | None
    has_baselines: bool
    tried: int
    margin: float
    images: int
    cll_name: str
    cross_fit: bool
    left_out: int
    same_as_plain: bool
    from_views: float | None
    from_average: float | None
    cheaper: CheaperRow | None
    higher_rival: bool

    @property
    def likely_worse(self) -> bool:
        """Whether a loss is not proven, but nine times as likely as a gain."""
        cll = self.over_plain("cll")
        loses = cll.estimate < -self.margin and 3 * cll.high < cll.estimate - cll.low
        return self.policy_outcome == NO_DIFFERENCE and loses

    def over_plain(self, metric: str) -> Interval:
        """Return the policy's difference to the plain image."""
        return (self.policy.over_plain or {})[metric]


def verdict_text(facts: Facts) -> str:
    """Return the verdict in words, the advice first."""
    sentences = [_advice(facts)]
    if facts.recommended is not facts.policy and facts.recommended is not facts.plain:
        sentences += _of_recommended(facts)
    sentences += _of_policy(facts)
    if facts.cheaper is not None:
        sentences.append(_of_cheaper(facts.cheaper, facts.tried))
    if facts.higher_rival and facts.rival is not None:
        sentences.append(
            f"the cLL of {_name(facts.rival)} is higher, but that is no proof of a gain over the "
            f"plain image: {_best_of(facts.tried)} can be that high by chance."
        )
    if facts.policy_outcome == HELPS:
        sentences += _of_average(facts)
    return " ".join(f"{one[0].upper()}{one[1:]}" for one in sentences)


def add_losses(verdict: Verdict, where: Where) -> Verdict:
    """Name the classes on which the recommended row loses beyond their corrected intervals."""
    losing = [] if verdict.recommended_method == "plain" else where.losing
    if not losing:
        return verdict
    named = ", ".join(
        f"{one.name} (cLL {_changes(one.cll, one.accuracy)})"
        for one in losing[:_MOST_CLASSES]
        if one.cll and one.accuracy
    )
    worst = ", most of all" if len(losing) > _MOST_CLASSES else ":"
    losses = f"It loses on {count(len(losing), 'class', 'classes')}{worst} {named}."
    return replace(verdict, sentence=f"{verdict.sentence} {losses}")


def add_doubt(verdict: Verdict, doubt: str) -> Verdict:
    """Add that some of the images may not be held out, and no longer call them so."""
    if not doubt:
        return verdict
    return replace(verdict, sentence=f"{verdict.sentence.replace('held-out ', '')} {doubt}")


def add_mistake(verdict: Verdict, mistake: str | None) -> Verdict:
    """Add a probable mistake in the set-up, right after the advice."""
    if not mistake:
        return verdict
    advice, stop, reasons = verdict.sentence.partition(". ")
    advice = f"{advice.rstrip('.')}. First check the set-up: {mistake}."
    return replace(verdict, sentence=f"{advice}{stop and ' '}{reasons}")


def _advice(facts: Facts) -> str:
    outcome, best = facts.outcome, facts.recommended
    if outcome == AVERAGING and best.method != POLICY_METHOD:
        outcome += "; the learned views show no further gain"
    if outcome == HELPS and not facts.has_baselines:
        outcome += ", compared only with the plain image"
    if facts.likely_worse and facts.outcome == NO_DIFFERENCE:
        outcome += ", though more likely worse than better"
    shorter = best is not facts.policy and best.method == POLICY_METHOD
    as_good = shorter and facts.policy_outcome == HELPS
    whole = f", as good as {facts.policy.views}" if as_good else ""
    return f"{outcome}: use {_name(best)}{whole}."


def _of_recommended(facts: Facts) -> list[str]:
    """Return the gain and the price of a recommended row other than the whole policy."""
    best = facts.recommended
    over = best.with_learned_average.over_plain or {}
    cll, accuracy = (corrected(over[name], facts.tried) for name in ("cll", "accuracy"))
    change = f"{_changes(cll, accuracy)}{_contrast(accuracy, gains=True)}"
    return [f"compared with the plain image: cLL {change}.", f"it {_price(best)}"]


def _of_policy(facts: Facts) -> list[str]:
    policy, gains = facts.policy, facts.policy_outcome == HELPS
    if facts.same_as_plain:
        return ["the policy's predictions are the same as the plain image's."]
    cll, accuracy = facts.over_plain("cll"), facts.over_plain("accuracy")
    compared = "compared with the plain image"
    if gains and facts.has_baselines and facts.rival is None:
        compared += ", which is also the best baseline"
    if facts.recommended is not policy:
        compared = f"{_name(policy)}, {compared}"
    contrast = "" if facts.policy_outcome == HURTS else _contrast(accuracy, gains)
    found = [f"{compared}: {facts.cll_name} {_changes(cll, accuracy)}{contrast}."]
    if facts.policy_outcome in (NO_DIFFERENCE, TOO_FEW):
        found.append(_why_unclear(facts))
    if gains and facts.rival is not None:
        found.append(_against_rival(facts, facts.rival))
    return [*found, f"the policy {_price(policy)}"]


def _why_unclear(facts: Facts) -> str:
    cll = facts.over_plain("cll")
    if cll.low > 0 or cll.high < 0:
        return f"that is within the margin of indifference ({facts.margin:g})."
    if facts.likely_worse:
        return "the interval includes zero, but nearly all of it is a loss."
    relevant = max(RELEVANT_GAIN, facts.margin)
    if facts.policy_outcome == NO_DIFFERENCE:
        return f"the interval includes zero and excludes gains above {relevant:g}."
    # Twice the images whose interval would just leave zero out: then four in five tries show it.
    gain = max(cll.estimate, relevant)
    needed = 2 * facts.images * max(1.0, (cll.estimate - cll.low) / gain) ** 2
    needed = round(needed, -floor(log10(needed)))
    kind = "images" if facts.cross_fit else "held-out images"
    return (
        f"about {needed:,.0f} {kind} like these {facts.images:,} would be needed to show a gain of "
        f"{gain:.2g} in cLL: {_where_to_find_more(facts)}."
    )


def _where_to_find_more(facts: Facts) -> str:
    if facts.left_out:
        return (
            f"the search left {count(facts.left_out, 'image')} out, which  relook compare RUN "
            "--data DATA,  or found.compare(images, labels), uses too"
        )
    if facts.cross_fit:
        return "give more"
    return "give more, or search with cross_fit=True (--cross-fit), which compares on all images"


def _against_rival(facts: Facts, rival: Row) -> str:
    over = facts.policy.over_rival or {}
    cll, accuracy, ending = over["cll"], over["accuracy"], []
    if corrected(cll, facts.tried).high < 0:  # being behind the best of many may be luck
        ending = ["the policy falls behind"]
    elif cll.low <= 0:
        ending = ["no gain is shown"]
    if accuracy.high < 0:
        ending.append("its accuracy is lower")
    learned = rival.fitted is not None and rival.fitted.view_temperature != 1
    average = ", also with a learned average" if learned else ""
    found = f"{_changes(cll, accuracy)}{'; ' if ending else ''}{', and '.join(ending)}"
    return f"compared with the best baseline, {_name(rival)}{average}: cLL {found}."


def _of_cheaper(cheaper: CheaperRow, tried: int) -> str:
    row, gain = cheaper.row, cheaper.gain
    why = f"it may be {plain(cheaper.shortfall, 4)} worse than {_name(cheaper.best)}"
    if not cheaper.is_proven:
        widened = f", wider as it is one of {tried} choices," if tried > 1 else ""
        why = f"its interval{widened} includes zero"
    return (
        f"cheaper and nearly as good: {_name(row)}, cLL {signed(gain.estimate, 4)} "
        f"{interval(gain, 4)}, {_times(row.slowdown)} the time; not recommended because {why}."
    )


def _best_of(tried: int) -> str:
    return "it" if tried == 1 else f"the best of {tried} choices"


def _of_average(facts: Facts) -> list[str]:
    """Return how much of the policy's gain comes from its views, if that is known."""
    if facts.from_views is None or facts.from_average is None:
        return []
    if facts.from_average == 0:
        return ["all of the policy's gain over the plain image comes from its views."]
    return [
        f"of the policy's gain over the plain image, {plain(facts.from_views, 4)} comes from the "
        f"views and {plain(facts.from_average, 4)} from their learned average."
    ]


def _contrast(accuracy: Interval, gains: bool) -> str:
    """Mention a proven change in accuracy that goes against cLL, which `gains` or does not."""
    if accuracy.high < 0:
        return f"; accuracy falls{_BASED_ON_CLL if gains else ''}"
    improves = accuracy.low > 0 and not gains
    return f"; accuracy improves{_BASED_ON_CLL}" if improves else ""


def _name(row: Row) -> str:
    name = "the learned policy" if row.label == POLICY_LABEL else _NAMES.get(row.method, row.label)
    return name if has_own_budget(row.method) else f"{name} with {views_text(row.views)}"


def _price(row: Row) -> str:
    return f"takes about {_times(row.slowdown)} the time of one view."


def _times(slowdown: float) -> str:
    return f"{slowdown:.2g} ×" if slowdown < 99.5 else f"{slowdown:,.0f} ×"


def _changes(cll: Interval, accuracy: Interval) -> str:
    """Write two changes: +0.0312 [+0.0251, +0.0377], accuracy +0.7 points [−0.1, +1.5]."""
    return (
        f"{signed(cll.estimate, 4)} {interval(cll, 4)}, "
        f"accuracy {signed(100 * accuracy.estimate, 1)} points {interval(accuracy, 1, 100)}"
    )
