import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support import refused
from tests.unit.deploy.exit_cases import VIEWS, policy_of, predictions

from relook.deploy.early_exit.learn import (
    PRICES,
    fit_temperatures,
    learn_early_exit,
    parse_target,
    rule_within,
    thresholds_at,
)
from relook.deploy.early_exit.report import ExitReport, report_early_exit
from relook.deploy.early_exit.rule import ScoredExits, apply_early_exit, exit_counts
from relook.errors import RelookError
from relook.numerics.calibration import fit_temperature, mean_log_probs
from relook.numerics.intervals import loss_bound, paired_interval
from relook.numerics.splits import stratified_split
from relook.policy import Policy


def _fitted(images: int = 400, seed: int = 0, views: int = VIEWS) -> ScoredExits:
    log_probs, labels = predictions(images, seed, views)
    counts = exit_counts(policy_of(views))
    return ScoredExits.of(log_probs, labels, counts, fit_temperatures(log_probs, labels, counts))


def test_a_temperature_an_exit() -> None:
    log_probs, labels = predictions(300)
    found = fit_temperatures(log_probs, labels, exit_counts(policy_of()))
    for views, temperature in enumerate(found, start=1):
        own = fit_temperature(mean_log_probs(log_probs[:views]), labels)
        assert temperature == pytest.approx(own, abs=1e-6)


@pytest.mark.parametrize(("seed", "price"), [(0, 0.01), (1, 1e-4), (2, 0.5)])
def test_each_threshold_is_the_best_of_all_cuts_given_those_after_it(
    seed: int, price: float
) -> None:
    fitted = _fitted(60, seed, views=4)
    found = thresholds_at(price, fitted)

    def worth(thresholds: tuple[float, ...], begin: int) -> float:
        total = 0.0
        for image in range(60):
            row = begin
            while row < 3 and not fitted.confidence[row, image] > thresholds[row]:
                row += 1
            total += fitted.likelihood[row, image] - price * (row - begin)
        return total

    for row in range(3):
        cuts = [0.0, *fitted.confidence[row], 1.0]
        best = max(worth((*found[:row], cut, *found[row + 1 :]), row) for cut in cuts)
        assert worth(found, row) == pytest.approx(best, abs=1e-9)


def test_free_views_are_all_taken_and_dear_ones_never() -> None:
    fitted = _fitted()
    assert thresholds_at(1000.0, fitted) == (0.0,) * (VIEWS - 1)
    means = [
        _mean_views(fitted, thresholds_at(price, fitted)) for price in (1e-5, 0.003, 0.03, 0.3)
    ]
    assert all(more >= fewer for more, fewer in itertools.pairwise(means))
    assert means[0] > 2 > means[-1]


def _mean_views(fitted: ScoredExits, thresholds: tuple[float, ...]) -> float:
    enough = fitted.confidence[:-1] > np.array(thresholds)[:, None]
    return float(np.where(enough.any(axis=0), enough.argmax(axis=0) + 1, VIEWS).mean())


@pytest.mark.parametrize("budget", [1.0, 1.3, 1.7, 2.0, 2.5, 3.0, 6.0])
def test_a_budget_is_kept_and_used_as_far_as_it_pays(budget: float) -> None:
    fitted = _fitted()
    most = _mean_views(fitted, thresholds_at(PRICES[0], fitted))
    mean = _mean_views(fitted, rule_within(budget, fitted))
    assert min(budget, most) - 0.05 <= mean <= budget


def test_a_mean_number_of_views_holds_on_new_images_and_beats_fixed_ones() -> None:
    report = _report("views=2.5", 2000)
    assert report.rule.mean_views <= 2.5
    assert report.own.views == pytest.approx(2.5, abs=0.25)
    assert report.over_same.views == report.own.views
    assert report.over_same.cll.low > 0
    assert report.over_next.views == 3


def _report(target: str, images: int, policy: Policy | None = None) -> ExitReport:
    policy = policy or policy_of()
    learned_on, other = predictions(images, 1), predictions(images, 2)
    rule = learn_early_exit(*learned_on, policy, target)
    return report_early_exit(rule, *other, policy, learned_on=learned_on)


