"""Evaluates one pass of a distilled network on labelled images that nothing was learned on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from numpy.typing import ArrayLike

from relook.data.base import Dataset
from relook.evaluation.comparison import MARGIN
from relook.evaluation.cross_validation import Evaluation, cross_validated, differences
from relook.foundation.wording import interval, signed, views_text
from relook.numerics.arrays import FloatArray
from relook.numerics.intervals import Interval, paired_interval

ROWS = ("original, plain", "original, policy", "distilled, plain", "distilled, policy")
"""The rows of the comparison, in order."""

_WIDEST = 20.0  # largest share of the gain that an interval may end at, from its centre
_BISECTIONS = 40


@dataclass(frozen=True)
class Line:
    """A network with the plain image or the policy, and its gain over the original's plain pass."""

    name: str
    views: int
    accuracy: float
    cll: float
    ece: float
    over_plain: Mapping[str, Interval] | None


@dataclass(frozen=True)
class Verdict:
    """The verdict on a distilled network, from labelled images.

    `share` is the part of the policy's gain in cLL that one plain pass keeps; None if the policy
    has no proven gain. `helps`: the gain of the plain pass is proven, and no loss of accuracy is.
    `doubt` says if something may have been learned on the images.
    """

    lines: tuple[Line, ...]
    images: int
    share: Interval | None
    helps: bool
    doubt: str = ""

    @property
    def sentence(self) -> str:
        """Whether to use the new weights, and why."""
        _, policy, one, _ = self.lines
        gains, many = one.over_plain or {}, policy.over_plain or {}
        found = (
            f"One pass of the distilled network, compared with one of the original, on "
            f"{self.images:,} labelled images: cLL {_shown(gains['cll'], 4)}, accuracy "
            f"{_shown(gains['accuracy'], 1, 100)} points."
        )
        whole = f"the gain of {views_text(policy.views)}, {_shown(many['cll'], 4)}"
        kept = f"No gain of the policy itself is shown ({_shown(many['cll'], 4)})."
        if self.share is not None:
            ends = f"[{100 * self.share.low:.0f}, {100 * self.share.high:.0f}]"
            kept = f"It keeps {100 * self.share.estimate:.0f} % {ends} of {whole}."
        first = (
            "Distillation helps: use the new weights."
            if self.helps
            else "Distillation is not shown to help: keep the old weights."
        )
        return " ".join(part for part in (first, found, kept, self.doubt) if part)


def judge(
    averages: Mapping[str, tuple[FloatArray, float]],
    views: int,
    proof: Dataset,
    doubt: str = "",
) -> Verdict:
    """Return the verdict on log-probabilities `[n, class]` and view temperatures, by `ROWS`."""
    groups = proof.units
    found = {
        name: cross_validated(
            log_probs, proof.labels, seed=0, groups=groups, view_temperature=kappa
        )
        for name, (log_probs, kappa) in averages.items()
    }
    first = found[ROWS[0]]
    lines = tuple(_line(name, found[name], first, views, groups) for name in ROWS)
    over = lines[2].over_plain or {}
    gain, accuracy = over["cll"], over["accuracy"]
    helps = gain.low > 0 and gain.estimate > MARGIN and accuracy.high >= 0
    own, whole = (found[name].per_image["cll"] - first.per_image["cll"] for name in ROWS[2:0:-1])
    return Verdict(lines, len(proof), share_kept(own, whole, groups), helps, doubt)


def share_kept(
    own: FloatArray, whole: FloatArray, groups: ArrayLike | None = None
) -> Interval | None:
    """Return the mean of `own` `[n]` as a share of that of `whole`, with its interval (Fieller).

    The interval holds the shares s for which no difference between `own` and s times `whole` is
    shown; None if `whole` is not shown to be above 0.
    """
    every = paired_interval(whole, groups=groups)
    if every.low <= 0:
        return None
    estimate = paired_interval(own, groups=groups).estimate / every.estimate

    def end(outside: float) -> float:
        inside = estimate
        for _ in range(_BISECTIONS):
            middle = (inside + outside) / 2
            one = paired_interval(own - middle * whole, groups=groups)
            inside, outside = (middle, outside) if one.low <= 0 <= one.high else (inside, middle)
        return inside

    return Interval(estimate, end(estimate - _WIDEST), end(estimate + _WIDEST), every.confidence)


def _line(
    name: str, found: Evaluation, plain: Evaluation, views: int, groups: ArrayLike | None
) -> Line:
    metrics = found.metrics
    over = None if found is plain else differences([found], [plain], groups)
    return Line(
        name,
        views if name.endswith("policy") else 1,
        float(metrics["accuracy"]),
        float(metrics["cll"]),
        float(metrics["ece_calibrated"]),
        over,
    )


def _shown(one: Interval, digits: int, scale: float = 1.0) -> str:
    return f"{signed(one.estimate * scale, digits)} {interval(one, digits, scale)}"
