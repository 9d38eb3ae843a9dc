"""Prediction sets of a policy: thresholds fitted on some images, evaluated on others."""

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
from relook.numerics.conformal import (
    Score,
    SetRule,
    check_enough,
    check_sets,
    coverage_deviation,
    fit_sets,
)
from relook.policy import Policy

_SUGGESTED = (0.95, 0.98, 0.99, 0.995, 0.999)  # coverages


class SetKeywords(TypedDict, total=False):
    """The keywords of `relook.numerics.conformal.fit_sets`."""

    coverage: float
    score: Score
    per_class: bool
    penalty: float
    free: int


@dataclass(frozen=True)
class PolicySets:
    """A policy with prediction sets fitted on so many `images`, and the plain image's rule.

    `deviation` is how much the coverage varies with these images; `report` is on other images.
    """

    policy: Policy
    plain: SetRule
    images: int
    deviation: float
    report: SetReport | None

    @property
    def note(self) -> str | None:
        """If every set has one class, which coverage would give larger sets."""
        found, rule = None if self.report is None else self.report.figures, self.policy.sets
        if found is None or rule is None or found.empty or found.size.estimate != 1:
            return None
        accuracy = found.coverage.estimate  # of sets of one class
        more = next((one for one in _SUGGESTED if one > accuracy), None)
        if accuracy < rule.coverage or more is None:
            return None
        return (
            f"every set has one class, as the accuracy ({100 * accuracy:.1f} %) is above the "
            f"coverage asked for: ask for more, as coverage={more:g} (--coverage {more:g})"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the result without the policy as JSON-able data."""
        return {
            "images": self.images,
            "coverage_deviation": self.deviation,
            "plain_thresholds": self.plain.thresholds,
            "report": None if self.report is None else asdict(self.report),
        }

    def keep(self, run: Path | None, policy: Policy, text: str) -> None:
        """Write the report on these sets, of the views `text`, into a policy's run directory."""
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
    """Return a policy with prediction sets fitted on these images, and a report on `others`.

    Nothing else may have been learned on the images; they are added to those that the policy was
    found on. `temperature` is as for `relook.TTA`, and becomes the policy's.
    """
    labels, by_class = dataset.labels, wanted.get("per_class", False)
    check_sets(**wanted)
    check_enough(
        labels,
        dataset.classes if by_class else (),
        coverage=wanted.get("coverage", 0.9),
        groups=dataset.units,
    )
    plan = plan_views(policy, temperature=temperature)
    averages = plan.predict(predictor, dataset.images, batch=batch, progress=progress)
    # Fitted on the same images: the plain image's sets are for comparison, not deployed.
    plain_temperature = fit_temperature(averages[1], labels, groups=dataset.units)
    own, plain = (
        fit_sets(
            np.exp(temper(average, at)),
            labels,
            temperature=at,
            groups=dataset.units,
            classes=dataset.classes,
            **wanted,
        )
        for average, at in zip(averages, (plan.temperature, plain_temperature), strict=True)
    )
    of_plain = all(sub.is_plain for sub in plan.policy)
    if of_plain:
        plain = own  # the temperatures differ, but the predictions are the same
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
