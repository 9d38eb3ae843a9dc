"""The plain answer to "is it better, and what should I deploy?", and the choice for a budget.

What is claimed, and how it stays honest: the claim is about one row alone, the policy at the
largest budget asked for, which was found on other images; no best row is sought for it. "Helps"
means that it beats the plain image and the best baseline of the same budget, whose average was
learned as well. The recommendation does look at many rows, so each of the others must beat the
plain image at a level that is divided by their number (Bonferroni), and so are its intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, log10
from statistics import NormalDist

from relook.errors import RelookError
from relook.evaluation.baselines import POLICY_LABEL, POLICY_METHOD, has_own_budget, is_asked
from relook.evaluation.comparison import USUAL, Comparison, Row, Verdict
from relook.evaluation.where import Where
from relook.foundation.wording import interval, signed, views_text
from relook.foundation.wording import plain as number
from relook.numerics.intervals import Interval

MARGIN = 0.001
"""A difference in cLL that nobody should care about, unless another is given."""

WORTH = 0.01
"""A gain in cLL worth looking for: images that may hide it are too few."""

HELPS, AVERAGING, NO_DIFFERENCE, HURTS = "helps", "averaging helps", "no difference", "hurts"
TOO_FEW = "too few images to tell"

_MOST_NAMED = 3
_NEARLY = 0.75  # a choice of half the views, or fewer, with this share of the gain is worth a word
_NAMES = {
    "plain": "the plain image",
    "flip": "the image and its mirror image",
    "random": "the random policy",
}

Difference = Callable[[tuple[str, int], tuple[str, int]], Mapping[str, Interval]]
"""The differences in `cll` and `accuracy`, with learned averages, of two methods with budgets."""


@dataclass(frozen=True)
class Judged:
    """What a verdict is made of: `best` is what to deploy, one of `tried` rows and the plain image.

    `alone` is the policy's outcome against the plain image, `same` whether it predicts just that.
    `rival` is the best baseline, unless that is the plain image; `rivals` says whether it has any.
    `passed_over` says why nothing cheaper, or no higher cLL, was chosen.
    """

    policy: Row
    best: Row
    rival: Row | None
    rivals: bool
    alone: str
    same: bool
    tried: int
    margin: float
    images: int
    kind: str
    passed_over: tuple[str, ...] = ()

    @property
    def likely_worse(self) -> bool:
        """Whether a loss is not shown, but nine times as likely as a gain."""
        cll = (self.policy.over_plain or {})["cll"]
        loses = cll.estimate < -self.margin and 3 * cll.high < cll.estimate - cll.low
        return self.alone == NO_DIFFERENCE and loses

    @property
    def outcome(self) -> str:
        """The answer: the policy's own, unless it is averaging that helps and not its views."""
        if self.alone == HELPS:  # the best baseline had the same chance
            better = self.rival is None or (self.policy.over_rival or {})["cll"].low > 0
            return HELPS if better else AVERAGING
        return self.alone if self.best.method == "plain" else AVERAGING


def outcome_of(difference: Interval, margin: float = MARGIN) -> str:
    """Return the outcome for a difference in cLL to the plain image.

    Images are too few where the interval has 0 and a gain worth looking for in it.
    """
    if difference.low > 0 and difference.estimate > margin:
        return HELPS
    if difference.high < 0 and difference.estimate < -margin:
        return HURTS
    unsure = difference.low <= 0 and difference.high > max(WORTH, margin)
    return TOO_FEW if unsure else NO_DIFFERENCE


def corrected(found: Interval, number: int) -> Interval:
    """Widen an interval so that it holds for the best of `number` (Bonferroni, normal tails)."""
    level = (1 - found.confidence) / max(1, number)
    normal = NormalDist()
    wider = normal.inv_cdf(1 - level / 2) / normal.inv_cdf((1 + found.confidence) / 2)
    return Interval(
        found.estimate,
        found.estimate - wider * (found.estimate - found.low),
        found.estimate + wider * (found.high - found.estimate),
        1 - level,
    )


