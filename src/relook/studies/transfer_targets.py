"""What policies are applied to: models with images that no search saw, and the views of each."""

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

    `indices` are the images' places in the data set that they were taken from; `batch` is how
    many images the model takes at once, where that differs from the others'.
    """

    name: str
    predictor: Predictor
    dataset: Dataset
    own: str | None = None
    indices: ArrayLike | None = None
    batch: int | None = None


@dataclass(frozen=True)
class TargetJob:
    """What is scored on one target."""

    target: Target
    setup: Setup
    lines: tuple[MethodRun, ...]
    baselines: tuple[str, ...]
    left_out: Mapping[str, str]

    @property
    def passes(self) -> int:
        """How many views go through the model."""
        distinct, _ = distinct_views(view for line in self.lines for view in line.views)
        return len(distinct) * len(self.setup.dataset)


def make_target_job(
    target: Target, setup: Setup, policies: Mapping[str, Policy], methods: Sequence[str] | None
) -> TargetJob:
    """Return what is scored on a target: the policies, and the baselines that it can have."""
    chosen, missing = available_methods(setup, methods, None)
    baselines = tuple(method for method in chosen if method != POLICY_METHOD)
    lines = [line for method in baselines for line in lines_of(setup, method, ())]
    for name, policy in policies.items():
        repeats = 1 if policy.is_fixed else setup.runs
        lines += [policy_run(setup, name, run, policy) for run in range(repeats)]
    left_out = {f"{method} on {target.name}": why for method, why in missing.items()}
    return TargetJob(target, setup, tuple(lines), baselines, left_out)


def check_targets(targets: Sequence[Target], policies: Mapping[str, Policy]) -> None:
    """Raise unless targets and policies have names of their own, and images are of one kind."""
    names = [target.name for target in targets]
    if not names:
        raise RelookError("expected at least one model to apply the policies to, got none")
    for name in names:
        if names.count(name) > 1:
            raise RelookError(f"expected another name for each target, but {name!r} is there twice")
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
    """Return the recipe that all policies come from, or say which do not."""
    given = None if recipe is None else get_recipe(recipe)
    known = {name: policy.recipe for name, policy in policies.items() if policy.recipe is not None}
    if given is None and not known:
        raise RelookError("the policies do not say which recipe they come from: give a recipe")
    wanted = given.name if given is not None else next(iter(known.values()))
    for name, found in known.items():
        if found != wanted:
            raise RelookError(
                f"policy {name!r}: expected one of the recipe {wanted!r} like the others, got "
                f"one of {found!r}: its views are made for other images"
            )
    return given or get_recipe(wanted)


def unseen_images(dataset: Dataset, policies: Sequence[Path]) -> Indices:
    """Return the places of the images that none of the policies was found on.

    A policy says itself which it was found on, and the record of a search next to it which of
    its images were held out.
    """
    found = [Policy.load(path) for path in policies]
    splits = (held_out_part(path, dataset) for path in policies)
    return unseen_places(dataset, found, [one.split.held_out for one in splits if one is not None])
