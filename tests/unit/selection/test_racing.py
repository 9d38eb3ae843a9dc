import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support import refused

import relook.selection.racing
from relook.data import load_data
from relook.errors import RelookError, RunError
from relook.models import TorchPredictor
from relook.models.small import new_small
from relook.policy.recipes import get_recipe
from relook.policy_search.search import search_dataset
from relook.policy_search.settings import SearchSettings
from relook.selection import greedy_search
from relook.selection.racing import (
    most_passes,
    pilots_of,
    places_after,
    race,
    round_sizes,
    survivors,
)

IMAGES, CLASSES, LENGTH = 1600, 4, 6
GOOD = (3, 17, 42)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relook.selection.racing, "RESAMPLES", 3)


def pool_of(seed: int, candidates: int = 80) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Make a pool in which three candidates are good, each on its own kind of hard image."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, IMAGES)
    kind = np.arange(IMAGES) % (2 * len(GOOD))  # half of the images are easy
    logits = generator.normal(size=(candidates, IMAGES, CLASSES))
    strength = np.where(kind < len(GOOD), 0.5, 6.0) * np.ones((candidates, 1))
    for place, candidate in enumerate(GOOD):
        if candidate < candidates:
            strength[candidate, kind == place] = 4.0
    logits[:, np.arange(IMAGES), labels] += strength
    top = logits.max(axis=-1, keepdims=True)
    log_probs = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    return log_probs.astype(np.float32), labels.astype(np.int64)


class Asked:
    """Serves stored predictions, and remembers what it was asked for."""

    def __init__(self, log_probs: NDArray[np.float32]) -> None:
        self.log_probs = log_probs
        self.count = np.zeros(log_probs.shape[:2], dtype=int)
        self.names: list[str] = []

    def __call__(
        self, name: str, which: NDArray[np.int64], images: NDArray[np.int64], report: object
    ) -> NDArray[np.float32]:
        self.names.append(name)
        self.count[np.ix_(which, images)] += 1
        return self.log_probs[np.ix_(which, images)]


def test_a_race_asks_once_and_keeps_what_complements() -> None:
    for seed in range(2):
        log_probs, labels = pool_of(seed)
        asked = Asked(log_probs)
        result = race(asked, labels, len(log_probs), LENGTH, seed=seed)
        full = greedy_search(log_probs, labels, LENGTH)
        assert set(full.picks) >= set(GOOD)  # the pool is what it is meant to be
        assert set(GOOD) <= set(result.survivors.tolist())
        np.testing.assert_array_equal(result.log_probs, log_probs[result.survivors])
        assert asked.count.max() == 1
        assert (asked.count[result.survivors] == 1).all()
        assert asked.count.sum() == result.passes
        assert result.passes <= most_passes(IMAGES, len(log_probs), LENGTH)
        assert result.full_passes / result.passes > 4
        assert asked.names == ["pilots", "1", "2", "3", "4"]


def test_what_is_to_be_kept_is_a_pilot_and_stays() -> None:
    log_probs, labels = pool_of(0)
    asked = Asked(log_probs)
    result = race(asked, labels, len(log_probs), LENGTH, kept=(60, 61, 62))
    assert {60, 61, 62} <= set(result.survivors.tolist())
    assert (asked.count[60:63] == 1).all()
    assert asked.count.sum() == result.passes
    assert result.passes <= most_passes(IMAGES, len(log_probs), LENGTH, 3)
    assert len(result.survivors) <= places_after(2, 3, len(log_probs), LENGTH)


def test_the_seed_decides_everything() -> None:
    log_probs, labels = pool_of(0)
    one, same, other = (race(Asked(log_probs), labels, 80, LENGTH, seed=s) for s in (1, 1, 2))
    assert one.survivors.tolist() == same.survivors.tolist()
    assert one.rounds == same.rounds
    assert one.survivors.tolist() != other.survivors.tolist()


