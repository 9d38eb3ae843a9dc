"""The targets of transferred policies: models with images that no search saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from numpy.typing import ArrayLike

from relook.data import Dataset
from relook.errors import RelookError, unknown_name
from relook.evaluation.baselines import BASELINES, POLICY_METHOD
from relook.evaluation.scoring import MethodRun, lines_of, policy_run
from relook.evaluation.setup import Setup, available_methods
from relook.evaluation.unseen import unseen_places
from relook.models import Predictor
from relook.numerics.arrays import Indices
from relook.policy import Policy
from relook.policy.recipes import Recipe, get_recipe
from relook.policy_search.run_record import held_out_part
from relook.predictions.passes import distinct_views


@dataclass(frozen=True)
class Target:
    """A model, and images that no policy's search has seen; `own` names the model's policy.

    `indices` are the images' places in the data set that they were taken from; `batch` is the
    number of images per model call, if it differs from that of other targets.
    """

    name: str
    predictor: Predictor
    dataset: Dataset
    own: str | None = None
    indices: ArrayLike | None = None
    batch: int | None = None


@dataclass(frozen=True)
class TargetJob:
    """The policies and baselines to score on one target."""

    target: Target
    setup: Setup
    lines: tuple[MethodRun, ...]
    baselines: tuple[str, ...]
    left_out: Mapping[str, str]

    @property
    def passes(self) -> int:
        """The number of model passes."""
        distinct, _ = distinct_views(view for line in self.lines for view in line.views)
        return len(distinct) * len(self.setup.dataset)


def make_target_job(
    target: Target, setup: Setup, policies: Mapping[str, Policy], methods: Sequence[str] | None
) -> TargetJob:
    """Return the policies, and the baselines that are available, to score on a target."""
    chosen, missing = available_methods(setup, methods, None)
    baselines = tuple(method for method in chosen if method != POLICY_METHOD)
    lines = [line for method in baselines for line in lines_of(setup, method, ())]
    for name, policy in policies.items():
        repeats = 1 if policy.is_fixed else setup.runs
        lines += [policy_run(setup, name, run, policy) for run in range(repeats)]
    left_out = {f"{method} on {target.name}": why for method, why in missing.items()}
    return TargetJob(target, setup, tuple(lines), baselines, left_out)


def check_targets(targets: Sequence[Target], policies: Mapping[str, Policy]) -> None:
    """Raise unless names are unique and known, and all images have the same channels."""
    names = [target.name for target in targets]
    if not names:
        raise RelookError("expected at least one model to apply the policies to, got none")
    for name in names:
        if names.count(name) > 1:
            raise RelookError(f"expected a different name for each target, got {name!r} twice")
    for name in policies:
        if name in BASELINES:
            raise RelookError(f"policy {name!r}: that is a baseline's name; choose another")
    for target in targets:
        if target.own is not None and target.own not in policies:
            raise unknown_name("policy", target.own, policies)
    first = targets[0]
    for target in targets[1:]:
        ours, theirs = first.dataset.images.shape[1], target.dataset.images.shape[1]
        if ours != theirs:
            raise RelookError(
                f"expected images with the same number of channels, got {ours} for {first.name!r} "
                f"and {theirs} for {target.name!r}: a policy for one does not fit the other"
            )


def common_recipe(policies: Mapping[str, Policy], recipe: Recipe | str | None) -> Recipe:
    """Return the recipe of all policies; raises if they do not share one."""
    given = None if recipe is None else get_recipe(recipe)
    named = {name: policy.recipe for name, policy in policies.items() if policy.recipe is not None}
    if given is None and not named:
        raise RelookError("the policies do not say which recipe they come from: give a recipe")
    common = given.name if given is not None else next(iter(named.values()))
    for name, own in named.items():
        if own != common:
            raise RelookError(
                f"policy {name!r}: expected one of the recipe {common!r} like the others, got "
                f"one of {own!r}: its views are made for other images"
            )
    return given or get_recipe(common)


def unseen_images(dataset: Dataset, policies: Sequence[Path]) -> Indices:
    """Return the places of the images that none of the policies was found on.

    A policy records the images that it was found on, and a search's record next to it those that
    it held out.
    """
    loaded = [Policy.load(path) for path in policies]
    splits = (held_out_part(path, dataset) for path in policies)
    return unseen_places(dataset, loaded, [one.split.held_out for one in splits if one is not None])
