"""Searches that start from policies found before."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import refused

from relook.data import load_data
from relook.io.identities import UNKNOWN, is_in, set_of
from relook.models import TorchPredictor
from relook.models.small import new_small
from relook.policy import Policy, Step, SubPolicy
from relook.policy.pool import quasi_random_views
from relook.policy.recipes import get_recipe
from relook.policy_search.job import plan_search
from relook.policy_search.notes import search_notes
from relook.policy_search.search import search_dataset
from relook.policy_search.settings import SearchSettings

RECIPE = get_recipe("small")
SETTINGS = SearchSettings(recipe=RECIPE, length=3, pool_size=12, batch=64)
DIGITS = load_data("digits").subset(np.arange(120))
OWN = tuple(SubPolicy((Step("invert", m),)) for m in (0, 1, 2))
START = Policy((OWN[0], *quasi_random_views(RECIPE, 3), OWN[1], OWN[0]), seen=b"")


def changed(**changes: Any) -> SearchSettings:
    return replace(SETTINGS, **changes)


def model() -> TorchPredictor:
    return TorchPredictor(new_small(seed=1))


def test_views_found_before_come_after_the_quasi_random_ones() -> None:
    drawn, started = SETTINGS.draw_pool(), changed(start_from=START).draw_pool()
    first = drawn.defaults
    assert started.defaults == first == 6
    assert started.candidates[:first] == drawn.candidates[:first]
    assert started.candidates[first : first + 2] == OWN[:2]
    assert len(started.candidates) == 12
    assert set(started.candidates[first + 2 :]) < set(drawn.candidates)
    again = changed(start_from=Policy(drawn.candidates[first:], seen=b"")).draw_pool()
    assert again == drawn
    assert changed(pool_size=2, start_from=START).draw_pool().candidates[1:] == OWN[:1]


def test_a_greedy_search_begins_with_them() -> None:
    how: dict[str, Any] = {"strategy": "greedy", "start_from": START}
    shift = quasi_random_views(RECIPE, 3)[1:]
    pool = changed(**how).draw_pool().candidates
    assert pool[:4] == (OWN[0], *shift, OWN[1])
    assert (len(pool), pool.index(SubPolicy())) == (12, 11)
    assert set(pool[4:]) < set(changed(strategy="greedy").draw_pool().candidates)
    assert changed(**how, pool_size=2).draw_pool().candidates == (OWN[0], SubPolicy())
    assert changed(**how, pool_size=2, plain=False).draw_pool().candidates == START[:2].subpolicies


def test_files_runs_presets_and_records_say_the_same(tmp_path: Path) -> None:
    START.save(tmp_path / "policy.json")
    wanted = changed(start_from=(START, Policy.preset("d4")))
    for given in (
        (tmp_path, "preset:d4"),
        [str(tmp_path / "policy.json"), "d4"],
        wanted.record()["start_from"],
    ):
        assert changed(start_from=given) == wanted
    assert SETTINGS.record()["start_from"] == []
    assert changed(start_from="preset:d4").start_from == wanted.start_from[1:]


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    fresh = Policy((SubPolicy((Step("rotate", 3),)),))
    refused("drawn anew for each image: freeze the policy", changed, start_from=fresh)
    refused("gives fixed views, got fresh draws", changed, strategy="paper", start_from=START)
    refused("runs/none", changed, start_from="runs/none")
    crops, photos = Policy.preset("crops", 2, recipe="imagenet"), get_recipe("imagenet")
    refused("crops otherwise", changed(start_from=crops).draw_pool)
    refused("crops otherwise", changed(recipe=photos, start_from="crops").draw_pool)
    pool = changed(recipe=photos, start_from="preset:flip").draw_pool()
    assert SubPolicy((Step("flip", 0),)) in pool.candidates


def test_no_gain_is_claimed_on_what_they_were_found_on(tmp_path: Path) -> None:
    job = plan_search(model(), DIGITS, SETTINGS)
    held_out = job.split.held_out
    seen = set_of(DIGITS.identities[held_out[:10]])
    settings = changed(start_from=replace(START, seen=seen))
    found = search_dataset(model(), DIGITS, settings, run=tmp_path / "run")
    np.testing.assert_array_equal(found.held_out_indices, held_out[10:])
    assert any("10 of 40 held-out images are left out" in note for note in found.notes)
    assert is_in(DIGITS.identities[held_out[:10]], found.policy.seen).all()
    assert not is_in(DIGITS.identities[held_out[10:]], found.policy.seen).any()
    crossed = replace(settings, cross_fit=True)
    refused("was found on 10 of them: leave out", plan_search, model(), DIGITS, crossed)
    unknown = changed(start_from=replace(START, seen=UNKNOWN))
    notes = search_notes(plan_search(model(), DIGITS, unknown))
    assert any("may have been found on images that are held out" in note for note in notes)


@pytest.mark.parametrize("changes", [{}, {"strategy": "greedy"}, {"race": True}])
def test_a_search_that_starts_from_one_can_be_repeated(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    settings = changed(start_from=START, **changes)
    for name in ("first", "second", "first"):
        search_dataset(model(), DIGITS, settings, run=tmp_path / name)
    first, second = (tmp_path / name for name in ("first", "second"))
    for file in ("policy.json", "search.json", "settings.json"):
        assert (first / file).read_bytes() == (second / file).read_bytes()
    other = changed(start_from=Policy(OWN[2:], seen=b""), **changes)
    refused("other settings .start_from", search_dataset, model(), DIGITS, other, run=first)