def judge(
    rows: Sequence[Row],
    difference: Difference,
    *,
    budgets: Sequence[int],
    images: int,
    margin: float = MARGIN,
    same: bool = False,
    kind: str = "held-out cLL",
) -> Verdict:
    """Say what to deploy, and in a few words why.

    Recommended is, among the budgets asked for, the row with the fewest views that is not worse
    than the best: the lower bound of the difference to it is at least −margin. Only rows that show
    a gain over the plain image count, so without such a row it is the plain image; where the policy
    beats every baseline, only its own rows do. Never is it a row that another of no more views
    surely beats in accuracy, with a cLL as high. Time decides nothing. `same` says that the whole
    policy predicts what the plain image does, `kind` what the cLL of these `images` is called.
    """
    if not 0 <= margin < float("inf"):
        raise RelookError(f"expected a margin of indifference ≥ 0, got {margin}")
    policy = _policy_row(rows, max(budgets))
    plain = next((row for row in rows if row.method == "plain"), None)
    if policy is None or plain is None or policy.over_plain is None:
        methods = ", ".join(sorted({row.method for row in rows}))
        raise RelookError(
            f"the verdict needs the policy and the plain image among the rows, got {methods}"
        )
    asked = [row for row in rows if is_asked(row.method, row.budget, budgets)]
    found = Judged(
        policy=policy,
        best=plain,
        rival=_rival(rows, policy),
        rivals=any(row.method not in ("plain", POLICY_METHOD) for row in rows),
        alone=outcome_of(policy.over_plain["cll"], margin),
        same=same,
        tried=sum(row is not plain and row is not policy for row in asked),
        margin=margin,
        images=images,
        kind=kind,
    )
    if found.outcome == HELPS:
        own = (row for row in asked if row.method == POLICY_METHOD)
        asked = [row for row in own if row is policy or not _better(row, asked, difference)]
    best, passed_over = _recommended(asked, found, difference)
    found = replace(found, best=best, passed_over=passed_over)
    views, average = _shares(plain, policy)
    sentence = _sentence(found, plain)
    return Verdict(found.outcome, sentence, best.method, best.views, views, average)


def naming_losses(verdict: Verdict, where: Where) -> Verdict:
    """Name the classes on which what is deployed loses beyond their corrected intervals."""
    losing = [] if verdict.recommended_method == "plain" else where.losing
    if not losing:
        return verdict
    named = "; ".join(
        f"{one.name}, cLL {_change(one.cll, one.accuracy)}"
        for one in losing[:_MOST_NAMED]
        if one.cll and one.accuracy
    )
    which = "the class" if len(losing) == 1 else f"{len(losing)} classes, the most on"
    return replace(verdict, sentence=f"{verdict.sentence} It loses on {which} {named}.")


def doubted(verdict: Verdict, doubt: str) -> Verdict:
    """Return a verdict that does not call images held out of which nobody knows that."""
    if not doubt:
        return verdict
    return replace(verdict, sentence=f"{verdict.sentence.replace('held-out ', '')} {doubt}")


def to_be_checked(verdict: Verdict, mistake: str | None) -> Verdict:
    """Say of what is probably a mistake in the set-up, right after the advice."""
    if not mistake:
        return verdict
    advice, stop, why = verdict.sentence.partition(". ")
    checked = f"{advice.rstrip('.')}. First check the set-up: {mistake}."
    return replace(verdict, sentence=f"{checked}{stop and ' '}{why}")


def pick(
    comparison: Comparison, budget_views: int | None = None, max_slowdown: float | None = None
) -> Row:
    """Return the best row that costs at most this number of views and this slowdown.

    Only rows count that show a gain over the plain image, by the margin and by an interval that is
    corrected for the number of rows; without one it is the plain image. Of those within the margin
    of the highest cLL it is the one with the fewest views.
    """
    margin = float(comparison.settings.get("margin", MARGIN))
    affordable = [
        row
        for row in comparison.rows
        if (budget_views is None or row.views <= budget_views)
        and (max_slowdown is None or row.slowdown <= max_slowdown)
    ]
    if not affordable:
        cheapest = min(comparison.rows, key=lambda row: (row.slowdown, row.views))
        raise RelookError(
            f"nothing costs so little: the cheapest is {cheapest.label} with "
            f"{views_text(cheapest.views)} at {_times(cheapest.slowdown)} the time of one view"
        )
    tried = [row for row in affordable if row.method != "plain"]

    def gains(row: Row) -> bool:
        over = row.with_learned_average.over_plain
        if over is None:
            return False
        return outcome_of(corrected(over["cll"], len(tried)), margin) == HELPS

    gaining = [row for row in tried if gains(row)]
    worth = gaining or [row for row in affordable if row.method == "plain"] or affordable
    best = max(row.best_cll for row in worth)
    good = [row for row in worth if row.best_cll >= best - margin]
    return min(good, key=lambda row: (row.views, -row.best_cll))


def rows_tried(comparison: Comparison) -> int:
    """Return how many rows the recommended one was chosen among; 1 for the whole policy."""
    policy, best = _policy_row(comparison.rows, max(comparison.budgets)), comparison.recommended
    if policy is None or (best.method, best.views) == (policy.method, policy.views):
        return 1
    others = (row for row in comparison.rows if row is not policy and row.method != "plain")
    return sum(is_asked(row.method, row.budget, comparison.budgets) for row in others)


