import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import different, refused
from tests.unit.data.marked_images import TURNED, TURNS, Oracle, noisy
from tests.unit.evaluation.compare_cases import QUICK, pictures, row
from torch import Tensor

from relook.data import Dataset
from relook.evaluation.baselines import BASELINES, Options
from relook.evaluation.compare import compare
from relook.evaluation.comparison import (
    METRICS_OF_A_ROW,
    METRICS_OF_AVERAGES,
    Comparison,
    load_comparison,
    save_comparison,
)
from relook.evaluation.cross_validation import cross_validated
from relook.models import CallablePredictor
from relook.numerics.intervals import likely_variance, paired_interval, share_interval
from relook.policy import Policy, Step, SubPolicy
from relook.policy.recipes import RECIPES


def turned(
    policy: Policy | Sequence[Policy] = TURNED,
    images: int = 120,
    methods: Sequence[str] = ("flip", "d4"),
    budgets: Sequence[int] = (1, 2, 4, 8),
    **more: Any,
) -> tuple[Comparison, Oracle, Dataset]:
    dataset, logits = noisy(images)
    oracle = Oracle(logits)
    options = {**QUICK, "methods": methods, "budgets": budgets, **more}
    return compare(oracle.predictor, dataset, policy, **options), oracle, dataset


def pixel_model(images: Tensor) -> Tensor:
    """A model of three classes that moves with every change of the picture."""
    small = images.float().flatten(1)
    weights = torch.linspace(-1, 1, small.shape[1])
    return torch.stack([small @ weights, small @ weights.flip(0), small.std(1) * 40], 1) / 4000


PREDICTOR = CallablePredictor(pixel_model, outputs="logits", classes=3)


def everything(policy: Policy | Sequence[Policy] | None = None, **more: Any) -> Comparison:
    options = {**QUICK, "budgets": (1, 3, 10), "options": Options(grid_views=2), **more}
    options.setdefault("validation", pictures(12, seed=1))
    chosen = BASELINES["cf"].policy(RECIPES["small"], 4, seed=9) if policy is None else policy
    return compare(PREDICTOR, pictures(), chosen, **options)


# What is in it


def test_every_method_is_there_at_its_budgets() -> None:
    comparison = everything()
    budgets: dict[str, list[int]] = {}
    for one in comparison.rows:
        budgets.setdefault(one.method, []).append(one.budget)
        assert set(one.metrics) == {*METRICS_OF_A_ROW, *METRICS_OF_AVERAGES}
        assert one.views <= one.budget
        assert {metric.deviation for metric in one.metrics.values()} == {0.0}  # of one run
    assert list(budgets) == [*BASELINES, "gps"]
    for method in ("cf", "mtrain", "mgrid", "random"):
        assert budgets[method] == list(range(1, 11))
    assert [budgets[m] for m in ("plain", "flip", "5c", "d4", "10c")] == [[1], [2], [5], [8], [10]]
    assert budgets["gps"] == [1, 2, 3, 4, 10]  # four distinct views, then only what was asked
    assert row(comparison, "gps", 10).views == 4


def test_beyond_twenty_views_only_the_asked_budgets_are_scored() -> None:
    comparison = everything(methods=["cf"], budgets=(5, 23))
    assert [one.budget for one in comparison.rows if one.method == "cf"] == [*range(1, 21), 23]


def test_what_cannot_be_compared_is_left_out_with_the_reason() -> None:
    dataset = pictures(shape=(16, 20))
    comparison = compare(PREDICTOR, dataset, TURNED[:1], budgets=(1, 5), **QUICK)
    assert comparison.settings["left_out"] == {
        "d4": "the images are not square (16 × 20)",
        "10c": "takes 10 views, more than the largest budget (5)",
        "mgrid": "no validation images to search its magnitude on",
    }
    assert {one.method for one in comparison.rows} == {
        *("plain", "flip", "5c", "cf", "mtrain", "random", "gps")
    }


