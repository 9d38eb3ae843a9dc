"""The study of ensembles beside what search and compare find for the same models."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from tests.support import refused
from tests.unit.studies.shown import drawn, printed
from torch import Tensor

from relook.data import Dataset, load_data
from relook.errors import RelookError
from relook.evaluation.baselines import Options
from relook.evaluation.compare import compare
from relook.evaluation.cross_validation import cross_validated
from relook.evaluation.results import Result, Results
from relook.models import EnsemblePredictor, Predictor
from relook.models.predictors import TorchPredictor
from relook.models.small import new_small
from relook.numerics.calibration import LOG_FLOOR
from relook.policy import Policy, SubPolicy
from relook.policy.file import policy_from_json
from relook.policy.recipes import RECIPES
from relook.policy_search.job import split_images
from relook.policy_search.pool_predictions import PoolPredictions, select_from_pool
from relook.policy_search.search import search_dataset
from relook.policy_search.settings import SearchSettings
from relook.predictions.passes import View, predict_views
from relook.predictions.store import Predictions
from relook.report.latex import latex
from relook.selection.record import Selected
from relook.studies import ensembles_ways
from relook.studies.ensembles import STUDY, ensembles, paper_table, tables
from relook.studies.ensembles_ways import mean_predictions

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


def study(dataset: Dataset, members: dict[str, Counted] | None = None, **options: Any) -> Results:
    arguments: dict[str, Any] = {
        "budgets": BUDGETS,
        "methods": ["plain", "cf", "mtrain"],
        "options": Options(grid_views=1),
        **options,
    }
    settings = arguments.pop("settings", SETTINGS)
    return ensembles(members or {"a": member(1), "b": member(2)}, dataset, settings, **arguments)


def policies_of(found: Results) -> dict[str, Policy]:
    """Return the members' policies, by name."""
    own = found.settings["policies"].items()
    return {name: policy_from_json(one) for name, one in own}


def policy_of(found: Results) -> Policy:
    """Return the policy that was found on the ensemble."""
    return policy_from_json(found.settings["policy"])


def row_of(found: Results, method: str, budget: int, metric: str = "cll") -> Result:
    """Return a metric of the whole ensemble."""
    return found.one(method=method, budget=budget, metric=metric, members=2)


@pytest.fixture(scope="module")
def found(dataset: Dataset) -> Results:
    return study(dataset)


def test_policies_are_those_of_separate_searches(dataset: Dataset, found: Results) -> None:
    members = {"a": member(1), "b": member(2)}
    for name, one in members.items():
        alone = search_dataset(one, dataset, SETTINGS).policy
        assert replace(alone, fitted_on=None) == replace(policies_of(found)[name], fitted_on=None)
    together = search_dataset(EnsemblePredictor(list(members.values())), dataset, SETTINGS).policy
    assert together.subpolicies == policy_of(found).subpolicies
    assert together.temperatures == pytest.approx(policy_of(found).temperatures, abs=1e-4)


def test_the_pool_is_predicted_once_for_all_three_ways(dataset: Dataset) -> None:
    members = {"a": member(1), "b": member(2)}
    result = study(dataset, members, methods=["plain"])
    searched, held_out = split_images(dataset, SETTINGS, None)
    for name, one in members.items():
        own = policies_of(result)
        views = {*own[name], *own["a"], *policy_of(result)}
        # 14 candidates, the plain image with them, and one look at an image before it starts.
        expected = 14 * len(searched) + len({*views, SubPolicy()}) * len(held_out) + 1
        assert one.seen == expected


def test_pools_that_searches_predicted_are_not_predicted_again(
    dataset: Dataset, found: Results, tmp_path: Path
) -> None:
    search_dataset(member(1), dataset, SETTINGS, run=tmp_path / "search")
    members = {"a": member(1), "b": member(2)}
    run, pools = tmp_path / "run", {"a": tmp_path / "search"}
    again = study(dataset, members, run=run, pools=pools)
    assert again.rows == found.rows
    for name in ("policy", "policies"):
        assert again.settings[name] == found.settings[name]
    searched, _ = split_images(dataset, SETTINGS, None)
    # The first look at an image checks that the network still answers as the store says.
    assert members["b"].seen - members["a"].seen >= 13 * len(searched)


