"""Every image is searched on, and scored by views that were learned without it."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import refused

from relook.api.progress_bars import STAGES
from relook.data import Dataset, load_data
from relook.errors import FileFormatError, RelookError
from relook.evaluation.compare import compare
from relook.evaluation.unseen import folds_of, unseen_places
from relook.io.identities import is_in
from relook.models import TorchPredictor
from relook.models.small import new_small
from relook.numerics.calibration import mean_log_probs, temper
from relook.policy import Policy
from relook.policy.file import policy_from_json, policy_to_json
from relook.policy.recipes import get_recipe
from relook.policy_search.run_record import held_out_part, pool_views
from relook.policy_search.search import PolicySearch, search_dataset
from relook.policy_search.settings import SearchSettings
from relook.predictions.passes import View, predict_views
from relook.studies.robustness import Shift, robustness
from relook.studies.transfer import transfer
from relook.studies.transfer_targets import Target

MODEL = TorchPredictor(new_small(seed=1))
DIGITS = load_data("digits").subset(np.arange(120))
SETTINGS = SearchSettings(
    recipe=get_recipe("small"), length=3, pool_size=12, batch=64, cross_fit=True
)


def searched(run: Path | None = None, dataset: Dataset = DIGITS) -> PolicySearch:
    return search_dataset(MODEL, dataset, SETTINGS, run=run)


@cache
def whole() -> PolicySearch:
    """Return the search that most tests look at; it is made once."""
    return searched()


def test_each_half_is_searched_alone_and_all_images_are_proof() -> None:
    found = whole()
    first, second = found.policy.halves
    assert is_in(DIGITS.identities, found.policy.seen).all()
    seen = [is_in(DIGITS.identities, one.seen) for one in (first, second)]
    np.testing.assert_array_equal(seen[0], ~seen[1])
    assert found.comparison.images == len(DIGITS)
    assert found.comparison.settings["cross_fit"] is True
    assert "held-out" not in found.comparison.verdict.sentence


def test_progress_tells_the_halves_from_the_whole() -> None:
    stages: dict[str, None] = {}

    def report(stage: str, *_: Any) -> None:
        stages[stage] = None

    search_dataset(MODEL, DIGITS, SETTINGS, progress=report)
    selecting = [one for one in stages if STAGES[one][1] == "steps"]
    assert selecting == ["select", "half 1", "half 2"]
    assert len({STAGES[one] for one in selecting}) == 3


def test_a_half_finds_what_a_search_on_it_alone_finds() -> None:
    found = whole()
    for half in found.policy.halves:
        places = np.flatnonzero(is_in(DIGITS.identities, half.seen))
        alone = search_dataset(
            MODEL,
            DIGITS.subset(places),
            replace(SETTINGS, cross_fit=False),
            test=DIGITS.subset(np.setdiff1d(np.arange(len(DIGITS)), places)),
        ).policy
        assert (half.subpolicies, half.temperatures) == (alone.subpolicies, alone.temperatures)
        assert half.view_temperature == alone.view_temperature


def test_images_are_scored_by_the_half_that_has_not_seen_them() -> None:
    found = whole()
    own = found.policy
    folds = folds_of(DIGITS, own)
    assert [fold.policy for fold in folds] == list(own.halves)
    expected = np.empty((len(DIGITS), 10))
    for places, policy in folds:
        views = [View(sub, i) for i, sub in enumerate(policy.for_budget(own.views))]
        log_probs = predict_views(MODEL, DIGITS.images[places], views, seed=0, indices=places)
        mean = mean_log_probs(policy.tempered(log_probs))
        expected[places] = temper(mean, own.view_temperature / policy.view_temperature)
    right = expected.argmax(1) == DIGITS.labels
    row = next(one for one in found.comparison.rows if one.method == "gps")
    assert row.metrics["accuracy"].mean == pytest.approx(right.mean())


def test_new_images_are_scored_by_the_policy_itself() -> None:
    policy = whole().policy
    others = load_data("digits").subset(np.arange(100, 200))
    folds = folds_of(others, policy)
    assert len(folds[0].places) == 80
    assert folds[0].policy == replace(policy, halves=())
    assert sorted(np.concatenate([fold.places for fold in folds])) == list(range(100))
    np.testing.assert_array_equal(unseen_places(others, [policy]), np.arange(100))
    assert folds_of(load_data("digits").subset(np.arange(200, 240)), policy) == ()
    alone = replace(policy, halves=())
    np.testing.assert_array_equal(unseen_places(others, [alone]), np.arange(20, 100))


def test_groups_are_never_torn_apart() -> None:
    groups = np.arange(len(DIGITS)) // 3
    grouped = replace(DIGITS, groups=groups)
    for half in searched(dataset=grouped).policy.halves:
        seen = is_in(grouped.identities, half.seen)
        assert set(np.bincount(groups[seen])) <= {0, 3}


def test_a_run_is_compared_again_and_resumed_to_the_same_policy(tmp_path: Path) -> None:
    found = searched(tmp_path)
    loaded = Policy.load(tmp_path / "policy.json")
    assert loaded == found.policy
    part = held_out_part(tmp_path / "policy.json", DIGITS)
    assert part is not None
    np.testing.assert_array_equal(part.split.held_out, np.arange(len(DIGITS)))
    known = pool_views(tmp_path, MODEL, DIGITS)
    assert known is not None
    again = compare(
        MODEL, DIGITS, loaded, recipe="small", budgets=(loaded.views,), seed=0, known=known
    )
    scores = [
        next(
            row.metrics["cll"].mean
            for row in one.rows
            if (row.method, row.budget) == ("gps", loaded.views)
        )
        for one in (found.comparison, again)
    ]
    assert scores[0] == scores[1]
    assert searched(tmp_path).policy == found.policy


def test_what_cannot_be_proved_by_halves_is_refused() -> None:
    refused(r"leave out race, or cross_fit \(--cross-fit\)", replace, SETTINGS, race=True)
    refused("leave out split", SETTINGS.with_split, "0.5:0.5", 100)
    with pytest.raises(RelookError, match="leave out test"):
        search_dataset(MODEL, DIGITS, SETTINGS, test=load_data("digits").subset([500, 501, 502]))


def test_halves_in_a_file_are_read_as_strictly_as_the_policy() -> None:
    policy = whole().policy
    content: Any = policy_to_json(policy)
    assert policy_from_json(content) == policy
    content["halves"][1]["subpolicies"][0]["steps"] = [{"transform": "nothing", "magnitude": 1}]
    refused(r"halves\[1\]: subpolicies\[0\]", policy_from_json, content, error=FileFormatError)
    content["halves"][1] = {"subpolicies": [], "halves": []}
    refused("halves", policy_from_json, content, error=FileFormatError)


def test_the_views_of_the_pool_are_not_predicted_again(tmp_path: Path) -> None:
    searched(tmp_path)
    known = pool_views(tmp_path, MODEL, DIGITS)
    assert known is not None
    asked: list[int] = []
    policy = Policy.load(tmp_path / "policy.json")
    keywords: Any = {"recipe": "small", "methods": ["plain"], "measure_cost": False}
    same = compare(
        MODEL, DIGITS, policy, known=known, progress=lambda *n: asked.append(1), **keywords
    )
    fresh = compare(MODEL, DIGITS, policy, **keywords)
    assert not asked
    for one, other in zip(same.rows, fresh.rows, strict=True):
        assert one.metrics["cll"].mean == pytest.approx(other.metrics["cll"].mean, abs=1e-5)
    assert pool_views(tmp_path, TorchPredictor(new_small(seed=2)), DIGITS) is None
    assert pool_views(tmp_path, MODEL, DIGITS.subset(np.arange(50))) is None


def test_corruptions_and_other_models_are_scored_by_halves_too() -> None:
    policy = whole().policy
    shift = Shift(("brightness",), (1,))
    found = robustness(
        MODEL, DIGITS, policy, recipe="small", shift=shift, budgets=(2,), methods=("plain",)
    )
    assert found.settings["data"]["images"] == len(DIGITS)
    other = Target("other", TorchPredictor(new_small(seed=2)), DIGITS)
    moved = transfer([other], {"own": policy}, budgets=(2,), methods=("plain",))
    assert {row["images"] for row in moved.rows} == {len(DIGITS)}