def test_figures_are_those_of_the_averaged_predictions() -> None:
    comparison, oracle, dataset = turned(seed=3)
    for views in (1, 2, 4):
        mean = oracle.log_probs[:views].double().logsumexp(0) - np.log(views)
        alone = cross_validated(mean.numpy(), dataset.labels, seed=3)
        expected = alone.named(usual_average=alone, learned_average=alone)
        found = {name: one.mean for name, one in row(comparison, "gps", views).metrics.items()}
        assert found == pytest.approx(dict(expected.metrics), abs=1e-6)


def test_repeats_under_fixed_draws_weigh_but_cost_nothing() -> None:
    policy = Policy((TURNS[0], TURNS[1], TURNS[1], TURNS[2]))
    comparison, oracle, dataset = turned(policy, methods=())
    found = row(comparison, "gps", 2)
    mean = torch.log((oracle.log_probs[0].exp() + 2 * oracle.log_probs[1].exp()) / 3).double()
    expected = cross_validated(mean.numpy(), dataset.labels, seed=0).metrics["cll"]
    assert found.metrics["cll"].mean == pytest.approx(expected, abs=1e-6)
    assert (found.views, found.slowdown) == (2, 2.0)


def test_differences_are_paired_over_images() -> None:
    comparison, oracle, dataset = turned(seed=1)
    plain, policy = (
        cross_validated(
            (oracle.log_probs[:k].double().logsumexp(0) - np.log(k)).numpy(),
            dataset.labels,
            seed=1,
        )
        for k in (1, 4)
    )
    found = row(comparison, "gps", 4).over_plain
    assert found is not None
    expected_of = {
        "cll": paired_interval(
            policy.per_image["cll"] - plain.per_image["cll"],
            likely=likely_variance(policy.samples["cll"], plain.samples["cll"]),
        ),
        "accuracy": share_interval(policy.per_image["accuracy"] - plain.per_image["accuracy"]),
    }
    for name, expected in expected_of.items():
        assert found[name].estimate == pytest.approx(expected.estimate, abs=1e-6)
        assert found[name].low == pytest.approx(expected.low, abs=1e-6)
    assert row(comparison, "plain", 1).over_plain is None


def test_balanced_figures_give_each_class_the_same_weight() -> None:
    dataset, logits = noisy(600)
    kept = np.flatnonzero((dataset.labels > 0) | (np.arange(600) % 8 == 0))
    oracle, few = Oracle(logits), dataset.subset(kept)
    options = {**QUICK, "methods": ("flip",), "budgets": (4,)}
    balanced, plain = (
        compare(oracle.predictor, few, TURNED, balanced=one, **options) for one in (True, False)
    )
    right = oracle.log_probs.exp().mean(0)[kept].argmax(1).numpy() == few.labels
    by_class = [right[few.labels == one].mean() for one in range(4)]
    assert row(balanced, "gps", 4).metrics["accuracy"].mean == pytest.approx(np.mean(by_class))
    assert row(plain, "gps", 4).metrics["accuracy"].mean == pytest.approx(right.mean())
    gain = row(balanced, "gps", 4).over_plain
    assert gain is not None
    for name, change in gain.items():
        gap = (
            row(balanced, "gps", 4).metrics[name].mean
            - row(balanced, "plain", 1).metrics[name].mean
        )
        assert change.estimate == pytest.approx(gap)
    assert "held-out class-balanced cLL +" in balanced.verdict.sentence
    assert "balanced" not in plain.verdict.sentence
    assert (balanced.settings["balanced"], plain.settings["balanced"]) == (True, False)


def test_the_papers_protocol_is_kept_to_whatever_the_number_of_images() -> None:
    record = {"command": "relook compare"}
    comparison, oracle, dataset = turned(protocol="paper", record=record)
    plain = oracle.log_probs[0].double().numpy()
    expected = cross_validated(plain, dataset.labels, seed=0, protocol="paper").metrics
    metrics = row(comparison, "plain", 1).metrics
    assert {name: metrics[name].mean for name in expected} == pytest.approx(
        dict(expected), abs=1e-6
    )
    assert comparison.settings["protocol"] == "paper"
    assert comparison.settings["command"] == "relook compare"
    assert comparison.settings["data"]["fingerprint"] == dataset.fingerprint


