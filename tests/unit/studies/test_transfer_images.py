"""Which images are left when several searches have looked at a data set."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support import refused
from tests.unit.policy_search.searched_run import SearchedRun, searched_run

from relook.data import Dataset
from relook.errors import RelookError
from relook.io.files import write_json_atomic
from relook.io.fingerprint import fingerprint
from relook.numerics.splits import stratified_split
from relook.policy_search.run_record import SEARCHED, SEARCHED_FORMAT
from relook.studies.transfer_images import unseen_images


@pytest.fixture
def run(tmp_path: Path) -> SearchedRun:
    return searched_run(tmp_path)


def list_searched(run: SearchedRun, images: list[str]) -> None:
    write_json_atomic(run.path / SEARCHED, {"format": SEARCHED_FORMAT, "images": images})


def resized(dataset: Dataset) -> Dataset:
    return replace(dataset, images=dataset.plain[:, :, ::2, ::2].contiguous())


def test_a_run_leaves_its_held_out_images(run: SearchedRun) -> None:
    left = unseen_images(run.dataset, run.data, [run.policy])
    np.testing.assert_array_equal(left, run.held_out)
    list_searched(run, run.dataset.subset(run.search).image_fingerprints())
    np.testing.assert_array_equal(unseen_images(run.dataset, run.data, [run.policy]), left)


def test_several_searches_leave_what_none_of_them_saw(run: SearchedRun, tmp_path: Path) -> None:
    other = searched_run(_made(tmp_path / "other"))
    record = json.loads((other.path / "run.json").read_text())
    search, held_out = stratified_split(other.dataset.labels, 1 / 3, 7)
    record["settings"]["seed"] = 7
    record["split"]["held_out_fingerprint"] = fingerprint(held_out)
    write_json_atomic(other.path / "run.json", record)
    left = unseen_images(run.dataset, run.data, [run.policy, other.policy])
    np.testing.assert_array_equal(left, np.intersect1d(run.held_out, held_out))
    assert 4 <= len(left) < len(held_out)
    assert not set(left) & set(search)


def test_nothing_left_is_refused(run: SearchedRun) -> None:
    list_searched(run, run.dataset.image_fingerprints())
    with pytest.raises(RelookError, match=r"at least 4 images that no policy .* got 0"):
        unseen_images(run.dataset, run.data, [run.policy])


def test_a_policy_without_a_record_saw_nothing(run: SearchedRun, tmp_path: Path) -> None:
    alone = tmp_path / "alone.json"
    alone.write_bytes(run.policy.read_bytes())
    assert len(unseen_images(run.dataset, run.data, [alone])) == len(run.dataset)


def test_searched_images_are_found_in_another_data_set(run: SearchedRun) -> None:
    list_searched(run, run.dataset.subset(run.search).image_fingerprints())
    part = run.dataset.subset(np.arange(50))
    left = unseen_images(part, "npz:elsewhere.npz", [run.policy])
    np.testing.assert_array_equal(left, np.setdiff1d(np.arange(50), run.search))


def test_the_same_files_at_another_size_are_known_by_their_split(run: SearchedRun) -> None:
    list_searched(run, run.dataset.subset(run.search).image_fingerprints())
    small = resized(run.dataset)
    np.testing.assert_array_equal(unseen_images(small, run.data, [run.policy]), run.held_out)
    assert len(unseen_images(small, "npz:elsewhere.npz", [run.policy])) == len(small)
    mixed = replace(small, labels=np.roll(small.labels, 1))
    refused("cannot be known: give other images", unseen_images, mixed, run.data, [run.policy])


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def test_images_are_compared_by_their_pixels(run: SearchedRun) -> None:
    changed = replace(run.dataset, images=torch.bitwise_xor(run.dataset.plain, 1))
    list_searched(run, run.dataset.image_fingerprints())
    assert len(unseen_images(changed, "npz:elsewhere.npz", [run.policy])) == len(changed)
