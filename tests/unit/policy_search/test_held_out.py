import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import refused
from tests.unit.policy_search.searched_run import searched_run

from relook.data import Preparation, load_data
from relook.errors import FileFormatError, RunError
from relook.numerics.splits import Shares
from relook.policy.recipes import RECIPES
from relook.policy_search.job import held_out_split
from relook.policy_search.run_record import held_out_part, load_run, recorded_recipe


def change(run: Path, path: tuple[str, ...], value: object) -> None:
    file = run / "run.json"
    content: Any = json.loads(file.read_text())
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file.write_text(json.dumps(content))


def test_the_images_that_a_search_held_out_are_found_again(tmp_path: Path) -> None:
    run = searched_run(tmp_path)
    found = held_out_part(run.policy, load_data(run.data))
    assert found is not None
    np.testing.assert_array_equal(found.split.held_out, run.held_out)
    np.testing.assert_array_equal(found.split.search, run.search)
    assert sorted([*found.split.search, *found.split.held_out]) == list(range(90))


def test_the_images_are_the_same_however_they_are_read(tmp_path: Path) -> None:
    run = searched_run(tmp_path)
    change(run.path, ("data", "source"), run.dataset.source_fingerprint)
    found = held_out_part(run.policy, load_data(run.data, Preparation((20, 20), 0.9, channels=3)))
    assert found is not None
    np.testing.assert_array_equal(found.split.held_out, run.held_out)
    classes = replace(run.dataset, labels=9 - run.dataset.labels)  # may be split otherwise
    assert held_out_part(run.policy, classes) is None


def test_an_image_that_is_searched_too_is_not_held_out(tmp_path: Path) -> None:
    run = searched_run(tmp_path)
    twin = run.dataset.identities.copy()
    twin[run.held_out[:3]] = twin[run.search[:3]]
    split = held_out_split(replace(run.dataset, identities=twin), Shares(1 / 3), 0)
    np.testing.assert_array_equal(split.search, run.search)
    np.testing.assert_array_equal(split.held_out, run.held_out[3:])


def test_groups_of_the_search_are_found_again(tmp_path: Path) -> None:
    run = searched_run(tmp_path, grouped=True)
    found = held_out_part(run.policy, load_data(run.data))  # --group is not said again
    assert found is not None
    np.testing.assert_array_equal(found.split.held_out, run.held_out)
    assert found.dataset.groups is not None


def test_other_images_are_all_new(tmp_path: Path) -> None:
    run = searched_run(tmp_path)
    assert held_out_part(run.policy, load_data("digits:train")) is None


def test_a_policy_without_a_record_says_nothing(tmp_path: Path) -> None:
    run = searched_run(tmp_path)
    lonely = tmp_path / "elsewhere" / "policy.json"
    lonely.parent.mkdir()
    lonely.write_bytes(run.policy.read_bytes())
    assert held_out_part(lonely, run.dataset) is None


def test_a_search_with_a_test_set_has_seen_all_of_its_own(tmp_path: Path) -> None:
    run = searched_run(tmp_path, test="digits:train")
    refused("was searched on all images of", held_out_part, run.policy, run.dataset)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("settings", "seed"), 1, "held-out images do not follow"),
        (("settings", "holdout"), 0.5, "held-out images do not follow"),
        (("settings", "holdout"), "x", "expected the held-out share and the seed"),
        (("settings", "left_out"), "x", "expected the share of images that were left out"),
        (("settings", "left_out"), 0.5, "held-out images do not follow"),
        (("split", "held_out_fingerprint"), None, "held-out images do not follow"),
    ],
)
def test_a_damaged_record_is_refused(
    tmp_path: Path, path: tuple[str, ...], value: object, message: str
) -> None:
    run = searched_run(tmp_path)
    change(run.path, path, value)
    with pytest.raises(RunError, match=message) as caught:
        held_out_part(run.policy, run.dataset)
    assert "run.json" in str(caught.value)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    run = searched_run(tmp_path)
    change(run.path, ("format",), "x")
    with pytest.raises(FileFormatError, match=r"run\.json: expected a run's record .*, got \"x\""):
        held_out_part(run.policy, run.dataset)


def test_the_recipe_comes_back_with_what_was_excluded(tmp_path: Path) -> None:
    run = searched_run(tmp_path)
    found = recorded_recipe(load_run(run.path))
    assert found == RECIPES["small"].without(["cutout"])


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_comes_back_as_it_was(tmp_path: Path, name: str) -> None:
    run = searched_run(tmp_path)
    change(run.path, ("settings", "recipe"), RECIPES[name].to_json())
    assert recorded_recipe(load_run(run.path)) == RECIPES[name]


@pytest.mark.parametrize("value", [None, "small", {}, {"name": "x"}, {"groups": [1]}])
def test_a_damaged_recipe_is_refused(tmp_path: Path, value: object) -> None:
    run = searched_run(tmp_path)
    change(run.path, ("settings", "recipe"), value)
    refused("expected a recipe", recorded_recipe, load_run(run.path), error=RunError)