def test_the_rival_is_the_best_baseline_that_costs_at_most_the_same() -> None:
    comparison, _, _ = turned()
    best = max(("plain", 1), ("flip", 2), key=lambda k: row(comparison, *k).best_cll)
    own = row(comparison, "gps", 4)
    assert own.rival == best[0]
    assert own.over_rival is not None
    gap = own.metrics["cll"].mean - row(comparison, *best).best_cll
    assert own.over_rival["cll"].estimate == pytest.approx(gap, abs=1e-9)
    # D4 costs 8 views: it is no rival at a budget of 4, and at 8 it is its own best.
    assert row(comparison, "d4", 8).rival is None
    assert row(comparison, "gps", 8).rival == "d4"
    assert row(comparison, "gps", 3).rival is None  # nobody asked for a budget of 3


def test_gained_and_lost_images_are_named_the_most_changed_first() -> None:
    places = np.arange(1000, 1400)
    comparison, oracle, dataset = turned(images=400, indices=places)
    before = oracle.log_probs[0].argmax(1).numpy() == dataset.labels
    after = oracle.log_probs.exp().mean(0).argmax(1).numpy() == dataset.labels
    assert comparison.gained_count == int((~before & after).sum()) > 12
    assert comparison.lost_count == int((before & ~after).sum()) > 0
    assert len(comparison.gained) == 12
    assert {one.index - 1000 for one in comparison.gained} <= set(np.flatnonzero(~before & after))
    changes = [abs(one.probability_after - one.probability_before) for one in comparison.gained]
    assert changes == sorted(changes, reverse=True)
    for one in (*comparison.gained, *comparison.lost):
        place = one.index - 1000
        assert one.label == dataset.labels[place]
        own = oracle.log_probs[:, place, one.label].exp()
        assert one.probability_before == pytest.approx(own[0].item(), abs=1e-6)
        assert one.probability_after == pytest.approx(own.mean().item(), abs=1e-6)


def test_the_gallery_is_six_of_the_images() -> None:
    first, again, other = (turned(methods=(), seed=seed)[0].gallery for seed in (0, 0, 1))
    assert first == again != other
    assert len(set(first)) == 6
    assert set(first) <= set(range(120))


def test_reliability_before_and_after_calibration() -> None:
    bins = turned(methods=())[0].reliability
    assert tuple(bins) == ("plain", "policy", "plain_calibrated", "policy_calibrated")
    assert all(len(one) == 15 for one in bins.values())
    assert bins["plain"] != bins["plain_calibrated"]


def test_classes_that_only_the_model_knows_get_numbers() -> None:
    dataset, logits = noisy(40, classes=6)
    known = replace(dataset, labels=dataset.labels % 2, classes=("cat", "dog"))
    comparison = compare(Oracle(logits).predictor, known, TURNED, methods=(), **QUICK)
    assert comparison.classes == ("cat", "dog", "2", "3", "4", "5")


# What it costs


def test_nothing_is_predicted_twice() -> None:
    _, oracle, dataset = turned(runs=3)
    # Plain, flip, D4 and the policy share views; flips of a turn look like another turn here.
    assert {turn for turn, _ in oracle.seen} == {0, 1, 2, 3}
    assert sum(oracle.seen.values()) == 8 * len(dataset)  # the eight views of D4 hold all others


def test_a_stored_comparison_goes_on_without_predicting(tmp_path: Path) -> None:
    store = tmp_path / "compare.zarr"
    first, oracle, _ = turned(store_path=store)
    assert sum(oracle.seen.values()) == 8 * 120
    again, oracle, _ = turned(store_path=store)
    assert sum(oracle.seen.values()) == 16  # whether the model still answers the same
    in_memory, _, _ = turned()
    assert first == again == in_memory


def test_progress_counts_up_to_all_passes_and_tells_what_is_predicted() -> None:
    seen: dict[str, tuple[int, int]] = {}

    def progress(stage: str, done: int, total: int, score: float | None = None) -> None:
        seen[stage] = done, total

    turned(progress=progress)
    assert seen == {"evaluate": (960, 960)}
    everything(progress=progress)
    assert list(seen) == ["evaluate", "magnitude"]


