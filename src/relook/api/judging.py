"""Comparing and calibrating a policy, with any model and any images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from relook.api.progress_bars import ProgressChoice, chosen_bars, is_shown, say
from relook.data import Dataset, Preparation, as_dataset
from relook.data.adapt import as_images, prepared_for
from relook.deploy.calibrate import calibrated_policy
from relook.errors import RelookError
from relook.evaluation.baselines import check_methods
from relook.evaluation.compare import compare, plan_comparison
from relook.evaluation.comparison import Comparison
from relook.evaluation.setup import ComparisonKeywords
from relook.evaluation.unseen import check_unused, unused_part
from relook.foundation.progress import stage_of
from relook.foundation.wording import views_text
from relook.models import Predictor
from relook.policy import Policy
from relook.policy.recipes import Recipe, get_recipe

if TYPE_CHECKING:
    from relook.deploy.conformal import PolicySets, SetKeywords
    from relook.deploy.recommended import Deployed


@dataclass(frozen=True)
class Compared:
    """A comparison, and the images that its indices point into."""

    comparison: Comparison
    dataset: Dataset
    indices: ArrayLike | None


def images_for(
    predictor: Predictor, images: Any, labels: ArrayLike | None, policy: Policy, **how: Any
) -> Dataset:
    """Read images as the model takes them and as the policy's search has prepared its own."""
    wanted = prepared_for(images, Preparation(), predictor)
    return as_dataset(
        images,
        labels,
        preparation=wanted.as_searched(policy.preparation),
        outputs=predictor.classes,
        **how,
    )


def compared(
    predictor: Predictor,
    images: Any,
    labels: ArrayLike | None,
    policy: Any,
    *,
    recipe: Recipe | str | None,
    indices: ArrayLike | None = None,
    validation: Any = None,
    store_path: str | Path | None = None,
    progress: ProgressChoice = None,
    record: Mapping[str, Any] | None = None,
    keywords: ComparisonKeywords,
    engine: Mapping[str, Any],
    ood: Any = None,
    **reading: Any,
) -> Compared:
    """Compare policies on images of any kind, with those for validation as a pair or alone.

    `engine` says how the model runs, as `accelerate_run` takes it.
    """
    check_methods(keywords.get("methods"))
    policies = policies_of(policy)
    dataset = images_for(predictor, images, labels, policies[0], **reading)
    if validation is not None:
        others, theirs = validation if isinstance(validation, tuple) else (validation, None)
        validation = images_for(predictor, others, theirs, policies[0], like=dataset)
    recipe = recipe or policies[0].recipe
    if recipe is None:
        raise RelookError("the policy does not say which recipe it comes from: give recipe=…")
    planned = plan_comparison(
        predictor,
        dataset,
        policies,
        recipe=get_recipe(recipe),
        validation=validation,
        keywords=keywords,
        engine=engine,
    )
    if is_shown(progress):
        planned.model.tell(say)
        own = views_text(policies[0].views)
        say(f"comparing {own} with the baselines on {len(dataset):,} images")
        fewer = planned.fewer(lambda left: f"methods={left}")
        say(f"{planned} (methods=… and budgets=… for fewer){fewer}")
    with chosen_bars(progress) as bars:
        found = compare(
            planned.model.predictor,
            dataset,
            policies,
            recipe=get_recipe(recipe),
            validation=validation,
            indices=indices,
            store_path=store_path,
            progress=bars,
            record={"model": {"engine": planned.model.engine}, **(record or {})},
            ood=() if ood is None else [as_images(ood)],
            **keywords,
        )
    return Compared(found, dataset, indices)


def calibrated(
    predictor: Predictor,
    images: Any,
    labels: ArrayLike | None,
    policy: Policy,
    used: bytes | None,
    *,
    balanced: bool = False,
    keep_view_temperature: bool = False,
    batch: int | None = None,
    progress: ProgressChoice = None,
    **reading: Any,
) -> Policy:
    """Fit a policy on images of any kind; those in the set `used` are refused."""
    dataset = images_for(predictor, images, labels, policy, **reading)
    if used is not None:
        check_unused(dataset, used, "reuse_images=True")
    if is_shown(progress):
        say(f"calibrating {views_text(policy.views)} on {len(dataset):,} images")
    with chosen_bars(progress) as bars:
        found = calibrated_policy(
            predictor,
            dataset,
            policy,
            balanced=balanced,
            keep_view_temperature=keep_view_temperature,
            batch=batch,
            progress=stage_of(bars, "calibrate"),
        )
    return found.policy


def with_sets(
    predictor: Predictor,
    images: Any,
    labels: ArrayLike | None,
    chosen: Deployed,
    used: bytes,
    others: Dataset | None,
    *,
    left_out: bool,
    progress: ProgressChoice,
    batch: int | None,
    wanted: SetKeywords,
) -> PolicySets:
    """Return what is deployed with prediction sets; images in the set `used` are refused.

    With `left_out` those that are not in it are taken. `others` show what the sets are worth.
    """
    from relook.deploy.conformal import policy_sets

    dataset = images_for(predictor, images, labels, chosen.policy)
    how = 'search with  split="0.4:0.3"  (the other 30 % are left for this), or give other images'
    if left_out:
        dataset = unused_part(dataset, used, how)
    check_unused(dataset, used, how)
    if is_shown(progress):
        say(f"prediction sets of {chosen.text}: {len(dataset):,} images set the threshold")
    with chosen_bars(progress) as bars:
        return policy_sets(
            predictor,
            dataset,
            chosen.policy,
            others,
            temperature=chosen.temperature,
            batch=batch,
            progress=stage_of(bars, "calibrate"),
            **wanted,
        )


def policies_of(policy: Any) -> tuple[Policy, ...]:
    """Return a policy, its file or a preset's name, or several of them, as policies."""
    several = isinstance(policy, Sequence) and not isinstance(policy, Policy | str)
    found = tuple(policy) if several else (policy,)
    return tuple(one if isinstance(one, Policy) else Policy.load(one) for one in found)
