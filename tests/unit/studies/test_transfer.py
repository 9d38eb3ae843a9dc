"""Transfer on a network whose calibrated log-likelihood can be written down by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import different, refused
from tests.unit.policy_search.searched_run import SearchedRun, searched_run
from tests.unit.studies.brightness_model import ByBrightness
from tests.unit.studies.shown import drawn, printed

from relook.data import Dataset
from relook.errors import RelookError
from relook.evaluation.baselines import BASELINES
from relook.evaluation.results import Result, Results
from relook.io.files import write_json_atomic
from relook.io.fingerprint import fingerprint
from relook.io.identities import set_of
from relook.numerics.splits import halvings, stratified_split
from relook.policy import Policy, Step, SubPolicy
from relook.policy.recipes import RECIPES
from relook.report.latex import latex
from relook.studies.transfer import (
    STUDY,
    foreign,
    matrix,
    sentence,
    shown,
    transfer,
    views_drawing,
)
from relook.studies.transfer_targets import Target, unseen_images

IMAGES = 80
MIRROR = Policy((SubPolicy((Step("flip", 0),)),), recipe="cifar")
# Pixels of 215 and more are inverted: a bright image of 230 becomes dark, one of 200 stays.
DARKER = Policy((SubPolicy((Step("solarize", (256 - 215) * 15 / 64),)),), recipe="cifar")


def levels_and_labels(wrong: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return grey levels and labels: so many of the plain images' predictions are wrong."""
    levels = np.array([50, 200, 230, 50, 200, 50, 200, 50] * (IMAGES // 8))
    labels = (levels > 127).astype(np.int64)
    labels[np.arange(wrong) * (IMAGES // wrong)] ^= 1
    return levels, labels


def dataset(wrong: int, name: str = "levels", channels: int = 3) -> Dataset:
    levels, labels = levels_and_labels(wrong)
    images = torch.from_numpy(levels.astype(np.uint8))[:, None, None, None]
    images = images.expand(-1, channels, 32, 32).contiguous()
    return Dataset(images, labels, ("dark", "bright"), name, identities=different(IMAGES))


def right(wrong: int, policy: Policy) -> np.ndarray[Any, Any]:
    """Return by hand which images a policy of one view gets right."""
    levels, labels = levels_and_labels(wrong)
    seen = np.where((policy is DARKER) & (levels >= 215), 255 - levels, levels)
    return np.asarray((seen > 127) == labels)


def likelihoods(hits: np.ndarray[Any, Any], seed: int = 0) -> np.ndarray[Any, Any]:
    """Return each image's cLL: a half with a share r of hits turns 80 % into r."""
    total = np.zeros(len(hits))
    pairs = halvings(len(hits), 5, seed)
    for calibrate, score in pairs:
        share = hits[calibrate].mean()
        assert 0.55 < share < 1  # the temperature that gives r is within its bounds
        total[score] += np.where(hits[score], math.log(share), math.log(1 - share)) / 5
    return total


def study(**options: Any) -> Results:
    arguments: dict[str, Any] = {
        "budgets": (1,),
        "methods": ["plain"],
        "protocol": "paper",
        **options,
    }
    targets = [
        Target("one", ByBrightness(), dataset(8), own="mirror"),
        Target("two", ByBrightness(), dataset(16, "others"), own="darker"),
    ]
    return transfer(targets, {"mirror": MIRROR, "darker": DARKER}, **arguments)


@pytest.mark.parametrize(
    ("target", "wrong", "own", "other"),
    [("one", 8, ("mirror", MIRROR), ("darker", DARKER)),
     ("two", 16, ("darker", DARKER), ("mirror", MIRROR))],
)  # fmt: skip
def test_the_change_is_foreign_minus_own_by_hand(
    target: str, wrong: int, own: tuple[str, Policy], other: tuple[str, Policy]
) -> None:
    found = study().where(model=target)
    cell, mine = found.where(method=other[0]), found.where(method=own[0])
    mine_right, their_right = right(wrong, own[1]), right(wrong, other[1])
    assert (mine_right != their_right).any()
    # Accuracy by counting, cLL with the calibrated chance of each half.
    assert mine.one(metric="accuracy").value == pytest.approx(mine_right.mean())
    change = cell.one(metric="accuracy", versus="own")
    assert change.value == pytest.approx(their_right.mean() - mine_right.mean())
    expected = likelihoods(their_right) - likelihoods(mine_right)
    assert mine.one(metric="cll").value == pytest.approx(likelihoods(mine_right).mean(), abs=1e-6)
    change = cell.one(metric="cll", versus="own")
    assert change.value == pytest.approx(expected.mean(), abs=1e-6)
    assert change.low is not None
    assert change.high is not None
    assert change.low <= expected.mean() <= change.high
    assert not mine.where(versus="own")


def test_own_policies_and_foreign_ones_are_told_apart() -> None:
    found = study()
    assert {(one.rows[0]["method"], one.rows[0]["model"]) for one in foreign(found)} == {
        ("mirror", "two"),
        ("darker", "one"),
    }
    assert [target["own"] for target in found.settings["targets"]] == ["mirror", "darker"]
    assert [target["images"] for target in found.settings["targets"]] == [IMAGES, IMAGES]
    assert found.values("images") == [IMAGES]
    assert "on average over 2 pairs" in found.sentence


def test_policies_are_compared_at_equal_distinct_views() -> None:
    plain = SubPolicy()
    short = Policy((*MIRROR, *MIRROR, plain, *MIRROR), recipe="cifar")  # two distinct views
    long = Policy((*DARKER, *MIRROR, plain), recipe="cifar")
    found = transfer(
        [Target("one", ByBrightness(), dataset(8), own="short")],
        {"short": short, "long": long},
        budgets=(1, 2, 5),
    )
    assert found.settings["budgets"] == found.values("budget") == [1, 2]
    assert found.settings["asked_budgets"] == [1, 2, 5]
    for row in found.where(kind="policy").rows:
        assert row["views"] == row["budget"]
    # The repeats of the two views count: flip, flip, plain, flip.
    two = found.one(method="short", budget=2, metric="accuracy")
    assert two.value == pytest.approx(0.9)


def test_a_target_without_a_policy_of_its_own_is_held_against_crops() -> None:
    found = transfer(
        [Target("large", ByBrightness(), dataset(8))],
        {"small": DARKER},
        budgets=(1,),
    )
    cell, crops = found.where(method="small"), found.where(method="cf")
    assert not cell.where(versus="own")
    assert shown(cell) == cell.one(metric="cll", versus="crops")
    assert not crops.where(versus="crops")
    change = cell.one(metric="accuracy", versus="crops").value
    assert change == pytest.approx(
        cell.one(metric="accuracy").value - crops.one(metric="accuracy").value
    )
    assert "the policy of small on large" in found.sentence


def test_a_difference_to_crops_and_plain_is_there_for_all() -> None:
    found = study(methods=["plain", "cf", "flip"])
    baselines = found.where(kind="baseline").values("method")
    assert baselines == ["plain", "cf"]  # a mirror image besides takes two views
    assert "flip on one" in found.settings["left_out"]
    change = found.one(method="darker", model="one", metric="accuracy", versus="plain")
    assert change.value == pytest.approx(right(8, DARKER).mean() - right(8, MIRROR).mean())


def test_fresh_policies_have_runs() -> None:
    fresh = BASELINES["cf"].policy(RECIPES["cifar"], 2, seed=3, draws="fresh")
    noisy = dataset(8)
    images = torch.randint(0, 256, noisy.plain.shape, generator=torch.manual_seed(0))
    noisy = replace(noisy, images=images.to(torch.uint8))
    found = transfer(
        [Target("one", ByBrightness(), noisy, own="fresh")],
        {"fresh": fresh, "mirror": Policy((*MIRROR, *DARKER), recipe="cifar")},
        budgets=(2,),
        runs=3,
    )
    assert found.one(method="fresh", metric="cll").deviation > 0
    assert found.one(method="mirror", metric="cll").deviation == 0


def test_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    def run(predictor: ByBrightness, path: Path | None) -> Results:
        return transfer(
            [Target("one", predictor, dataset(8), own="mirror")],
            {"mirror": MIRROR, "darker": DARKER},
            budgets=(1,),
            store_path=path,
            batch=16,
        )

    with pytest.raises(KeyboardInterrupt):
        run(ByBrightness(stop_at=9), tmp_path)
    rest, whole = ByBrightness(), ByBrightness()
    assert run(rest, tmp_path) == run(whole, None)
    assert 0 < rest.calls < whole.calls
    again = ByBrightness()
    run(again, tmp_path)
    assert again.calls == 1  # whether the model still answers the same


def test_progress_counts_every_pass_once() -> None:
    seen: list[tuple[int, int]] = []
    small = dataset(8).subset(np.arange(40))
    transfer(
        [
            Target("one", ByBrightness(), dataset(8), own="mirror"),
            Target("two", ByBrightness(), small),
        ],
        {"mirror": MIRROR},
        budgets=(1,),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    # Three views (plain, a crop, the mirror image) of 80 and of 40 images.
    assert seen[-1] == (360, 360)


def test_tables_hold_the_matrix() -> None:
    found = study()
    change = found.one(method="darker", model="one", metric="cll", versus="own").value
    figure = f"{change:+.4f}".replace("-", "−")
    text = printed(matrix(found))
    assert figure in text
    assert "own −0." in text
    assert "[" not in printed(matrix(found, "accuracy"), 50)
    assert f"| {figure} [" in STUDY.markdown(found).replace("**", "")
    lines = found.where(metric="cll", versus=None).to_csv().splitlines()
    assert len(lines) == 1 + 2 * 3  # two targets, each with two policies and a baseline
    assert lines[1].startswith("transfer,one,levels,mirror,mirror,1,1,policy,True,80,cll,")
    made = latex(matrix(found))
    assert figure.replace("−", "$-$") in made
    assert made.count(r"\\") == 2 + 3


def test_names_cannot_break_tables() -> None:
    found = transfer([Target("a|b_&", ByBrightness(), dataset(8))], {"=p|1": MIRROR}, budgets=[1])
    assert "'=p|1," in found.to_csv()
    assert r"=p\|1" in STUDY.markdown(found)
    assert r"a|b\_\&" in latex(matrix(found))


def test_figures_are_files_of_the_same_bytes(tmp_path: Path) -> None:
    found = study(methods=["plain", "cf"])
    assert drawn(STUDY, found, tmp_path) == ["transfer"]
    assert "its own policy -0.5948 (1)" in views_drawing(found, "two").description
    names = [drawing.name for drawing in STUDY.figures(found.labelled(own=False))]
    assert names == ["transfer", "transfer_views_1", "transfer_views_2"]


def test_wrong_requests_are_one_line() -> None:
    one = Target("one", ByBrightness(), dataset(8), own="mirror")
    refused("at least one model", transfer, [], {"mirror": MIRROR})
    refused("expected a policy", transfer, [one], {})
    refused("got 'one' twice", transfer, [one, one], {"mirror": MIRROR})
    refused("unknown policy 'mirror'", transfer, [one], {"mirrors": MIRROR})
    refused("a baseline's name", transfer, [replace(one, own=None)], {"cf": MIRROR})
    refused("at least 1 view", transfer, [one], {"mirror": MIRROR}, budgets=[0])


def test_policies_of_another_recipe_are_refused() -> None:
    one = Target("one", ByBrightness(), dataset(8))
    other = replace(DARKER, recipe="imagenet")
    refused(
        r"'darker': expected one of the recipe 'cifar'.*imagenet",
        transfer,
        [one],
        {"mirror": MIRROR, "darker": other},
    )
    refused("recipe 'small'", transfer, [one], {"mirror": MIRROR}, recipe="small")
    refused("which recipe", transfer, [one], {"mirror": replace(MIRROR, recipe=None)})


def test_other_channels_and_other_classes_are_refused() -> None:
    one = Target("one", ByBrightness(), dataset(8))
    grey = Target("grey", ByBrightness(), dataset(8, channels=1))
    refused(
        "same number of channels, got 3 for 'one' and 1", transfer, [one, grey], {"mirror": MIRROR}
    )
    three = replace(dataset(8), classes=("a", "b", "c"), labels=np.arange(IMAGES) % 3)
    with pytest.raises(RelookError, match="expected labels from 0 to 1"):
        transfer([Target("three", ByBrightness(), three)], {"mirror": MIRROR}, budgets=[1])


def test_counts_of_foreign_policies_hold_for_all_of_them_together() -> None:
    def said(policies: int) -> str:
        rows = []
        for number in range(policies):
            about = {"method": f"p{number}", "model": "m", "budget": 5, "kind": "policy"}
            versus = {"versus": "crops", "own": False}
            rows.append(Result("cll", 0.02, 0.001, 0.039, keys={**about, **versus}))
        return sentence(Results("transfer", tuple(rows)))

    assert "is better than random crops" in said(1)
    assert "better than random crops on 0 of 8, worse on 0" in said(8)


@pytest.fixture
def run(tmp_path: Path) -> SearchedRun:
    return searched_run(tmp_path)


def found_on(run: SearchedRun, images: Dataset, path: Path | None = None) -> Path:
    """Write the run's policy as one that was found on these images, in the run or elsewhere."""
    policy = replace(Policy.load(run.policy), seen=set_of(images.identities))
    policy.save(path or run.policy)
    return path or run.policy


def resized(dataset: Dataset) -> Dataset:
    return replace(dataset, images=dataset.plain[:, :, ::2, ::2].contiguous())


def test_a_run_leaves_its_held_out_images(run: SearchedRun) -> None:
    left = unseen_images(run.dataset, [run.policy])
    np.testing.assert_array_equal(left, run.held_out)
    found_on(run, run.dataset.subset(run.search))
    np.testing.assert_array_equal(unseen_images(run.dataset, [run.policy]), left)


def test_several_searches_leave_what_none_of_them_saw(run: SearchedRun, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = searched_run(tmp_path / "other")
    record = json.loads((other.path / "run.json").read_text())
    search, held_out = stratified_split(other.dataset.labels, 1 / 3, 7)
    record["settings"]["seed"] = 7
    record["split"]["held_out_fingerprint"] = fingerprint(held_out)
    write_json_atomic(other.path / "run.json", record)
    left = unseen_images(run.dataset, [run.policy, other.policy])
    np.testing.assert_array_equal(left, np.intersect1d(run.held_out, held_out))
    assert 4 <= len(left) < len(held_out)
    assert not set(left) & set(search)


def test_a_group_is_seen_with_one_of_its_images(run: SearchedRun, tmp_path: Path) -> None:
    images = replace(run.dataset, groups=np.arange(len(run.dataset)) // 3)
    policy = found_on(run, images.subset([0, 4]), tmp_path / "elsewhere.json")
    np.testing.assert_array_equal(unseen_images(images, [policy]), np.arange(6, len(images)))


def test_nothing_left_is_refused(run: SearchedRun) -> None:
    found_on(run, run.dataset)
    refused(r"at least 4 images that no policy .* got 0", unseen_images, run.dataset, [run.policy])


def test_a_policy_alone_says_what_it_was_found_on(run: SearchedRun, tmp_path: Path) -> None:
    alone = tmp_path / "alone.json"
    alone.write_bytes(run.policy.read_bytes())
    assert len(unseen_images(run.dataset, [alone])) == len(run.dataset)  # nobody can know
    found_on(run, run.dataset.subset(run.search), alone)
    np.testing.assert_array_equal(unseen_images(run.dataset, [alone]), run.held_out)


def test_searched_images_are_found_in_another_data_set(run: SearchedRun, tmp_path: Path) -> None:
    alone = found_on(run, run.dataset.subset(run.search), tmp_path / "alone.json")
    part = resized(run.dataset).subset(np.arange(50)[::-1])
    left = unseen_images(part, [alone])
    np.testing.assert_array_equal(np.sort(49 - left), np.setdiff1d(np.arange(50), run.search))


def test_other_labels_are_the_same_images(run: SearchedRun) -> None:
    found_on(run, run.dataset.subset(run.search))
    mixed = resized(replace(run.dataset, labels=np.roll(run.dataset.labels, 1)))
    np.testing.assert_array_equal(unseen_images(mixed, [run.policy]), run.held_out)