def test_measured_costs_rise_with_the_views() -> None:
    comparison = everything(methods=["cf"], measure_cost=True)
    assert row(comparison, "plain", 1).slowdown == 1.0
    cost = [row(comparison, "cf", k).slowdown for k in (1, 3, 10)]
    assert 0 < cost[0] < cost[1] < cost[2]


# What it depends on


def test_everything_but_time_follows_from_the_seed() -> None:
    one, again = (everything(runs=2, seed=5).to_json() for _ in range(2))
    assert json.dumps(one) == json.dumps(again)
    assert everything(runs=2, seed=6).to_json()["rows"] != one["rows"]


def test_runs_give_deviations_to_whatever_is_random() -> None:
    comparison = everything(runs=3)
    for one in comparison.rows:
        deviation = one.metrics["cll"].deviation
        is_random = one.method != "gps" and BASELINES[one.method].random
        # A single view may be the same in all runs by chance, ten may not.
        assert (deviation > 0) == is_random or one.budget < 10, one


def test_a_fresh_policy_gets_other_draws_in_every_run() -> None:
    fresh = Policy((SubPolicy((Step("rotate", 30),), Step("crop", 3)),) * 4)
    comparison = everything(fresh, runs=3, methods=["cf"])
    assert row(comparison, "gps", 3).metrics["cll"].deviation > 0
    assert row(comparison, "gps", 3).views == 3


def test_random_crops_are_drawn_for_each_image() -> None:
    seen: set[bytes] = set()

    def model(images: Tensor) -> Tensor:
        seen.update(image.numpy().tobytes() for image in images)
        return pixel_model(images)

    one = pictures(1).plain
    labels, own = np.arange(24) % 3, different(24)
    same = Dataset(one.repeat(24, 1, 1, 1), labels, ("a", "b", "c"), "one", identities=own)
    plain = Policy((SubPolicy(),))
    predictor = CallablePredictor(model, outputs="logits")
    compare(predictor, same, plain, methods=["cf"], budgets=[1], **QUICK)
    assert len(seen) > 10


def test_several_policies_count_as_runs() -> None:
    policies = [Policy(TURNS), Policy(TURNS[::-1]), Policy(TURNS[1:])]
    comparison, _, _ = turned(policies, methods=())
    single = [turned(one, methods=())[0] for one in policies]
    alone = [row(one, "gps", 2).metrics["cll"].mean for one in single]
    found = row(comparison, "gps", 2).metrics["cll"]
    assert found.mean == pytest.approx(np.mean(alone))
    assert found.deviation == pytest.approx(np.std(alone, ddof=1))
    assert comparison.settings["runs"] == 3
    # Examples are those of the first policy.
    assert comparison.policy == policies[0]
    assert comparison.gained == single[0].gained != single[2].gained


def test_mgrid_takes_the_magnitude_that_is_best_on_validation_images(tmp_path: Path) -> None:
    comparison = everything(methods=["mgrid"], store_path=tmp_path / "compare.zarr")
    scores = dict(comparison.settings["grid_search"])
    assert list(scores) == list(range(0, 60, 5))
    best = comparison.settings["randaugment"]["grid_magnitude"]
    assert scores[best] == max(scores.values())
    assert (tmp_path / "compare-grid" / "55.zarr").is_dir()


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budgets": ()}, "expected budgets of at least 1 view, got"),
        ({"budgets": (0, 5)}, "expected budgets of at least 1 view, got"),
        ({"budgets": (2.5,)}, "expected budgets of at least 1 view, got"),
        ({"runs": 0}, "expected at least 1 run, got 0"),
        ({"methods": ["gbs"]}, "unknown method 'gbs': did you mean 'gps'?"),
        ({"recipe": "cifra"}, "unknown recipe 'cifra': did you mean 'cifar'?"),
        ({"seed": -1}, "expected a seed"),
        ({"policy": ()}, "expected a policy with at least one sub-policy"),
        ({"policy": Policy(())}, "expected a policy with at least one sub-policy"),
        ({"protocol": "papers"}, "unknown protocol 'papers'"),
    ],
)
def test_nonsense_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    refused(re.escape(message), turned, **options)


