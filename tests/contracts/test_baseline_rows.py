"""What every row of BASELINES promises; a new row enrols itself."""

import numpy as np
import pytest

from relook.evaluation.baselines import BASELINES, Baseline, Options
from relook.policy import DrawKind, Policy
from relook.policy.recipes import RECIPES
from relook.testing import check_baseline

OPTIONS = Options(grid_magnitude=25.0)

every_baseline = pytest.mark.parametrize("row", BASELINES.values(), ids=BASELINES)
ANY_NUMBER = {name: row for name, row in BASELINES.items() if row.budget is None}
RANDOM = {name: row for name, row in BASELINES.items() if row.random}
every_recipe = pytest.mark.parametrize("recipe", RECIPES)
every_kind = pytest.mark.parametrize("draws", ["fixed", "fresh"])


def made(
    row: Baseline, recipe: str, draws: DrawKind, views: int | None = None, seed: int = 3
) -> Policy:
    wanted = row.budget or 6 if views is None else views
    return row.policy(RECIPES[recipe], wanted, seed, draws, OPTIONS)


@every_baseline
def test_keeps_its_promises(row: Baseline) -> None:
    check_baseline(row)


@every_baseline
@every_recipe
@every_kind
def test_says_which_recipe_it_follows(row: Baseline, recipe: str, draws: DrawKind) -> None:
    assert made(row, recipe, draws).recipe == recipe


@pytest.mark.parametrize("row", ANY_NUMBER.values(), ids=ANY_NUMBER)
@every_recipe
@every_kind
def test_fewer_views_are_the_beginning_of_more(row: Baseline, recipe: str, draws: DrawKind) -> None:
    most = made(row, recipe, draws, views=20)
    for views in (1, 2, 5, 19):
        fewer = made(row, recipe, draws, views=views)
        assert fewer.subpolicies == most.subpolicies[:views]


@every_baseline
@every_recipe
@every_kind
def test_follows_from_the_seed_alone(row: Baseline, recipe: str, draws: DrawKind) -> None:
    np.random.seed(0)  # noqa: NPY002  # the global generator must not matter
    first = made(row, recipe, draws)
    before = np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    second = made(row, recipe, draws)
    assert second == first
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]  # noqa: NPY002
    other = made(row, recipe, draws, seed=4)
    if not row.random:
        assert other.subpolicies == first.subpolicies
    elif draws == "fixed":
        assert not set(other) & (set(first) - {sub for sub in first if sub.is_plain})


@pytest.mark.parametrize("row", RANDOM.values(), ids=RANDOM)
def test_leaves_mirror_images_out_with_the_recipe(row: Baseline) -> None:
    policies = [
        row.policy(RECIPES[recipe].without(["flip"]), 12, 0, "fixed", OPTIONS)
        for recipe in ("cifar", "imagenet")
    ]
    names = {step.transform for policy in policies for sub in policy for step in sub.all_steps}
    assert not any(name.endswith("flip") for name in names)