def test_a_loss_of_accuracy_is_supported_by_the_half_that_did_not_make_the_rule() -> None:
    policy = policy_of()
    log_probs, labels = predictions(3000, 1)
    rule = learn_early_exit(log_probs, labels, policy, "accuracy-loss=0.01", seed=4)
    _, prove = stratified_split(labels, 0.5, 4)
    exited = apply_early_exit(rule, log_probs[:, prove], exit_counts(policy))
    own = exited.log_probs.argmax(axis=1) == labels[prove]
    full = mean_log_probs(log_probs[:, prove]).argmax(axis=1) == labels[prove]
    lost, gained = int((full & ~own).sum()), int((own & ~full).sum())
    assert loss_bound(lost, gained, len(prove)) <= 0.01
    assert 1 < rule.mean_views < 0.8 * VIEWS


def test_a_supported_loss_is_exceeded_on_new_images_as_rarely_as_promised() -> None:
    policy = policy_of(3)
    truth, truth_labels = predictions(40_000, 999, views=3)
    full = (mean_log_probs(truth).argmax(axis=1) == truth_labels).mean()
    exceeded = []
    for seed in range(30):
        rule = learn_early_exit(*predictions(1500, seed, views=3), policy, "accuracy-loss=0.01")
        exited = apply_early_exit(rule, truth, exit_counts(policy))
        own = (exited.log_probs.argmax(axis=1) == truth_labels).mean()
        exceeded.append(full - own > 0.01)
    assert np.mean(exceeded) <= 0.13  # 5 % are allowed: 5 of 30 would happen once in 60 times


def test_the_same_seed_gives_the_same_rule() -> None:
    log_probs, labels = predictions(1500)
    one, two = (
        learn_early_exit(log_probs, labels, policy_of(), "accuracy-loss=0.02", seed=1)
        for _ in range(2)
    )
    assert one == two


def test_too_few_images_are_refused_with_the_number_needed() -> None:
    message = r"400 images .* too few .* at least 1,078 are needed.*: give more \(--data\)"
    own = *predictions(400), policy_of(), "accuracy-loss=0.005"
    refused(message, learn_early_exit, *own)


def test_a_mean_of_few_images_has_a_wide_interval_instead_of_a_refusal() -> None:
    few, many = (_report("views=2", images) for images in (30, 3000))
    for report in (few, many):
        assert report.views.low < report.own.views < report.views.high
        interval = f"[{report.views.low:.2f}, {report.views.high:.2f}] views per image instead of"
        assert f"{report.own.views:.2f} {interval}" in report.sentence
    assert many.note is None
    assert few.note is not None
    told = re.fullmatch(
        r"30 images tell the mean number of views only within (\d+) %; about (\d+) to report on "
        r"would tell it within 10 % \(--data\)",
        few.note,
    )
    assert told is not None
    assert int(told[2]) == pytest.approx(30 * (int(told[1]) / 10) ** 2, rel=0.1)


def test_the_interval_of_the_mean_number_of_views_contains_that_of_all_images() -> None:
    learned_on, policy = predictions(300, 1), policy_of()
    rule = learn_early_exit(*learned_on, policy, "views=2")
    exited = apply_early_exit(rule, predictions(20_000, 999)[0], exit_counts(policy))
    held = []
    for seed in range(2, 42):
        own = predictions(40, seed)
        found = report_early_exit(rule, *own, policy, learned_on=learned_on).views
        held.append(found.low <= exited.views.mean() <= found.high)
    assert np.mean(held) >= 0.85