def test_few_images_mean_fewer_rounds_and_none_at_the_least() -> None:
    assert round_sizes(1600) == (100, 200, 400)
    assert round_sizes(1080) == (135, 270)
    assert round_sizes(400) == (100,)
    assert round_sizes(390) == ()
    log_probs, labels = pool_of(0)
    small = race(Asked(log_probs[:, :100]), labels[:100], 80, LENGTH)
    assert small.survivors.tolist() == list(range(80))
    assert small.passes == small.full_passes == 80 * 100
    np.testing.assert_array_equal(small.log_probs, log_probs[:, :100])


def test_who_stays() -> None:
    votes = np.array([0.0, 3.0, 1.0, 3.0, 9.0, 0.0])
    alive = np.array([0, 1, 2, 3, 5])
    assert survivors(alive, votes, 2).tolist() == [1, 3]
    assert survivors(alive, votes, 1).tolist() == [1]
    assert survivors(alive, votes, 9).tolist() == [1, 2, 3]
    assert places_after(0, 3, 1000, 20) == 300
    assert places_after(2, 3, 100, 20) == 24  # never too few to choose from
    assert places_after(0, 2, 1000, 20) == 200
    assert places_after(0, 3, 10, 20) == 10


def test_pilots_are_spread_and_have_the_plain_image() -> None:
    assert pilots_of(201).tolist() == [0, 67, 133, 200]
    assert pilots_of(1).tolist() == [0]
    assert len(pilots_of(1101)) == 22


def test_progress_ends_at_what_was_announced() -> None:
    log_probs, labels = pool_of(0)
    told: list[tuple[int, int]] = []
    race(Asked(log_probs), labels, 80, LENGTH, progress=lambda d, t: told.append((d, t)))
    most = most_passes(IMAGES, 80, LENGTH)
    assert told == [(most, most)]


def test_what_a_race_cannot_do_is_said() -> None:
    log_probs, labels = pool_of(0, candidates=3)
    refused("at least 1 candidate", race, Asked(log_probs), labels, 0, LENGTH)
    with pytest.raises(RelookError, match="got a function; search without a race"):
        race(Asked(log_probs), labels, 3, LENGTH, objective=lambda log_probs, labels: 0.0)
    refused("got clll", race, Asked(log_probs), labels, 3, LENGTH, objective="clll")


@pytest.mark.parametrize(
    ("images", "raced", "chosen"), [(90, False, False), (90, True, False), (660, True, True)]
)
def test_the_selection_knows_whether_labels_chose_its_candidates(
    images: int, raced: bool, chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []

    def search(*given: Any, preselected: bool, **options: Any) -> Any:
        told.append(preselected)
        return greedy_search(*given, preselected=preselected, **options)

    monkeypatch.setattr("relook.selection.record.greedy_search", search)
    settings = SearchSettings(recipe=get_recipe("small"), length=2, pool_size=8, race=raced)
    digits = load_data("digits").subset(np.arange(images))
    search_dataset(TorchPredictor(new_small(seed=1)), digits, settings)
    assert told == [chosen]


def test_a_raced_search_is_recorded_and_can_be_resumed(tmp_path: Path) -> None:
    digits = load_data("digits").subset(np.arange(660))
    settings = SearchSettings(
        recipe=get_recipe("small"), length=3, pool_size=40, seed=1, batch=64, race=True
    )
    model = TorchPredictor(new_small(seed=1))
    first = search_dataset(model, digits, settings, run=tmp_path / "whole")
    assert first.race is not None
    assert first.race["passes"] < first.race["full_passes"] == 40 * 440
    assert [first.pool[pick] for pick in first.trace.picks] == list(first.policy)
    rounds = sorted(path.name for path in (tmp_path / "whole").glob("race-*"))
    assert rounds == ["race-1.zarr", "race-2.zarr", "race-pilots.zarr"]

    (tmp_path / "whole").rename(tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "race-2.zarr")
    whole = (tmp_path / "cut" / "policy.json").read_bytes()
    (tmp_path / "cut" / "policy.json").unlink()
    again = search_dataset(model, digits, settings, run=tmp_path / "cut")
    assert (tmp_path / "cut" / "policy.json").read_bytes() == whole
    assert again.trace == first.trace
    with pytest.raises(RunError, match="race: true there, false here"):
        search_dataset(model, digits, replace(settings, race=False), run=tmp_path / "cut")
