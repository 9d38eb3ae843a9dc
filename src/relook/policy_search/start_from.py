"""Policies found before, whose views are the first candidates of a new search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relook.errors import RelookError
from relook.io.run_directory import RunDirectory
from relook.policy import Policy, SubPolicy
from relook.policy.file import policy_from_json
from relook.policy.recipes import STARTS, Recipe

StartFrom = Policy | str | Path | Mapping[str, Any]
"""A policy, its file or run, a preset's name, or as a record has it."""


def start_policies(given: StartFrom | Sequence[StartFrom] | None) -> tuple[Policy, ...]:
    """Return policies to start from: their views, each once, and the images they were found on."""
    several: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
    found = []
    for one in several:
        if one is None:
            continue
        if isinstance(one, Mapping):
            policy = policy_from_json(one, "start_from")
        elif isinstance(one, Policy):
            policy = one
        else:
            place = RunDirectory(one)
            policy = Policy.load(place.policy if place.path.is_dir() else one)
        views = tuple(dict.fromkeys(policy))
        fresh = next((view for view in views if not view.is_fixed), None)
        if fresh is not None:
            raise RelookError(
                f"--start-from: expected fixed views, got “{fresh}”, which is drawn anew for each "
                "image: freeze the policy first, with  relook policy freeze"
            )
        found.append(Policy(views, recipe=policy.recipe, seen=policy.seen))
    return tuple(found)


def start_views(policies: Sequence[Policy], recipe: Recipe) -> tuple[SubPolicy, ...]:
    """Return the policies' views, each once; raise where one crops as the recipe does not."""
    views = tuple(dict.fromkeys(view for policy in policies for view in policy))
    for view in views:
        begins = bool(view.steps) and view.steps[0].transform in STARTS
        if (begins and recipe.start is None) or (view.finish and recipe.finish is None):
            raise RelookError(
                f"--start-from: expected views as the recipe {recipe.name!r} makes them, got "
                f"“{view}”, which crops otherwise: leave it out, or name its --recipe"
            )
    return views