def test_a_loss_that_no_rule_keeps_to_is_refused() -> None:
    """Views that all but the last are noise: whoever stops early loses."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 5, 1200)
    noise = 8 * generator.normal(size=(2, 1200, 5))
    noise[1, np.arange(1200), labels] += 60
    log_probs = noise - np.log(np.exp(noise).sum(axis=-1, keepdims=True))
    with pytest.raises(RelookError, match=r"support no rule that saves views|allow a larger loss"):
        learn_early_exit(log_probs, labels, policy_of(2), "accuracy-loss=0.005")


@pytest.mark.parametrize(
    "text",
    ["", "views", "views=0.5", "views=inf", "views=x", "loss=0.1", "accuracy-loss=0", "views=nan"],
)
def test_strange_targets_are_refused(text: str) -> None:
    refused("target: expected accuracy-loss=SHARE", parse_target, text)


def test_targets_are_written_as_they_are_read() -> None:
    for text in ("accuracy-loss=0.005", "views=5", "views=2.5"):
        assert str(parse_target(text)) == text


def test_wrong_predictions_are_refused() -> None:
    log_probs, labels = predictions(200)
    learn, own = learn_early_exit, (log_probs, labels)
    refused("at most the policy's 6 distinct views", learn, *own, policy_of(), "views=7")
    refused("predictions of 5 distinct views", learn, *own, policy_of(5), "views=2")
    few = log_probs, labels[:100]
    refused("a label for each of 200 images", learn, *few, policy_of(), "views=2")
    refused("at least 2 distinct views", learn, log_probs[:1], labels, policy_of(1), "views=1")


def test_a_report_counts_what_the_rule_does() -> None:
    policy = policy_of()
    learned_on, (log_probs, labels) = predictions(800, 1), predictions(700, 2)
    rule = learn_early_exit(*learned_on, policy, "views=2")
    report = report_early_exit(rule, log_probs, labels, policy, learned_on=learned_on)
    exited = apply_early_exit(rule, log_probs, exit_counts(policy))
    likelihoods = exited.log_probs[np.arange(700), labels]
    assert report.own.views == exited.views.mean()
    assert report.own.cll == pytest.approx(likelihoods.mean())
    assert report.exits == tuple((exited.views == k).sum() for k in range(1, VIEWS + 1))
    assert len(report.fixed) == VIEWS
    assert report.over_full.views == VIEWS
    gap = report.own.cll - report.fixed[-1].cll
    assert report.over_full.cll.estimate == pytest.approx(gap)
    low, high = report.fixed[math.floor(report.own.views) - 1 :][:2]
    share = report.own.views % 1
    same = (1 - share) * low.accuracy + share * high.accuracy
    assert report.over_same.accuracy.estimate == pytest.approx(report.own.accuracy - same)
    assert report.over_next.cll.estimate == pytest.approx(report.own.cll - high.cll)
    assert [point.views for point in report.curve] == sorted(p.views for p in report.curve)
    assert "views per image instead of 6" in report.sentence
    assert re.search(r", and (no )?better than a fixed \d\.\d\d views per image", report.sentence)


def _copies(groups: int, copies: int, seed: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Predictions of images of which each is there `copies` times, and the groups that say so."""
    log_probs, labels = predictions(groups, seed, views=3)
    numbers = np.repeat(np.arange(groups), copies)
    return log_probs[:, numbers], labels[numbers], numbers


def test_copies_of_images_prove_no_more_than_the_images() -> None:
    """As images of their own they supported rules that lose more than the limit, one in three."""
    policy, target, limit = policy_of(3), "accuracy-loss=0.03", 0.03
    truth, truth_labels = predictions(10_000, 999, views=3)
    full = (mean_log_probs(truth).argmax(axis=1) == truth_labels).mean()
    exceeded = []
    for seed in range(15):
        log_probs, labels, groups = _copies(200, 20, seed)
        try:
            rule = learn_early_exit(log_probs, labels, policy, target, seed=seed, groups=groups)
        except RelookError:
            continue
        own = apply_early_exit(rule, truth, exit_counts(policy)).log_probs.argmax(axis=1)
        exceeded.append(full - (own == truth_labels).mean() > limit)
    assert len(exceeded) > 10
    assert np.mean(exceeded) <= 0.1


def test_too_few_groups_are_refused_with_the_number_needed() -> None:
    log_probs, labels, groups = _copies(60, 40, 0)
    refused(
        "60 groups of images to learn on are too few .* at least 1,078 are needed",
        learn_early_exit,
        *(log_probs, labels, policy_of(3), "accuracy-loss=0.005"),
        groups=groups,
    )
    learned_on, (log_probs, labels, groups) = predictions(300, 1, views=3), _copies(20, 40, 0)
    rule = learn_early_exit(*learned_on, policy_of(3), "views=2")
    own = rule, log_probs, labels, policy_of(3)
    alone, grouped = (
        report_early_exit(*own, learned_on=learned_on, groups=one).views for one in (None, groups)
    )
    assert grouped.high - grouped.low > 3 * (alone.high - alone.low)


def test_a_few_lucky_images_are_not_sure_of_a_difference() -> None:
    policy = policy_of()
    learned_on, (log_probs, _) = predictions(800, 1), predictions(40, 2)
    rule = learn_early_exit(*learned_on, policy, "views=2")
    counts = exit_counts(policy)
    exited = apply_early_exit(rule, log_probs, counts)
    lucky = exited.log_probs.argmax(axis=1)
    found = report_early_exit(rule, log_probs, lucky, policy, learned_on=learned_on).over_full.cll
    exits = ScoredExits.of(log_probs, lucky, counts, rule.temperatures)
    own = exits.likelihood[exited.views - 1, np.arange(40)]
    alone = paired_interval(own - exits.likelihood[-1])
    assert found.estimate == pytest.approx(alone.estimate)
    assert found.high - found.low > 1.5 * (alone.high - alone.low)
