"""The study of ensembles beside what search and compare find for the same models."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

from relook.data import Dataset, load_data
from relook.errors import FileFormatError, RelookError
from relook.evaluation.baselines import Options
from relook.evaluation.compare import compare
from relook.evaluation.cross_validation import cross_validated
from relook.models import EnsemblePredictor, Predictor
from relook.models.small import new_small
from relook.models.torch_module import TorchPredictor
from relook.numerics.calibration import LOG_FLOOR
from relook.policy import Policy, SubPolicy
from relook.policy.recipes import RECIPES
from relook.policy_search.job import split_images
from relook.policy_search.pool_predictions import PoolPredictions
from relook.policy_search.search import search_dataset
from relook.policy_search.settings import SearchSettings
from relook.predictions.array import Predictions
from relook.predictions.passes import View, predict_views
from relook.studies.ensembles import ensembles
from relook.studies.ensembles_figures import (
    crops_against_training_drawing,
    policy_against_crops_drawing,
    save_ensembles_figures,
)
from relook.studies.ensembles_result import Ensembles, load_ensembles
from relook.studies.ensembles_search import mean_predictions
from relook.studies.ensembles_tables import (
    ensembles_csv,
    ensembles_latex,
    ensembles_markdown,
    ensembles_table,
    fitting_ensembles_table,
)

SETTINGS = SearchSettings(
    recipe=RECIPES["small"], length=4, pool_size=14, batch=64, strategy="greedy"
)
BUDGETS = (1, 3)


@dataclass
class Counted:
    """A model that counts the images that it sees, and may be interrupted."""

    inner: Predictor
    seen: int = 0
    stop_at: int | None = None
    classes: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.classes = self.inner.classes

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def __call__(self, images: Tensor) -> Tensor:
        if self.stop_at is not None and self.seen >= self.stop_at:
            raise KeyboardInterrupt
        self.seen += len(images)
        return self.inner(images)


def member(seed: int) -> Counted:
    return Counted(TorchPredictor(new_small(width=4, seed=seed).eval(), classes=10))


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return load_data("digits:test").subset(np.arange(90))


def study(dataset: Dataset, members: dict[str, Counted] | None = None, **options: Any) -> Ensembles:
    arguments: dict[str, Any] = {
        "budgets": BUDGETS,
        "methods": ["plain", "cf", "mtrain"],
        "options": Options(grid_views=1),
        "resamples": 100,
        **options,
    }
    settings = arguments.pop("settings", SETTINGS)
    return ensembles(members or {"a": member(1), "b": member(2)}, dataset, settings, **arguments)


@pytest.fixture(scope="module")
def found(dataset: Dataset) -> Ensembles:
    return study(dataset)


def test_policies_are_those_of_separate_searches(dataset: Dataset, found: Ensembles) -> None:
    members = {"a": member(1), "b": member(2)}
    for name, one in members.items():
        assert search_dataset(one, dataset, SETTINGS).policy == found.policies[name]
    together = search_dataset(EnsemblePredictor(list(members.values())), dataset, SETTINGS).policy
    assert together.subpolicies == found.policy.subpolicies
    assert together.temperatures == pytest.approx(found.policy.temperatures, abs=1e-4)


def test_the_pool_is_predicted_once_for_all_three_ways(dataset: Dataset) -> None:
    members = {"a": member(1), "b": member(2)}
    result = study(dataset, members, methods=["plain"])
    searched, held_out = split_images(dataset, SETTINGS, None)
    for name, one in members.items():
        views = {*result.policies[name], *result.policies["a"], *result.policy}
        # 14 candidates, the plain image with them, and one look at an image before it starts.
        expected = 14 * len(searched) + len({*views, SubPolicy()}) * len(held_out) + 1
        assert one.seen == expected


def test_pools_that_searches_predicted_are_not_predicted_again(
    dataset: Dataset, found: Ensembles, tmp_path: Path
) -> None:
    search_dataset(member(1), dataset, SETTINGS, run=tmp_path / "search")
    members = {"a": member(1), "b": member(2)}
    run, pools = tmp_path / "run", {"a": tmp_path / "search"}
    again = study(dataset, members, run=run, pools=pools)
    assert again.rows == found.rows
    assert (again.policy, again.policies) == (found.policy, found.policies)
    searched, _ = split_images(dataset, SETTINGS, None)
    # The first look at an image checks that the network still answers as the store says.
    assert members["b"].seen - members["a"].seen >= 13 * len(searched)


def test_the_ensembles_rows_are_those_of_compare(dataset: Dataset, found: Ensembles) -> None:
    _, held_out = split_images(dataset, SETTINGS, None)
    both = EnsemblePredictor([member(1), member(2)])
    for way, policy in (("single", found.policies["a"]), ("ensemble", found.policy)):
        expected = compare(
            both,
            dataset.subset(held_out),
            policy,
            recipe="small",
            budgets=BUDGETS,
            methods=["cf", "mtrain"],
            indices=held_out,
            resamples=100,
            measure_cost=False,
            batch=64,
        )
        for row in expected.rows:
            mine = found.row(way if row.method == "gps" else row.method, row.budget)
            if mine is None:  # compare scores every prefix
                assert row.budget not in BUDGETS
                continue
            assert mine.views == row.views
            for name, one in row.metrics.items():
                assert mine.metrics[name].mean == pytest.approx(one.mean, abs=1e-4), name
            if row.over_plain is not None:
                assert mine.over_plain is not None
                assert mine.over_plain["cll"].estimate == pytest.approx(
                    row.over_plain["cll"].estimate, abs=1e-4
                )


def test_a_policy_for_each_member_by_hand(dataset: Dataset, found: Ensembles) -> None:
    _, held_out = split_images(dataset, SETTINGS, None)
    proof = dataset.subset(held_out)
    least = min(policy.views for policy in found.policies.values())
    for budget in BUDGETS:
        chances: list[Any] = []
        for one, policy in zip((member(1), member(2)), found.policies.values(), strict=True):
            views = [View(sub, i) for i, sub in enumerate(policy.for_budget(min(budget, least)))]
            log_probs = predict_views(one, proof.images, views, seed=0, indices=held_out)
            chances.append(np.exp(log_probs.astype(np.float64)).mean(axis=0))
        expected = cross_validated(np.log(np.mean(chances, axis=0)), proof.labels, seed=0)
        row = found.row("per-member", budget)
        assert row is not None
        assert row.metrics["cll"].mean == pytest.approx(expected.metrics["cll"], abs=1e-5)
        assert row.metrics["accuracy"].mean == pytest.approx(expected.metrics["accuracy"])


def test_views_are_counted_for_a_member_and_passes_for_all(found: Ensembles) -> None:
    for row in found.together():
        assert row.members == 2
        assert row.passes == 2 * row.views
        assert row.views <= row.budget
    for row in found.alone():
        assert row.passes == row.views
    each = found.row("per-member", 3)
    assert each is not None
    assert each.views == min(3, *(policy.views for policy in found.policies.values()))


def test_members_alone_are_means_over_members(dataset: Dataset, found: Ensembles) -> None:
    _, held_out = split_images(dataset, SETTINGS, None)
    least = min(policy.views for policy in found.policies.values())
    scores = []
    for one, policy in zip((member(1), member(2)), found.policies.values(), strict=True):
        rows = compare(
            one,
            dataset.subset(held_out),
            policy,
            recipe="small",
            budgets=[min(3, least)],
            methods=["plain"],
            indices=held_out,
            resamples=10,
            measure_cost=False,
        ).rows
        scores.append(rows[-1].metrics["cll"].mean)
    row = next(row for row in found.alone() if (row.method, row.budget) == ("gps", 3))
    assert row.metrics["cll"].mean == pytest.approx(np.mean(scores), abs=1e-4)
    assert row.metrics["cll"].deviation == pytest.approx(np.std(scores, ddof=1), abs=1e-4)


def test_differences_are_to_the_best_baseline_and_to_the_single_way(found: Ensembles) -> None:
    row, single = found.row("ensemble", 3), found.row("single", 3)
    assert row is not None
    assert single is not None
    assert row.over_single is not None
    assert single.over_single is None
    assert row.over_single["cll"].estimate == pytest.approx(
        row.metrics["cll"].mean - single.metrics["cll"].mean, abs=1e-9
    )
    rivals = [found.row(name, b) for name, b in (("plain", 1), ("cf", 3), ("mtrain", 3))]
    best = max((one for one in rivals if one), key=lambda one: one.metrics["cll"].mean)
    assert row.rival == best.method
    assert "has the best cLL" in found.sentence


def test_mean_predictions_are_mean_probabilities(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 30, (3, 20, 5, 4))
    log_probs = torch.from_numpy(logits).log_softmax(-1).clamp(min=LOG_FLOOR).numpy()
    expected = np.log(np.exp(log_probs).mean(axis=0))
    candidates = np.arange(20)
    each = [
        PoolPredictions(candidates, Predictions(one.shape, one.dtype, lambda one=one: one))  # type: ignore[misc]
        for one in log_probs.astype(np.float32)
    ]
    for directory in (None, tmp_path / "ensemble"):
        mean = mean_predictions(each, directory).predictions
        assert mean.shape == (20, 5, 4)
        np.testing.assert_allclose(mean.load(), expected, atol=1e-4)
        if mean.map is not None:
            assert isinstance(np.asanyarray(mean.map()), np.ndarray)
            np.testing.assert_array_equal(mean.map(), mean.load())
    assert [path.name for path in (tmp_path / "ensemble").iterdir()] == ["mean.npy"]


def test_an_interrupted_study_goes_on(dataset: Dataset, tmp_path: Path) -> None:
    out, settings = tmp_path / "run", replace(SETTINGS, batch=16)
    whole, rest = member(2), member(2)
    found = study(dataset, {"a": member(1), "b": whole}, settings=settings)
    for stop in (300, 800):  # in the pool, and among the held-out images
        stopped = {"a": member(1), "b": replace(member(2), stop_at=stop)}
        with pytest.raises(KeyboardInterrupt):
            study(dataset, stopped, run=out, settings=settings)
    assert study(dataset, {"a": member(1), "b": rest}, run=out, settings=settings) == found
    assert 0 < rest.seen < whole.seen - 14 * 60
    assert Policy.load(out / "policies" / "ensemble.json") == found.policy
    assert Policy.load(out / "policies" / "member-2.json") == found.policies["b"]
    with pytest.raises(RelookError, match="other settings"):
        study(dataset, run=out, settings=replace(SETTINGS, seed=1))


def test_other_budgets_use_the_same_searches(dataset: Dataset, tmp_path: Path) -> None:
    study(dataset, run=tmp_path / "run", methods=["plain"])
    members = {"a": member(1), "b": member(2)}
    study(dataset, members, run=tmp_path / "run", methods=["plain"], budgets=(2,))
    _, held_out = split_images(dataset, SETTINGS, None)
    assert members["a"].seen <= 1 + 10 * len(held_out)


def test_a_magnitude_is_searched_on_the_single_member(dataset: Dataset) -> None:
    members = {"a": member(1), "b": member(2)}
    with_grid = study(dataset, members, methods=["plain", "mgrid"], single="b")
    without = {"a": member(1), "b": member(2)}
    study(dataset, without, methods=["plain"], single="b")
    searched, held_out = split_images(dataset, SETTINGS, None)
    assert members["a"].seen - without["a"].seen <= 3 * len(held_out)
    assert members["b"].seen - without["b"].seen >= 12 * len(searched)
    assert with_grid.single == "b"
    assert len(with_grid.settings["grid_search"]) == 12
    assert with_grid.row("mgrid", 3) is not None
    told = study(dataset, methods=["mgrid"], options=Options(grid_magnitude=10.0))
    assert told.settings["grid_search"] is None
    assert told.row("mgrid", 3) is not None


def test_fresh_draws_have_runs(dataset: Dataset) -> None:
    fresh = replace(SETTINGS, draws="fresh")
    result = study(dataset, settings=fresh, runs=2, methods=["plain", "cf"])
    row = result.row("per-member", 3)
    assert row is not None
    assert row.views == 3
    assert row.metrics["cll"].deviation > 0
    plain = result.row("plain", 1)
    assert plain is not None
    assert plain.metrics["cll"].deviation == 0


def test_progress_goes_through_the_stages(dataset: Dataset) -> None:
    seen: dict[str, list[tuple[int, int]]] = {}

    def progress(stage: str, done: int, total: int, score: float | None = None) -> None:
        seen.setdefault(stage, []).append((done, total))

    study(dataset, methods=["mgrid"], progress=progress)
    assert list(seen) == ["predict", "select", "compare", "evaluate"]
    for steps in seen.values():
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1]


def test_a_test_set_holds_nothing_out(dataset: Dataset) -> None:
    test = load_data("digits:test").subset(np.arange(100, 140))
    result = study(dataset, test=test, methods=["plain"])
    assert (result.searched, result.images) == (90, 40)


def test_a_saved_study_is_read_back(found: Ensembles, tmp_path: Path) -> None:
    found.save(tmp_path / "ensembles.json")
    assert load_ensembles(tmp_path / "ensembles.json") == found
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(FileFormatError, match="run  relook ensembles  again"):
        load_ensembles(tmp_path / "other.json")


def test_tables_hold_the_figures(found: Ensembles) -> None:
    row = found.row("per-member", 3)
    assert row is not None
    figure = f"{row.metrics['cll'].mean:.4f}".replace("-", "−")
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(ensembles_table(found))
    console.print(ensembles_table(found, alone=True))
    text = console.export_text()
    assert figure in text
    assert "GPS single" in text
    narrow = Console(width=90, file=io.StringIO(), record=True)
    narrow.print(fitting_ensembles_table(found, narrow))
    assert "best baseline" not in narrow.export_text()
    assert figure in ensembles_markdown(found)
    lines = ensembles_csv(found).splitlines()
    assert len(lines) == 1 + len(found.rows)
    assert any(line.startswith("per-member,") for line in lines)
    latex = ensembles_latex(found, "digits_x")
    assert "GPS each" in latex
    assert r"digits\_x" in latex


def test_figures_are_files_of_the_same_bytes(found: Ensembles, tmp_path: Path) -> None:
    first = save_ensembles_figures(found, tmp_path / "a")
    assert [path.name for path in first if path.suffix == ".png"] == [
        "ensembles_cll.png",
        "ensembles_accuracy.png",
        "train_vs_clean.png",
        "policy_vs_crops.png",
    ]
    for one, other in zip(first, save_ensembles_figures(found, tmp_path / "b"), strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_two_figures_take_a_comparisons_rows(dataset: Dataset, found: Ensembles) -> None:
    rows = compare(
        member(1),
        dataset,
        found.policies["a"],
        recipe="small",
        budgets=[2],
        methods=["cf", "mtrain"],
        resamples=10,
        measure_cost=False,
    ).rows
    assert "random crops (CF)" in crops_against_training_drawing(rows).description
    drawing = policy_against_crops_drawing({"A": rows, "B": rows, "C": rows})
    assert len(drawing.figure.axes) == 3
    assert "B: learned policy (GPS)" in drawing.description
    with pytest.raises(RelookError, match="at least one network"):
        policy_against_crops_drawing({})


def test_wrong_requests_are_one_line(dataset: Dataset) -> None:
    with pytest.raises(RelookError, match="at least two models"):
        study(dataset, {"a": member(1)})
    with pytest.raises(RelookError, match="unknown member 'c'"):
        study(dataset, single="c")
    with pytest.raises(RelookError, match="at least 1 run"):
        study(dataset, runs=0)
    with pytest.raises(RelookError, match="at least 1 view"):
        study(dataset, budgets=[0])
    with pytest.raises(RelookError, match="search without --race"):
        study(dataset, settings=replace(SETTINGS, race=True))
    three = Counted(TorchPredictor(new_small(classes=3, width=4).eval(), classes=3))
    with pytest.raises(RelookError, match="same classes for an ensemble, got 10, 3 classes"):
        study(dataset, {"a": member(1), "b": three})