def test_labels_that_the_model_does_not_know_are_refused() -> None:
    dataset, logits = noisy(40, classes=3)
    more = replace(dataset, labels=dataset.labels + 1, classes=("a", "b", "c", "d"))
    own = Oracle(logits).predictor, more, TURNED
    refused(r"expected labels from 0 to 2, .* got 3", compare, *own, methods=(), **QUICK)


# Keeping it


def test_the_comparison_and_its_images_are_saved(tmp_path: Path) -> None:
    places = np.arange(1000, 1120)
    comparison, _, dataset = turned(indices=places)
    save_comparison(tmp_path / "new", comparison, dataset, places)
    assert load_comparison(tmp_path / "new" / "comparison.json") == comparison
    save_comparison(tmp_path / "again", turned(indices=places)[0], dataset, places)
    for file in ("comparison.json", "examples.npz"):  # repeatable to the byte
        assert (tmp_path / "new" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    with np.load(tmp_path / "new" / "examples.npz", allow_pickle=False) as examples:
        indices, images, labels = (examples[n] for n in ("indices", "images", "labels"))
    named = {one.index for one in (*comparison.gained, *comparison.lost)}
    assert comparison.where is not None
    named |= set(comparison.where.examples)
    assert indices.tolist() == sorted({*comparison.gallery, *named})
    np.testing.assert_array_equal(images, dataset.plain[indices - 1000].numpy())
    np.testing.assert_array_equal(labels, dataset.labels[indices - 1000])


def test_the_files_of_the_images_are_kept_too(tmp_path: Path) -> None:
    comparison, _, dataset = turned()
    paths = np.array([f"a/{number:03}.png" for number in range(len(dataset))])
    save_comparison(tmp_path, comparison, replace(dataset, columns={"path": paths}))
    with np.load(tmp_path / "examples.npz", allow_pickle=False) as examples:
        assert examples["names"].tolist() == paths[examples["indices"]].tolist()


def test_images_of_another_data_set_are_refused(tmp_path: Path) -> None:
    comparison, _, dataset = turned(indices=np.arange(1000, 1120))
    refused(r"expected the data set .* no image 10", save_comparison, tmp_path, comparison, dataset)
    comparison, _, dataset = turned()
    other = replace(dataset, labels=(dataset.labels + 1) % 4)
    refused("has the label", save_comparison, tmp_path, comparison, other)
    assert not list(tmp_path.iterdir())


def test_copies_of_images_make_no_interval_narrower() -> None:
    once = pictures()
    twice = once.subset(np.tile(np.arange(len(once)), 2))
    grouped = replace(twice, groups=np.tile(np.arange(len(once)), 2))
    alike = replace(twice, identities=different(len(twice)))

    def reach(dataset: Dataset) -> float:
        found = compare(PREDICTOR, dataset, TURNED, budgets=(4,), methods=("plain",), **QUICK)
        over = found.rows[-1].over_plain
        assert over is not None
        return over["cll"].high - over["cll"].low

    assert reach(twice) == reach(grouped)
    assert reach(twice) > 1.2 * reach(alike)


def test_what_it_brings_not_to_answer_is_compared_and_few_images_are_not_enough(
    tmp_path: Path,
) -> None:
    comparison, _, dataset = turned(images=120)
    assert comparison.selective is not None
    plain, policy = comparison.selective.plain, comparison.selective.policy
    own = row(comparison, "gps", 8)
    assert policy.at[-1].accuracy == pytest.approx(own.metrics["accuracy"].mean)
    for one, other in zip(policy.at, plain.at, strict=True):
        assert one.over_plain is not None
        assert one.over_plain.estimate == pytest.approx(one.accuracy - other.accuracy)
        assert one.over_plain.low <= one.over_plain.estimate <= one.over_plain.high
    results = comparison.results()
    found = results.one(metric="accuracy_at", method="gps", by="disagreement", coverage=0.9)
    assert found.value == comparison.selective.disagreement.at[1].accuracy
    save_comparison(tmp_path, comparison, dataset)
    assert load_comparison(tmp_path / "comparison.json").selective == comparison.selective
    assert turned(images=60)[0].selective is None