def test_the_ensembles_rows_are_those_of_compare(dataset: Dataset, found: Results) -> None:
    _, held_out = split_images(dataset, SETTINGS, None)
    both = EnsemblePredictor([member(1), member(2)])
    for way, policy in (("single", policies_of(found)["a"]), ("ensemble", policy_of(found))):
        expected = compare(
            both,
            dataset.subset(held_out),
            policy,
            recipe="small",
            budgets=BUDGETS,
            methods=["cf", "mtrain"],
            indices=held_out,
            measure_cost=False,
            batch=64,
            learned_averages=False,
        )
        for row in expected.rows:
            method = way if row.method == "gps" else row.method
            mine = found.where(method=method, budget=row.budget, members=2)
            if not mine:  # compare scores every prefix
                assert row.budget not in BUDGETS
                continue
            assert mine.values("views") == [row.views]
            for name, one in row.metrics.items():
                assert mine.one(metric=name).value == pytest.approx(one.mean, abs=1e-4), name
            if row.over_plain is not None:
                change = mine.one(metric="cll", versus="plain").value
                assert change == pytest.approx(row.over_plain["cll"].estimate, abs=1e-4)


@pytest.mark.parametrize("view_temperatures", [(1.0, 1.0, 1.0), (2.0, 3.0, 4.0)])
def test_policies_score_as_by_hand_at_their_view_temperatures(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, view_temperatures: tuple[float, ...]
) -> None:
    numbers = iter(view_temperatures)  # of the two members and of the ensemble

    def select(*arguments: Any) -> Selected:
        found = select_from_pool(*arguments)
        return replace(found, result=replace(found.result, view_temperature=next(numbers)))

    monkeypatch.setattr(ensembles_ways, "select_from_pool", select)
    found = study(dataset, methods=["plain"])
    own, together = list(policies_of(found).values()), policy_of(found)
    assert tuple(one.view_temperature for one in (*own, together)) == view_temperatures
    _, held_out = split_images(dataset, SETTINGS, None)
    proof = dataset.subset(held_out)
    least = min(policy.views for policy in own)

    def mean(predictor: Predictor, policy: Policy, budget: int) -> Any:
        views = [View(sub, i) for i, sub in enumerate(policy.for_budget(budget))]
        log_probs = predict_views(predictor, proof.images, views, seed=0, indices=held_out)
        shares = softmax(log_probs.astype(np.float64) / policy.view_temperature, axis=-1)
        return shares.mean(axis=0)

    # One policy for all runs on the ensemble as one model; members have their own otherwise.
    members = [member(1), member(2)]
    both = EnsemblePredictor(members)
    for budget in BUDGETS:
        equal = min(budget, least)
        each = [mean(one, policy, equal) for one, policy in zip(members, own, strict=True)]
        expected = {
            "single": mean(both, own[0], budget),
            "ensemble": mean(both, together, budget),
            "per-member": np.mean(each, axis=0),
        }
        for way, chances in expected.items():
            scored = cross_validated(np.log(chances), proof.labels, seed=0).metrics
            assert row_of(found, way, budget).value == pytest.approx(scored["cll"], abs=1e-5), way
            accuracy = row_of(found, way, budget, "accuracy").value
            assert accuracy == pytest.approx(scored["accuracy"], abs=1e-9), way


def test_views_are_counted_for_a_member_and_passes_for_all(found: Results) -> None:
    assert found.values("members") == [2, 1]
    for row in found.rows:
        assert row["passes"] == row["members"] * row["views"]
        assert row["views"] <= row["budget"]
    each = row_of(found, "per-member", 3)
    assert each["views"] == min(3, *(policy.views for policy in policies_of(found).values()))


def test_members_alone_are_means_over_members(dataset: Dataset, found: Results) -> None:
    _, held_out = split_images(dataset, SETTINGS, None)
    least = min(policy.views for policy in policies_of(found).values())
    scores = []
    for one, policy in zip((member(1), member(2)), policies_of(found).values(), strict=True):
        rows = compare(
            one,
            dataset.subset(held_out),
            policy,
            recipe="small",
            budgets=[min(3, least)],
            methods=["plain"],
            indices=held_out,
            measure_cost=False,
        ).rows
        scores.append(rows[-1].metrics["cll"].mean)
    row = found.one(method="gps", budget=3, members=1, metric="cll")
    assert row.value == pytest.approx(np.mean(scores), abs=1e-4)
    assert row.deviation == pytest.approx(np.std(scores, ddof=1), abs=1e-4)


