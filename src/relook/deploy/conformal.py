"""Prediction sets of a policy: their threshold from some images, what they are worth on others."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from relook.data.base import Dataset
from relook.deploy.tta.view_plan import TemperatureChoice, plan_views
from relook.evaluation.latency import policy_mark
from relook.evaluation.set_sizes import SETS, SetReport, SetsRecord, report_sets
from relook.foundation.progress import Progress
from relook.io.identities import set_of, union
from relook.models import Predictor
from relook.models.describe import network_mark
from relook.numerics.calibration import fit_temperature, temper
from relook.numerics.conformal import Score, SetRule, coverage_deviation, fit_sets
from relook.policy import Policy

_MORE = (0.95, 0.98, 0.99, 0.995, 0.999)
"""Coverages to ask for."""


class SetKeywords(TypedDict, total=False):
    """Which sets are made; see `relook.numerics.conformal.fit_sets`."""

    coverage: float
    score: Score
    per_class: bool
    penalty: float
    free: int


@dataclass(frozen=True)
class PolicySets:
    """A policy with prediction sets, whose thresholds so many `images` set, and the plain image's.

    `deviation` is how much the coverage varies with these images; `report` is of others, if any.
    """

    policy: Policy
    plain: SetRule
    images: int
    deviation: float
    report: SetReport | None

    @property
    def note(self) -> str | None:
        """Say so where no set says more than a prediction does, and which would."""
        found, rule = None if self.report is None else self.report.figures, self.policy.sets
        if found is None or rule is None or found.empty or found.size.estimate != 1:
            return None
        accuracy = found.coverage.estimate  # of sets of one class
        more = next((one for one in _MORE if one > accuracy), None)
        if accuracy < rule.coverage or more is None:
            return None
        return (
            f"every set has one class, as the accuracy ({100 * accuracy:.1f} %) is above the "
            f"coverage asked for: ask for more, as coverage={more:g} (--coverage {more:g})"
        )

    def to_json(self) -> dict[str, Any]:
        """Return what was found, without the policy, as JSON-able data."""
        return {
            "images": self.images,
            "coverage_deviation": self.deviation,
            "plain_thresholds": self.plain.thresholds,
            "report": None if self.report is None else asdict(self.report),
        }

    def keep(self, run: Path | None, policy: Policy, text: str) -> None:
        """Write what the sets of `text` are worth into the run of a policy, for its report."""
        rule = self.policy.sets
        if run is None or rule is None or self.report is None:
            return
        record = SetsRecord(
            text=text,
            score=rule.score,
            coverage=rule.coverage,
            per_class=len(rule.thresholds) > 1,
            images=self.images,
            deviation=self.deviation,
            report=self.report,
            policy=policy_mark(policy),
        )
        SETS.write(run / "sets.json", record)


def policy_sets(
    predictor: Predictor,
    dataset: Dataset,
    policy: Policy,
    others: Dataset | None = None,
    *,
    temperature: TemperatureChoice = "policy",
    batch: int | None = None,
    progress: Progress | None = None,
    **wanted: Unpack[SetKeywords],
) -> PolicySets:
    """Return a policy with sets whose threshold these images set: nothing may be learned on them.

    They are added to the images that the policy was found on. `others` show what the sets are
    worth. `temperature` is as for `relook.TTA`: the policy has it for all of its views.
    """
    plan = plan_views(policy, temperature=temperature)
    labels = dataset.labels
    averages = plan.predict(predictor, dataset.images, batch=batch, progress=progress)
    # One number; the plain image's sets are compared with, not deployed.
    of_plain = fit_temperature(averages[1], labels, groups=dataset.units)
    own, plain = (
        fit_sets(
            np.exp(temper(average, at)),
            labels,
            temperature=at,
            groups=dataset.units,
            classes=dataset.classes,
            **wanted,
        )
        for average, at in zip(averages, (plan.temperature, of_plain), strict=True)
    )
    of_plain = all(sub.is_plain for sub in plan.policy)
    if of_plain:  # at another temperature it would seem to differ from itself
        plain = own
    report = None
    if others is not None:
        shown = plan.predict(predictor, others.images, batch=batch, progress=progress)
        one, other = (
            rule.sets(np.exp(temper(average, rule.temperature)))
            for rule, average in zip((own, plain), shown, strict=True)
        )
        found = report_sets(one, other, others.labels, others.units)
        report = replace(found, of_plain=of_plain)
    kept = plan.policy.temperatures
    if kept is None or kept[-1] != plan.temperature:
        kept = (plan.temperature,) * len(plan.policy)
    made = replace(
        plan.policy,
        temperatures=kept,
        seen=union(plan.policy.seen, set_of(dataset.identities)),
        fitted_on=plan.policy.fitted_on or network_mark(predictor),
        sets=own,
    )
    units = len(dataset) if dataset.units is None else len(np.unique(dataset.units))
    deviation = coverage_deviation(own.coverage, units)
    return PolicySets(made, plain, len(dataset), deviation, report)