def frontier(rows: Sequence[Row]) -> list[Row]:
    """Return the rows whose cLL nothing cheaper or equally dear reaches, the cheapest first."""
    found: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.slowdown, -row.metrics["cll"].mean)):
        if not found or row.metrics["cll"].mean > found[-1].metrics["cll"].mean:
            found.append(row)
    return found


def _policy_row(rows: Sequence[Row], budget: int) -> Row | None:
    own = [row for row in rows if row.method == POLICY_METHOD and row.budget <= budget]
    return max(own, key=lambda row: row.budget, default=None)


def _rival(rows: Sequence[Row], policy: Row) -> Row | None:
    """Return the best baseline of the policy's budget; None where it is the plain image."""
    if policy.rival in (None, "plain") or policy.over_rival is None:
        return None
    own = [row for row in rows if row.method == policy.rival and row.budget <= policy.budget]
    return max(own, key=lambda row: row.budget)


def _recommended(
    asked: Sequence[Row], found: Judged, difference: Difference
) -> tuple[Row, tuple[str, ...]]:
    """Return the row to deploy, and why others that look as good were passed over."""
    plain, policy = found.best, found.policy

    def gain(row: Row) -> Interval:
        cll = difference(row.key, plain.key)["cll"]
        return corrected(cll, 1 if row is policy else found.tried)

    def gains(row: Row) -> bool:
        return outcome_of(gain(row), found.margin) == HELPS

    def behind(row: Row) -> float:
        return -difference(row.key, best.key)["cll"].low

    gaining = [row for row in asked if row is not plain and gains(row)]
    if not gaining:
        return plain, ()
    best = max(gaining, key=lambda row: row.best_cll)
    good = [row for row in gaining if behind(row) <= found.margin]
    chosen = min(good, key=lambda row: (row.views, row is not policy, -row.best_cll))
    while better := _better(chosen, asked, difference):
        chosen = max(better, key=lambda row: row.best_cll)
    notes, enough = [], _NEARLY * gain(chosen).estimate
    halves = [r for r in asked if r.method == chosen.method and 2 * r.views <= chosen.views]
    near = [row for row in halves if gain(row).estimate >= max(enough, found.margin)]
    if near:
        row = min(near, key=lambda row: row.views)
        over = gain(row)
        why = f"it may be {number(behind(row), 4)} worse than {_name(best)}"
        if row not in gaining:
            why = f"its interval, widened for a choice among {found.tried}, includes zero"
        notes.append(
            f"Cheaper and close: {_name(row)}, cLL {signed(over.estimate, 4)} {interval(over, 4)}, "
            f"{_times(row.slowdown)} the time; not recommended, as {why}."
        )
    rival = found.rival
    unproven = rival in asked and rival not in gaining
    if rival and unproven and rival.best_cll > chosen.best_cll:
        notes.append(
            f"The cLL of {_name(rival)} is higher, but among {found.tried} choices that proves no "
            "gain over the plain image."
        )
    return chosen, tuple(notes)


def _better(row: Row, rows: Sequence[Row], difference: Difference) -> list[Row]:
    """Return the rows that surely beat one in accuracy, with no more views and no lower cLL."""
    able = (one for one in rows if one.views <= row.views and one.best_cll >= row.best_cll)
    return [one for one in able if difference(one.key, row.key)["accuracy"].low > 0]


def _shares(plain: Row, policy: Row) -> tuple[float | None, float | None]:
    """Return the gain in cLL that the views bring, and what their average adds to it."""
    if f"cll{USUAL}" not in policy.metrics:
        return None, None
    usual = policy.metrics[f"cll{USUAL}"].mean
    return usual - plain.metrics["cll"].mean, policy.best_cll - usual


def _sentence(found: Judged, plain: Row) -> str:
    """Say what to deploy, what it gains, and at what price: a fact per sentence."""
    parts = [_headline(found)]
    if found.best is not found.policy and found.best is not plain:
        over = (
            found.best.with_learned_average.over_plain or {}
        )  # its intervals allow for the choice
        cll, accuracy = (corrected(over[name], found.tried) for name in ("cll", "accuracy"))
        change = f"{_change(cll, accuracy)}{_otherwise(accuracy, gains=True)}"
        parts.append(f"Compared with the plain image: cLL {change}.")
        parts.append(_price(found.best))
    parts += [*_of_policy(found), *found.passed_over]
    views, average = _shares(plain, found.policy)
    if found.alone == HELPS and average == 0:
        parts.append("All of the policy's gain over the plain image comes from its views.")
    elif found.alone == HELPS and views is not None and average is not None:
        parts.append(
            f"Of the policy's gain over the plain image, {number(views, 4)} comes from the views "
            f"and {number(average, 4)} from their learned average."
        )
    return " ".join(parts)


