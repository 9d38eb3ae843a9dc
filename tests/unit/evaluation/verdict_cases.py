"""Comparisons that verdicts are tested on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.unit.data.marked_images import TURNED, Oracle

from relook.data import Dataset
from relook.evaluation.baselines import POLICY_METHOD, label_of
from relook.evaluation.compare import compare
from relook.evaluation.comparison import Comparison, Measured, Row, Verdict
from relook.evaluation.scoring import best_rival
from relook.evaluation.verdict import judge
from relook.numerics.intervals import Interval, paired_interval
from relook.policy import Policy

FloatArray = NDArray[np.float64]
Scores = Mapping[tuple[str, int], FloatArray]


def compared(
    dataset: Dataset,
    logits: FloatArray,
    policy: Policy = TURNED,
    margin: float = 0.001,
    methods: tuple[str, ...] = ("plain", "flip"),
) -> Comparison:
    return compare(
        Oracle(logits).predictor,
        dataset,
        policy,
        recipe="small",
        budgets=(1, 2, 4),
        methods=methods,
        margin=margin,
        measure_cost=False,
    )


def differences(
    scores: Scores,
    right: Scores | None,
    one: tuple[str, int],
    other: tuple[str, int],
    groups: NDArray[np.int64] | None = None,
) -> dict[str, Interval]:
    """The differences in cLL and accuracy."""
    zero = np.zeros(len(scores[one]))
    accuracy = (right or {}).get(one, zero) - (right or {}).get(other, zero)
    cll = scores[one] - scores[other]
    return {
        "cll": paired_interval(cll, groups=groups),
        "accuracy": paired_interval(accuracy, groups=groups),
    }


def rows_of(scores: Scores, right: Scores | None = None) -> list[Row]:
    """Rows as `compare` makes them, from each image's cLL and, where it is not 0, accuracy."""
    rows = []
    means = {key: float(cll.mean()) for key, cll in scores.items()}
    for (method, budget), cll in scores.items():
        plain, key = ("plain", 1), (method, budget)
        rival = best_rival((method, budget), means) if method == POLICY_METHOD else None
        lead = None if rival is None else differences(scores, right, key, rival)
        rows.append(
            Row(
                method=method,
                label=label_of(method),
                budget=budget,
                views=budget,
                slowdown=1.1 * budget,
                metrics={"cll": Measured(float(cll.mean()), 0.0)},
                over_plain=None if method == "plain" else differences(scores, right, key, plain),
                over_rival=lead,
                rival=None if rival is None else rival[0],
            )
        )
    return rows


def gains(images: int, seed: int = 0, **means: float) -> dict[tuple[str, int], FloatArray]:
    """Per-image cLL around −1: `gps_5=0.02` is a policy of 5 views with that mean gain.

    Every row has noise of its own (deviation 0.1 an image, centred) over the plain image.
    """
    generator = np.random.default_rng(seed)
    plain = -1 + 0.5 * generator.normal(size=images)
    scores = {("plain", 1): plain}
    for name, gain in means.items():
        method, _, views = name.partition("_")
        noise = 0.1 * generator.normal(size=images)
        scores[method.removeprefix("m"), int(views)] = plain + gain + noise - noise.mean()
    return scores


def judged(
    scores: Scores,
    budgets: tuple[int, ...] = (10,),
    rows: Sequence[Row] | None = None,
    groups: NDArray[np.int64] | None = None,
    right: Scores | None = None,
    **more: Any,
) -> Verdict:
    """The verdict on rows as `compare` makes them, from each image's cLL and accuracy."""

    def difference(one: tuple[str, int], other: tuple[str, int]) -> dict[str, Interval]:
        return differences(scores, right, one, other, groups)

    images, made = len(next(iter(scores.values()))), rows or rows_of(scores, right)
    return judge(made, difference, budgets=budgets, images=images, **more)


# The three constructed cases
