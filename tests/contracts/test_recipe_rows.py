"""What every recipe promises; a new row of RECIPES enrols itself."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from relook.policy import Policy, Step
from relook.policy.pool import sample_pool
from relook.policy.recipes import RECIPES, Recipe, get_recipe
from relook.policy.views import apply_subpolicy
from relook.transforms import TRANSFORMS

SIZE = 40


@pytest.fixture(params=list(RECIPES))
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return RECIPES[request.param]


def test_its_pool_has_its_groups_steps_between_its_ends(recipe: Recipe) -> None:
    pool = sample_pool(recipe, SIZE, seed=3, plain=False)
    assert len(pool) == SIZE
    longest = max(group.length for group in recipe.groups) + (recipe.start is not None)
    for subpolicy in pool:
        assert 1 <= len(subpolicy.steps) <= longest
        first, *_ = subpolicy.steps
        if recipe.start is not None:
            assert first.transform == recipe.start.transform
        own = subpolicy.steps[recipe.start is not None :]
        assert {step.transform for step in own} <= {*recipe.transforms, "identity"}
        finish = subpolicy.finish
        assert (finish and finish.transform) == (recipe.finish and recipe.finish.transform)


def test_its_pool_is_the_seeds_and_a_smaller_one_is_a_part_of_it(recipe: Recipe) -> None:
    pool = sample_pool(recipe, SIZE, seed=3)
    assert pool == sample_pool(recipe, SIZE, seed=3)
    assert pool != sample_pool(recipe, SIZE, seed=4)
    assert set(sample_pool(recipe, SIZE // 2, seed=3)) <= set(pool)


@pytest.mark.parametrize("draws", ["fixed", "fresh"])
def test_its_pool_is_a_policy_that_can_be_kept(recipe: Recipe, draws: str, tmp_path: Path) -> None:
    pool = sample_pool(recipe, SIZE, seed=3, draws=draws)  # type: ignore[arg-type]
    assert all(subpolicy.is_fixed == (draws == "fixed") for subpolicy in pool[:-1])
    policy = Policy(pool, recipe=recipe.name)
    policy.save(tmp_path / "policy.json")
    assert Policy.load(tmp_path / "policy.json") == policy


def test_its_views_keep_size_and_type(recipe: Recipe) -> None:
    side = recipe.image_size or 32
    pixels = np.random.default_rng(1).integers(0, 256, (2, 3, side, side), dtype=np.uint8)
    images = torch.from_numpy(pixels)
    for subpolicy in sample_pool(recipe, 6, seed=3):
        view = apply_subpolicy(subpolicy, images, np.arange(2), 3, 0)
        assert (view.shape, view.dtype) == (images.shape, torch.uint8)


def test_it_comes_back_from_toml(recipe: Recipe, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(toml_of(recipe))
    assert get_recipe(file) == recipe
    file.write_text(f'base = "{recipe.name}"\nname = "{recipe.name}"\n')
    assert get_recipe(file) == recipe


def test_each_of_its_transforms_can_be_left_out(recipe: Recipe) -> None:
    for name in recipe.transforms:
        assert name in TRANSFORMS
        assert name not in recipe.without([name]).transforms


def toml_of(recipe: Recipe) -> str:
    """Write a recipe as a user would."""
    lines = [f"name = {json.dumps(recipe.name)}", f"transforms = {json.dumps(recipe.transforms)}"]
    if recipe.image_size is not None:
        lines.append(f"image_size = {recipe.image_size}")
    for end in ("start", "finish"):
        step: Step | None = getattr(recipe, end)
        if step is not None:
            lines.append(
                f'{end} = {{ transform = "{step.transform}", magnitude = {step.magnitude} }}'
            )
    for group in recipe.groups:
        lines += ["[[groups]]", f"count = {group.count}", f"length = {group.length}"]
        lines.append(f"magnitude = {group.magnitude}")
        lines += [] if group.start is None else [f"start = {group.start}"]
    return "\n".join(lines)