def _headline(found: Judged) -> str:
    outcome = found.outcome.capitalize()
    if found.outcome == AVERAGING and found.best.method != POLICY_METHOD:
        outcome += "; the learned views show no further gain"
    if found.outcome == HELPS and not found.rivals:
        outcome += ", compared with the plain image alone"
    if found.outcome == NO_DIFFERENCE and found.likely_worse:
        outcome += ", though more likely worse than better"
    shorter = found.best is not found.policy and found.best.method == POLICY_METHOD
    as_good = f", as good as {found.policy.views}" if shorter and found.alone == HELPS else ""
    return f"{outcome}: use {_name(found.best)}{as_good}."


def _of_policy(found: Judged) -> list[str]:
    policy, over = found.policy, found.policy.over_plain or {}
    if found.same:
        return ["The policy predicts just what the plain image does."]
    also = ", which is the best baseline too" if found.rivals and found.rival is None else ""
    gains = found.alone == HELPS
    facts = [f"compared with the plain image{also if gains else ''}: "]
    facts[0] += f"{found.kind} {_change(over['cll'], over['accuracy'])}"
    facts[0] += "." if found.alone == HURTS else f"{_otherwise(over['accuracy'], gains)}."
    if found.best is not policy:
        facts[0] = f"{_name(policy)} {facts[0]}"
    if found.alone in (NO_DIFFERENCE, TOO_FEW):
        facts.append(_doubt(found))
    if gains and found.rival is not None:
        facts.append(_against(policy.over_rival or {}, found.rival, found.tried))
    return [f"{one[0].upper()}{one[1:]}" for one in (*facts, _price(policy))]


def _doubt(found: Judged) -> str:
    cll = (found.policy.over_plain or {})["cll"]
    if cll.low > 0 or cll.high < 0:
        return f"that is within the margin of indifference, {found.margin:g}."
    if found.likely_worse:
        return "the interval includes zero, but nearly all of it is a loss."
    worth = max(WORTH, found.margin)
    if found.alone == NO_DIFFERENCE:
        return f"the interval includes zero and excludes gains above {worth:g}."
    # Twice the images whose interval would just leave zero out: then four in five tries show it.
    gain = max(cll.estimate, worth)
    needed = 2 * found.images * max(1.0, (cll.estimate - cll.low) / gain) ** 2
    needed = round(needed, -floor(log10(needed)))
    return (
        f"to show a gain of {gain:.2g} in cLL would take about {needed:,.0f} images like these "
        f"{found.images:,}."
    )


def _against(over: Mapping[str, Interval], rival: Row, tried: int) -> str:
    """Compare with the best baseline of the same budget: to be behind the best of many is luck."""
    cll, doubt = over["cll"], []
    if corrected(cll, tried).high < 0:
        doubt = ["it falls behind"]
    elif cll.low <= 0:
        doubt = ["no gain is shown"]
    if over["accuracy"].high < 0:
        doubt.append("its accuracy is lower")
    learned = rival.fitted is not None and rival.fitted.view_temperature != 1
    average = ", with a learned average too" if learned else ""
    return (
        f"compared with the best baseline, {_name(rival)}{average}: cLL "
        f"{_change(cll, over['accuracy'])}{': ' if doubt else ''}{', and '.join(doubt)}."
    )


def _otherwise(accuracy: Interval, gains: bool) -> str:
    """Say so where accuracy surely moves otherwise than cLL, which `gains` or does not."""
    if accuracy.high < 0:
        return ": accuracy falls" + (", but the advice goes by cLL" if gains else "")
    improves = accuracy.low > 0 and not gains
    return ": accuracy does improve, but the advice goes by cLL" if improves else ""


def _name(row: Row) -> str:
    """Name what a row is, as a sentence does."""
    name = "the learned policy" if row.label == POLICY_LABEL else _NAMES.get(row.method, row.label)
    return name if has_own_budget(row.method) else f"{name} with {views_text(row.views)}"


def _price(row: Row) -> str:
    return f"It takes about {_times(row.slowdown)} the time of one view."


def _times(slowdown: float) -> str:
    return f"{slowdown:.2g} ×" if slowdown < 99.5 else f"{slowdown:,.0f} ×"


def _change(cll: Interval, accuracy: Interval) -> str:
    """Write two changes: +0.0312 [+0.0251, +0.0377], accuracy +0.7 points [−0.1, +1.5]."""
    return (
        f"{signed(cll.estimate, 4)} {interval(cll, 4)}, "
        f"accuracy {signed(100 * accuracy.estimate, 1)} points {interval(accuracy, 1, 100)}"
    )
