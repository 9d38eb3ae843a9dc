"""From a search to its model, and the page that shows how."""

import copy
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support import refused
from tests.unit.data.marked_images import TURNED
from tests.unit.deploy.tta_cases import fixed_policy, network, some_images
from tests.unit.evaluation.compare_cases import pictures
from tests.unit.report.example_run import example_comparison
from torch import nn

import relook
from relook.data import load_data
from relook.deploy.recommended import deployed
from relook.evaluation.baselines import BASELINES
from relook.evaluation.compare import compare
from relook.models import CallablePredictor, EnsemblePredictor, TorchPredictor
from relook.models.describe import network_mark
from relook.models.small import new_small
from relook.policy.recipes import RECIPES
from relook.transforms.centre_crop import CentreCrop

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "deploy.md"


@pytest.mark.filterwarnings("ignore:only .* images", "ignore:.*which is chance")
def test_a_search_gives_its_model() -> None:
    digits = load_data("digits")
    names = [f"digit {i}" for i in range(10)]
    found = relook.search(
        *(new_small(seed=1), digits.plain[:120], digits.labels[:120]),
        recipe="small",
        pool_size=6,
        length=3,
        classes=names,
        mean=0.1,
    )
    model = found.tta(views=2)
    expected = relook.TTA(new_small(seed=1), found.policy, views=2, mean=0.1)
    images = digits.plain[200:210]
    torch.testing.assert_close(model(images), expected(images))
    assert model.predict(images)[0] in names
    refused("expected images of 32×32", model, images[:, :, :24, :24])
    method = found.comparison.verdict.recommended_method
    assert method == "plain"  # a network that has learned nothing
    with pytest.warns(UserWarning, match="the model takes the plain image, as the verdict"):
        advised = found.tta()
    assert advised.views == 1
    row = found.comparison.row("plain", 1)
    assert row is not None
    assert row.fitted is not None
    assert advised.temperature == row.fitted.temperature
    assert found.tta(method="policy").policy == found.policy
    with pytest.warns(DeprecationWarning, match=r"called \.tta\(\) now"):
        assert found.model(views=2).policy == model.policy
    refused(r"relook\.TTA\(model, policy\)", replace(found, job=None).tta, views=2)


def test_temperatures_of_another_network_are_not_applied_silently(tmp_path: Path) -> None:
    own, other, images = new_small(seed=1), new_small(seed=2), load_data("digits").plain[:20]
    tta = relook.TTA(own, fixed_policy(), temperature=None, mean=0.1)
    policy = tta.calibrate(images, torch.arange(20) % 10).policy
    policy.save(tmp_path / "policy.json")
    policy = relook.Policy.load(tmp_path / "policy.json")
    told = "temperatures were fitted on another model:  relook calibrate"
    with pytest.warns(UserWarning, match=told):
        relook.TTA(other, policy)
    with pytest.warns(UserWarning, match=told):
        relook.export(other, policy, tmp_path / "m.pt2", format="torch-export", size=32, channels=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relook.TTA(other, policy, temperature=None)
        relook.TTA(other, replace(policy, temperatures=None), temperature=1.5)
        for same in (
            TorchPredictor(own, std=0.5),
            nn.Sequential(own).double(),
            copy.deepcopy(own).half(),
            copy.deepcopy(own).bfloat16(),
            CallablePredictor(own, outputs="logits"),  # which network it is cannot be known
        ):
            relook.TTA(same, policy)
    members = TorchPredictor(own), TorchPredictor(other)
    marks = {network_mark(EnsemblePredictor(two)) for two in (members, members[::-1])}
    assert len(marks) == 2
    assert None not in marks


def test_the_page_s_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fixed_policy().save("policy.json")
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, Any] = {"network": network(), "images": some_images()}
    exec(compile(example, PAGE.name, "exec"), scope)  # noqa: S102
    assert scope["probabilities"].shape == (10, 7)


# What the verdict recommends is what is deployed


