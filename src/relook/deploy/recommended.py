"""The views to deploy: those that a comparison's verdict recommends, or a named method's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relook.deploy.tta.view_plan import TemperatureChoice
from relook.errors import RelookError, unknown_name
from relook.evaluation.baselines import (
    BASELINES,
    POLICY_LABEL,
    POLICY_METHOD,
    Options,
    label_of,
    policy_label,
)
from relook.evaluation.comparison import Comparison
from relook.foundation.wording import views_text
from relook.io.identities import UNKNOWN
from relook.io.records import convert
from relook.policy import Policy
from relook.policy.recipes import Recipe

_ALIASES = {"policy": POLICY_METHOD, "crops": "cf"}


@dataclass(frozen=True)
class Deployed:
    """Views and temperature to deploy; `text` describes them.

    `by_verdict`: a verdict recommends them. `whole`: they are all views of the policy.
    """

    policy: Policy
    temperature: TemperatureChoice
    text: str
    by_verdict: bool = False
    whole: bool = False


def deployed(
    policy: Policy,
    comparison: Comparison | None,
    recipe: Recipe,
    method: str | None = None,
    views: int | None = None,
) -> Deployed:
    """Return the views that the comparison recommends, or those of a given method.

    `method` and `views` override the recommendation; `views` alone means the policy. A method other
    than the policy has the temperature that was fitted in the comparison, or none if it was not
    compared. A comparison of a policy that predicts differently is ignored.
    """
    comparison = of_same_policy(comparison, policy)
    by_verdict = method is None and views is None and comparison is not None
    if by_verdict and comparison is not None:
        found = comparison.verdict
        method, views = found.recommended_method, found.recommended_views
    name = named_method(method or POLICY_METHOD)
    if name == POLICY_METHOD:
        cut = policy if views is None else policy.for_budget(views)
        label = policy_label(policy)
        name = "the learned policy" if label == POLICY_LABEL else label
        text = f"{name} with {views_text(cut.views)}"
        return Deployed(cut, "policy", text, by_verdict, len(cut) == len(policy))
    if name not in BASELINES:
        raise unknown_name("method", name, (*BASELINES, *_ALIASES))
    row = BASELINES[name]
    if row.budget is not None and views not in (None, row.budget):
        raise RelookError(f"method {name!r}: expected {views_text(row.budget)}, got {views}")
    wanted = row.budget or views or policy.views
    settings = {} if comparison is None else comparison.settings
    where = "comparison.json: settings.randaugment"
    options = convert(settings.get("randaugment", {}), Options, where)
    made = row.policy(recipe, wanted, settings.get("seed", 0), "fixed", options)
    made = replace(made, preparation=policy.preparation)
    text = "the plain image" if name == "plain" else f"{label_of(name)} with {views_text(wanted)}"
    if row.random:
        text += " (drawn once; the comparison drew views for each image)"
    scored = None if comparison is None else comparison.row(name, wanted)
    if scored is None or scored.fitted is None:
        return Deployed(made, "policy", text, by_verdict)
    # The comparison does not record which images it was made on.
    made = replace(made, view_temperature=scored.fitted.view_temperature, seen=UNKNOWN)
    return Deployed(made, scored.fitted.temperature, text, by_verdict)


def named_method(name: str) -> str:
    """Return a method's name in comparisons, given the name or an alias."""
    return _ALIASES.get(name, name)


def of_same_policy(comparison: Comparison | None, policy: Policy) -> Comparison | None:
    """Return the comparison if its policy predicts the same as this one, else None."""
    if comparison is None or _prediction_key(comparison.policy) != _prediction_key(policy):
        return None
    return comparison


def _prediction_key(policy: Policy) -> tuple[object, ...]:
    """Return the parts of a policy that its predictions depend on."""
    average = policy.view_temperature, policy.temperatures, policy.sets
    return policy.subpolicies, average, policy.preparation, policy.is_fixed or policy.seed