def test_differences_are_to_the_best_baseline_and_to_the_single_way(found: Results) -> None:
    row, single = row_of(found, "ensemble", 3), row_of(found, "single", 3)
    over = found.one(method="ensemble", budget=3, metric="cll", versus="single")
    assert not found.where(method="single", versus="single")
    assert over.value == pytest.approx(row.value - single.value, abs=1e-9)
    rivals = [row_of(found, name, b) for name, b in (("plain", 1), ("cf", 3), ("mtrain", 3))]
    best = max(rivals, key=lambda one: one.value)
    rival = found.one(method="ensemble", budget=3, metric="cll", versus="rival")
    assert rival["reference"] == best["method"]
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
    assert Policy.load(out / "policies" / "ensemble.json") == policy_of(found)
    assert Policy.load(out / "policies" / "member-2.json") == policies_of(found)["b"]
    refused("other settings", study, dataset, run=out, settings=replace(SETTINGS, seed=1))


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
    assert with_grid.settings["single"] == "b"
    assert len(with_grid.settings["grid_search"]) == 12
    assert with_grid.get(method="mgrid", budget=3) is not None
    told = study(dataset, methods=["mgrid"], options=Options(grid_magnitude=10.0))
    assert told.settings["grid_search"] is None
    assert told.get(method="mgrid", budget=3) is not None


def test_fresh_draws_have_runs(dataset: Dataset) -> None:
    fresh = replace(SETTINGS, draws="fresh")
    result = study(dataset, settings=fresh, runs=2, methods=["plain", "cf"])
    row = row_of(result, "per-member", 3)
    assert row["views"] == 3
    assert row.deviation > 0
    assert row_of(result, "plain", 1).deviation == 0


def test_progress_goes_through_the_stages(dataset: Dataset) -> None:
    seen: dict[str, list[tuple[int, int]]] = {}

    def progress(stage: str, done: int, total: int, score: float | None = None) -> None:
        seen.setdefault(stage, []).append((done, total))

    study(dataset, methods=["mgrid"], progress=progress)
    assert list(seen) == ["predict", "select", "magnitude", "evaluate"]
    for steps in seen.values():
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1]


def test_a_test_set_holds_nothing_out(dataset: Dataset) -> None:
    test = load_data("digits:test").subset(np.arange(100, 140))
    result = study(dataset, test=test, methods=["plain"])
    assert (result.settings["searched"], result.settings["images"]) == (90, 40)


def test_tables_hold_the_figures(found: Results) -> None:
    figure = f"{row_of(found, 'per-member', 3).value:.4f}".replace("-", "−")
    text = "".join(printed(table) for table in tables(found))
    assert figure in text
    assert "GPS single" in text
    shown, _, left_out = printed(tables(found)[0], 90).partition("hidden")
    assert "best baseline" not in shown
    assert "best baseline" in left_out
    assert figure in STUDY.markdown(found)
    lines = found.where(metric="cll", versus=None).to_csv().splitlines()
    assert len(lines) == 1 + len({(r["members"], r["method"], r["budget"]) for r in found.rows})
    assert any(",per-member," in line for line in lines)
    made = latex(paper_table(found.labelled(data="digits_x")))
    assert "GPS each" in made
    assert r"digits\_x" in made


def test_figures_are_files_of_the_same_bytes(found: Results, tmp_path: Path) -> None:
    names = ["ensembles_cll", "ensembles_accuracy", "train_vs_clean", "policy_vs_crops"]
    assert drawn(STUDY, found, tmp_path) == names


def test_wrong_requests_are_one_line(dataset: Dataset) -> None:
    refused("at least two models", study, dataset, {"a": member(1)})
    refused("unknown member 'c'", study, dataset, single="c")
    refused("at least 1 run", study, dataset, runs=0)
    refused("at least 1 view", study, dataset, budgets=[0])
    refused("search without --race", study, dataset, settings=replace(SETTINGS, race=True))
    refused("cross_fit holds out no", study, dataset, settings=replace(SETTINGS, cross_fit=True))
    three = Counted(TorchPredictor(new_small(classes=3, width=4).eval(), classes=3))
    with pytest.raises(RelookError, match="same classes for an ensemble, got 10, 3 classes"):
        study(dataset, {"a": member(1), "b": three})