def verdict_of(method: str, views: int) -> Any:
    """A comparison of four turns that recommends this, and the policy that it is about."""
    corner = CallablePredictor(lambda images: images[:, 0, 0, :3] / 99, outputs="logits", classes=3)
    found = compare(
        corner,
        pictures(),
        replace(TURNED, temperatures=(1.1, 1.2, 1.3, 1.4)),
        recipe="small",
        budgets=(1, 2, 4),
        methods=("plain", "flip", "cf"),
        measure_cost=False,
    )
    chosen = replace(found.verdict, recommended_method=method, recommended_views=views)
    return replace(found, verdict=chosen)


@pytest.mark.parametrize(
    ("method", "views", "whole"),
    [
        ("gps", 4, True),
        ("gps", 2, False),
        ("plain", 1, False),
        ("flip", 2, False),
        ("cf", 4, False),
    ],
)
def test_each_recommendation_is_deployed(method: str, views: int, whole: bool) -> None:
    comparison = verdict_of(method, views)
    policy, recipe = comparison.policy, RECIPES["small"]
    found = deployed(policy, comparison, recipe)
    assert (found.by_verdict, found.whole, found.policy.views) == (True, whole, views)
    redrawn = "(drawn once; the comparison drew views for each image)" in found.text
    assert redrawn == (method == "cf")
    if method == "gps":
        assert found.policy == policy[:views]
        assert found.temperature == "policy"
        return
    row = comparison.row(method, views)
    assert found.policy.subpolicies == BASELINES[method].policy(recipe, views).subpolicies
    assert (found.policy.view_temperature, found.temperature) == (
        row.fitted.view_temperature,
        row.fitted.temperature,
    )


def test_method_and_views_overrule_the_verdict() -> None:
    comparison = verdict_of("plain", 1)
    policy, recipe = comparison.policy, RECIPES["small"]
    whole = deployed(policy, comparison, recipe, "policy")
    assert (whole.policy, whole.whole, whole.by_verdict) == (policy, True, False)
    assert deployed(policy, comparison, recipe, views=2).policy == policy[:2]
    assert deployed(policy, comparison, recipe, "policy", 2).policy == policy[:2]
    assert deployed(policy, comparison, recipe, "crops", 3).policy.views == 3
    assert deployed(policy, comparison, recipe, "10c").temperature == "policy"  # not compared
    refused("unknown method 'flop'", deployed, policy, comparison, recipe, "flop")
    refused(
        "method 'flip': expected 2 views, got 3", deployed, policy, comparison, recipe, "flip", 3
    )


def test_a_comparison_of_another_policy_recommends_nothing() -> None:
    comparison = verdict_of("plain", 1)
    other = comparison.policy[1:]
    found = deployed(other, comparison, RECIPES["small"])
    assert (found.policy, found.by_verdict) == (other, False)


@pytest.mark.parametrize(
    ("views", "settings", "problem"),
    [
        (10**9, {}, "expected a number of views up to 10,000, got 1000000000"),
        (3, {"randaugment": 5}, "settings.randaugment: expected an object with length"),
        (3, {"randaugment": {"steps": 2}}, "settings.randaugment: unknown key 'steps'"),
    ],
)
def test_a_strange_recommendation_is_refused(
    views: int, settings: dict[str, Any], problem: str
) -> None:
    found = example_comparison(settings=settings)
    advised = replace(found.verdict, recommended_method="cf", recommended_views=views)
    strange = replace(found, verdict=advised)
    refused(problem, deployed, found.policy, strange, RECIPES["small"])


@pytest.mark.parametrize(
    "change",
    [
        {"view_temperature": 2.0},
        {"temperatures": (1.1, 1.2, 1.3, 1.5)},
        {"preparation": CentreCrop((16, 16), 0.875, 1)},
    ],
)
def test_a_comparison_is_of_the_policy_that_was_compared_alone(change: dict[str, Any]) -> None:
    comparison, recipe = verdict_of("plain", 1), RECIPES["small"]
    same = replace(comparison.policy, seen=b"", fitted_on="torch " + 32 * "0")
    assert deployed(same, comparison, recipe).policy.views == 1
    other = deployed(replace(comparison.policy, **change), comparison, recipe)
    assert (other.by_verdict, other.policy.views) == (False, 4)
