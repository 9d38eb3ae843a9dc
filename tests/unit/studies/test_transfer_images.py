"""Which images are left when several searches have looked at a data set."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support import refused
from tests.unit.policy_search.searched_run import SearchedRun, searched_run

from relook.data import Dataset
from relook.io.files import write_json_atomic
from relook.io.fingerprint import fingerprint
from relook.io.identities import set_of
from relook.numerics.splits import stratified_split
from relook.policy import Policy
from relook.studies.transfer_targets import unseen_images


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
