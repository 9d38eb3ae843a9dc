from dataclasses import replace

import numpy as np
import pytest
from tests.support import refused
from tests.unit.data.marked_images import TURNED, TURNS, noisy
from tests.unit.evaluation.verdict_cases import compared, gains, judged, rows_of

from relook.data import load_data
from relook.evaluation.baselines import POLICY_METHOD
from relook.evaluation.compare import compare
from relook.evaluation.comparison import Measured, outcome_of
from relook.models import TorchPredictor
from relook.models.small import new_small
from relook.numerics.intervals import Interval, paired_interval
from relook.policy import Policy, Step, SubPolicy
from relook.studies.training import train


def test_helps_where_views_have_noise_of_their_own() -> None:
    comparison = compared(*noisy())
    verdict = comparison.verdict
    assert (verdict.outcome, verdict.recommended_method) == ("helps", POLICY_METHOD)
    assert verdict.recommended_views == 4
    assert verdict.sentence.startswith(
        "Helps: use the learned policy with 4 views. Compared with the plain image: held-out "
        "cLL +0."
    )
    row = comparison.row(POLICY_METHOD, 4)
    assert row is not None
    assert row.over_plain is not None
    gain = row.over_plain["cll"]
    assert f"cLL {gain.estimate:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}], acc" in verdict.sentence
    assert (
        "Compared with the best baseline, the image and its mirror image, also with a learned "
        "average: cLL +"
    ) in verdict.sentence
    assert " The policy takes about 4 × the time of one view." in verdict.sentence
    assert verdict.sentence.endswith(
        "All of the policy's gain over the plain image comes from its views."
    )


@pytest.mark.parametrize("seed", range(4))
def test_no_difference_where_every_view_says_the_same(seed: int) -> None:
    dataset, logits = noisy()
    generator = np.random.default_rng(seed)
    same = logits[:1] + 0.01 * generator.normal(size=logits.shape)
    verdict = compared(dataset, same).verdict
    assert verdict.outcome == "no difference"
    assert (verdict.recommended_method, verdict.recommended_views) == ("plain", 1)
    assert verdict.sentence.startswith(
        "No difference: use the plain image. The learned policy with 4 views, compared with the "
        "plain image: held-out cLL "
    )
    assert verdict.sentence.endswith(" The policy takes about 4 × the time of one view.")


def test_an_interval_that_includes_no_gain_is_named() -> None:
    dataset, logits = noisy()
    logits[1:] = logits[0] + np.random.default_rng(0).normal(0, 0.1, logits[1:].shape)
    sentence = compared(dataset, logits).verdict.sentence
    assert ". The interval includes zero and excludes gains above 0.01. " in sentence


@pytest.mark.parametrize(("loss", "worse"), [(0.008, True), (0.002, False)])
def test_an_interval_that_is_nearly_all_loss_is_said_to_be_more_likely_worse(
    loss: float, worse: bool
) -> None:
    noise = np.random.default_rng(0).normal(size=500)
    plain = np.full(500, -1.0)
    own = plain - loss + 0.1 * (noise - noise.mean()) / noise.std()
    scores = {("plain", 1): plain, ("gps", 5): own}
    verdict = judged(scores, (5,))
    assert verdict.outcome == "no difference"
    head = "No difference, though more likely worse than better: use the plain image."
    assert verdict.sentence.startswith(head) == worse
    assert ("The interval includes zero, but nearly all of it is a loss." in verdict.sentence) == (
        worse
    )


def test_a_verdict_of_halves_does_not_call_its_images_held_out() -> None:
    scores = gains(5000, gps_5=0.05)
    verdict = judged(scores, (5,), cll_name="cross-fit cLL")
    assert "plain image: cross-fit cLL +0.05" in verdict.sentence


def test_hurts_where_the_other_views_are_noise() -> None:
    verdict = compared(*noisy(noise=(2.0, 12.0, 12.0, 12.0))).verdict
    assert verdict.outcome == "hurts"
    assert (verdict.recommended_method, verdict.recommended_views) == ("plain", 1)
    assert verdict.sentence.startswith(
        "Hurts: use the plain image. The learned policy with 4 views, compared with the plain "
        "image: held-out cLL −"
    )


def test_hurts_a_network_that_has_only_seen_upright_digits() -> None:
    digits = load_data("digits")
    network = train(
        new_small(width=8),
        digits.subset(np.arange(1000)),
        epochs=12,
        seed=0,
        recipe="small",
        augment="none",
        batch=64,
    )
    sides = tuple(SubPolicy((Step("quarter_turn", k), Step("flip", 0))) for k in (0, 1, 3))
    comparison = compare(
        TorchPredictor(network, classes=10),
        digits.subset(np.arange(1000, len(digits))),
        Policy((SubPolicy(), *sides), recipe="small", seen=b""),
        recipe="small",
        budgets=(1, 2, 4),
        methods=("flip", "d4"),
    )
    plain = comparison.row("plain", 1)
    assert plain is not None
    assert plain.metrics["accuracy"].mean > 0.8
    verdict = comparison.verdict
    assert verdict.outcome == "hurts"
    assert verdict.recommended_method == "plain"
    assert ", accuracy −" in verdict.sentence


# The rule


@pytest.mark.parametrize(
    ("estimate", "low", "high", "outcome"),
    [
        (0.02, 0.01, 0.03, "helps"),
        (0.02, -0.001, 0.04, "too few images to tell"),
        (-0.02, -0.08, 0.04, "too few images to tell"),
        (0.004, -0.001, 0.009, "no difference"),
        (0.0008, 0.0005, 0.0011, "no difference"),
        (0.0, 0.0, 0.0, "no difference"),
        (-0.0008, -0.0011, -0.0005, "no difference"),
        (-0.02, -0.04, 0.001, "no difference"),
        (-0.02, -0.03, -0.01, "hurts"),
    ],
)
def test_the_outcome_needs_the_interval_and_the_margin(
    estimate: float, low: float, high: float, outcome: str
) -> None:
    assert outcome_of(Interval(estimate, low, high, 0.95), margin=0.001) == outcome


def test_nothing_is_claimed_too_often_where_there_is_nothing() -> None:
    generator = np.random.default_rng(0)
    outcomes = [outcome_of(paired_interval(generator.normal(size=300))) for _ in range(300)]
    # 2.5 % are expected on either side: more than 16 of 300 has a chance of 1 in 1,000.
    assert outcomes.count("helps") <= 16
    assert outcomes.count("hurts") <= 16
    assert outcomes.count("too few images to tell") >= 270


def test_the_margin_of_indifference_is_the_users() -> None:
    dataset, logits = noisy()
    assert compared(dataset, logits, margin=0.001).verdict.outcome == "helps"
    careless = compared(dataset, logits, margin=2.0).verdict
    assert careless.outcome == "no difference"
    assert " That is within the margin of indifference (2). " in careless.sentence
    assert careless.recommended_method == "plain"
    refused("expected a margin of indifference ≥ 0, got -1", compared, dataset, logits, margin=-1)


def test_a_shorter_policy_that_is_as_good_is_recommended() -> None:
    scores = gains(5000, gps_5=0.05, gps_20=0.05)
    scores["gps", 20] = scores["gps", 5] + 0.0005
    verdict = judged(scores, (5, 20))
    assert verdict.outcome == "helps"
    assert (verdict.recommended_method, verdict.recommended_views) == ("gps", 5)
    assert verdict.sentence.startswith(
        "Helps, compared only with the plain image: use the learned policy with 5 views, as good "
        "as 20. Compared with the plain image: cLL +0.05"
    )
    # What is deployed comes first, then what is claimed.
    assert verdict.sentence.index("It takes about 5.5 × the time") < verdict.sentence.index(
        "The learned policy with 20 views, compared with the plain image: held-out cLL +0.05"
    )
    assert verdict.sentence.endswith("The policy takes about 22 × the time of one view.")


@pytest.mark.parametrize(
    ("images", "ahead", "budgets", "margin", "views"),
    [
        (5000, 0.002, (5, 20), 0.001, 20),  # the shorter one may be worse
        (500, 0.0005, (5, 20), 0.001, 20),  # too little is known of it: noise of its own
        (500, 0.0005, (5, 20), 0.03, 5),
        (5000, 0.0, (20,), 0.001, 20),  # nobody asked for the shorter one
    ],
)
def test_a_shorter_policy_is_recommended_only_if_it_is_as_good(
    images: int, ahead: float, budgets: tuple[int, ...], margin: float, views: int
) -> None:
    scores = gains(images, gps_5=0.05 - ahead, gps_20=0.05)
    if images == 5000:
        scores["gps", 20] = scores["gps", 5] + ahead
    verdict = judged(scores, budgets, margin=margin)
    assert verdict.recommended_views == views
    assert ("as good as" in verdict.sentence) == (views == 5)


BEYOND = "; the learned views show no further gain"


@pytest.mark.parametrize(
    ("images", "means", "recommended", "head", "words"),
    [
        (
            5000,
            {"flip_2": 0.06, "gps_10": 0.05},
            ("flip", 2),
            f"Averaging helps{BEYOND}: use the image and its mirror image.",
            (
                "the best baseline, the image and its mirror image: cLL −0.0",
                "; the policy falls behind.",
            ),
        ),
        (
            500,
            {"cf_10": 0.05, "gps_10": 0.055},  # it leads, without proof
            ("gps", 10),
            "Averaging helps: use the learned policy with 10 views. ",
            (
                "the best baseline, random crops (CF) with 10 views: cLL +0.0050 [",
                "; no gain is shown. ",
            ),
        ),
        (
            5000,
            {"m10c_10": 0.05, "gps_10": 0.0},
            ("10c", 10),
            f"Averaging helps{BEYOND}: use 10 crops (10C). Compared with the plain image: "
            "cLL +0.0500 [",
            ("The learned policy with 10 views, compared with the plain image: ",),
        ),
    ],
)
def test_averaging_may_help_where_the_learned_views_are_not_shown_to(
    images: int,
    means: dict[str, float],
    recommended: tuple[str, int],
    head: str,
    words: tuple[str, ...],
) -> None:
    verdict = judged(gains(images, 0, **means))
    assert verdict.outcome == "averaging helps"
    assert (verdict.recommended_method, verdict.recommended_views) == recommended
    assert verdict.sentence.startswith(head)
    assert all(one in verdict.sentence for one in words)


def test_the_best_of_many_baselines_is_ahead_by_luck() -> None:
    """A difference just beyond two standard errors, by the best of six, proves nothing."""
    names = ("cf_10", "random_10", "flip_2", "5c_5", "d4_8")
    others = dict.fromkeys(names, 0.0475) | {"10c_10": 0.0545}
    scores = gains(5000, 0, gps_10=0.05, **others)
    many = judged(scores).sentence
    assert "the best baseline, 10 crops (10C): cLL −0.0" in many
    assert "; no gain is shown. " in many
    alone = {key: scores[key] for key in (("plain", 1), ("gps", 10), ("10c", 10))}
    assert "; the policy falls behind." in judged(alone).sentence


def test_where_the_policy_helps_nothing_else_is_advised() -> None:
    # Ahead of the baseline by less than the margin, but surely: the cheaper one is "not worse".
    scores = gains(5000, flip_2=0.05, gps_10=0.05)
    scores["gps", 10] = scores["flip", 2] + 0.0009
    verdict = judged(scores)
    assert verdict.outcome == "helps"
    assert verdict.recommended_method == "gps"


def test_too_few_images_are_said_with_how_many_would_do() -> None:
    scores = gains(60, gps_10=0.0)
    noise = 0.1 * np.resize([-1.0, 1.0], 60)
    scores["gps", 10] = scores["plain", 1] + 0.02 + noise
    verdict = judged(scores)
    assert verdict.outcome == "too few images to tell"
    assert verdict.recommended_method == "plain"
    assert verdict.sentence.startswith("Too few images to tell: use the plain image. ")
    # The lower end is 0.0261 below 0.02: 60 · (0.0261 / 0.02)² = 102 just leave zero out.
    assert (
        "About 200 held-out images like these 60 would be needed to show a gain of 0.02 in cLL: "
        "give more, or search with cross_fit=True (--cross-fit), which compares on all images."
    ) in verdict.sentence
    left_out = judged(scores, left_out=700).sentence
    assert (
        "in cLL: the search left 700 images out, which  relook compare RUN --data DATA,  or "
        "found.compare(images, labels), uses too."
    ) in left_out
    halves = judged(scores, cll_name="cross-fit cLL", cross_fit=True).sentence
    assert "About 200 images like these 60 would" in halves
    assert "in cLL: give more. " in halves
    # Where the estimate is no gain, it is the smallest one worth looking for.
    worse = gains(60, gps_10=-0.01)
    sentence = judged(worse).sentence
    assert " to show a gain of 0.01 in cLL: give more" in sentence
    many = gains(6000, gps_10=-0.001)
    assert "too few" not in judged(many).sentence.lower()


def test_60_images_do_not_tell_of_a_gain_of_0_04() -> None:
    """With the spread that real networks have: 0.3 per image."""
    said = []
    for seed in range(40):
        generator = np.random.default_rng(seed)
        plain = -1 + 0.5 * generator.normal(size=60)
        gained = plain + 0.04 + 0.3 * generator.normal(size=60)
        scores = {("plain", 1): plain, ("gps", 10): gained}
        said.append(judged(scores))
    few = [one for one in said if one.outcome == "too few images to tell"]
    assert all(" to show a gain of 0." in one.sentence for one in few)
    # A gain of one standard error is beyond two in 17 % of samples; more than 14 of 40 is 1 in 200.
    assert len(few) >= 26
    assert {one.outcome for one in said} <= {"too few images to tell", "helps"}


@pytest.mark.parametrize(("methods", "alone"), [(("plain",), True), (("plain", "flip"), False)])
def test_what_a_policy_was_not_compared_with_is_said(methods: tuple[str, ...], alone: bool) -> None:
    found = compared(*noisy(), methods=methods).verdict
    assert found.outcome == "helps"
    assert ("Helps, compared only with the plain image: use" in found.sentence) == alone


def test_where_the_plain_image_is_the_best_baseline_that_is_said() -> None:
    scores = gains(5000, cf_10=-0.05, gps_10=0.05)
    sentence = judged(scores).sentence
    assert "Compared with the plain image, which is also the best baseline: held-out " in sentence


def test_a_preset_is_called_by_its_name() -> None:
    dataset, logits = noisy()
    for policy, name in ((Policy.preset("flip"), "mirror image"), (TURNED, "learned policy (GPS)")):
        comparison = compared(dataset, logits, policy=policy, methods=("plain",))
        assert {row.label for row in comparison.rows if row.method == "gps"} == {name}
        assert ("learned policy" in comparison.verdict.sentence) == (policy is TURNED)


def test_a_policy_is_not_compared_with_itself() -> None:
    dataset, logits = noisy()
    comparison = compared(dataset, logits, policy=Policy.preset("flip"))
    assert comparison.settings["left_out"] == {"flip": "it is the policy itself"}
    assert {row.method for row in comparison.rows} == {"plain", "gps"}


def test_the_best_of_many_baselines_needs_more_evidence_than_one() -> None:
    # 2.4 standard errors: enough for one baseline, not for the best of nine.
    images = 2500
    borderline = 2.4 * 0.1 / np.sqrt(images)
    one = gains(images, flip_2=borderline, gps_10=0.0)
    assert judged(one).recommended_method == "flip"
    useless = one["plain", 1] - 0.01
    many = one | {(name, k): useless for name in ("cf", "random") for k in (1, 2, 5, 10)}
    verdict = judged(many, (1, 2, 5, 10))
    assert verdict.recommended_method == "plain"


def test_what_the_views_and_what_the_average_bring_is_said() -> None:
    scores = gains(5000, gps_10=0.05)
    rows = rows_of(scores)
    metrics = {**rows[-1].metrics, "cll_usual_average": Measured(rows[0].best_cll + 0.02, 0.0)}
    rows[-1] = replace(rows[-1], metrics=metrics)
    verdict = judged(scores, rows=rows)
    assert verdict.sentence.endswith(
        "Of the policy's gain over the plain image, 0.0200 comes from the views and 0.0300 from "
        "their learned average."
    )
    assert (verdict.from_views, verdict.from_average) == pytest.approx((0.02, 0.03))


def test_groups_of_images_widen_the_interval() -> None:
    generator = np.random.default_rng(3)
    groups = np.repeat(np.arange(20), 50)
    plain = generator.normal(size=1000)
    gain = 0.03 + 0.1 * generator.normal(size=20)[groups]
    scores = {("plain", 1): plain, ("gps", 4): plain + gain, ("flip", 2): plain + gain}
    alone, together = judged(scores, (4,)), judged(scores, (4,), groups=groups)
    assert alone.recommended_method == "flip"
    assert together.recommended_method == "plain"


def test_a_verdict_needs_the_policy() -> None:
    scores = gains(50, flip_2=0.1, gps_2=0.1)
    rows = rows_of(scores)
    for left_out in ("gps", "plain"):
        kept = [row for row in rows if row.method != left_out]
        refused("needs the policy and the plain image", judged, scores, (2,), kept)


def test_a_policy_that_is_the_plain_image_makes_no_difference() -> None:
    verdict = compared(*noisy(), policy=Policy(TURNS[:1]), methods=("plain",)).verdict
    assert verdict.outcome == "no difference"
    assert "predictions are the same as the plain image's" in verdict.sentence
    assert (verdict.recommended_method, verdict.recommended_views) == ("plain", 1)


# Accuracy, and what was passed over


def moved(images: int, points: float) -> dict[tuple[str, int], np.ndarray]:
    """The policy's accuracy moves by so many points, as the answers on some images do."""
    changed = np.zeros(images)
    changed[: round(images * abs(points) / 100)] = np.sign(points)
    return {("gps", 20): changed}


def test_an_accuracy_that_is_surely_lower_is_never_recommended() -> None:
    # As good in cLL as random crops, whose gain needs more proof; so the policy was recommended.
    scores = gains(400, gps_20=0.0105)
    scores["cf", 20] = scores["gps", 20] + 1e-5 + 0.0005 * np.resize([1.0, -1.0], 400)
    scores |= {("mtrain", k): scores["plain", 1] - 1 for k in (5, 10, 20)}
    equal = judged(scores, (5, 10, 20))
    assert equal.recommended_method == "gps"
    assert (
        "The cLL of random crops (CF) with 20 views is higher, but that is no proof of a gain over "
        "the plain image: the best of 4 choices can be that high by chance."
    ) in equal.sentence
    scores["cf", 20] += 0.3 * np.resize([1.0, -1.0], 400)
    alone = judged({key: one for key, one in scores.items() if key[0] != "mtrain"}, (20,))
    assert "of a gain over the plain image: it can be that high by chance." in alone.sentence
    scores["cf", 20] -= 0.3 * np.resize([1.0, -1.0], 400)
    worse = judged(scores, (5, 10, 20), right=moved(400, -2))
    assert (worse.recommended_method, worse.recommended_views) == ("cf", 20)
    assert "; no gain is shown, and its accuracy is lower. " in worse.sentence
    assert "accuracy −2.0 points [" in worse.sentence


def test_time_never_decides_what_is_recommended() -> None:
    scores = gains(5000, cf_10=0.05, gps_10=0.05, gps_5=0.05)
    rows = rows_of(scores)
    slower = [replace(row, slowdown=1000 / row.slowdown) for row in rows]
    one, other = judged(scores, (5, 10), rows), judged(scores, (5, 10), slower)
    assert (one.recommended_method, one.recommended_views) == (
        other.recommended_method,
        other.recommended_views,
    )


def test_a_prefix_that_loses_to_a_baseline_is_not_recommended_where_the_policy_helps() -> None:
    scores = gains(5000, gps_20=0.05, cf_5=0.05, gps_5=0.05)
    scores["gps", 5] = scores["gps", 20] - 0.0005
    scores["cf", 5] = scores["gps", 5] + 0.0001
    assert judged(scores, (5, 20)).recommended_views == 5
    right = {("cf", 5): moved(5000, 2)["gps", 20]}
    verdict = judged(scores, (5, 20), right=right)
    assert (verdict.outcome, verdict.recommended_views) == ("helps", 20)


@pytest.mark.parametrize(
    ("gain", "points", "words"),
    [
        (0.0, 3, "; accuracy improves, but the recommendation is based on cLL."),
        (0.0, -3, "; accuracy falls."),
        (0.05, -3, "; accuracy falls, but the recommendation is based on cLL."),
        (0.05, 3, "]. "),
        (-0.05, -3, "]. "),
    ],
)
def test_an_accuracy_that_moves_otherwise_than_cll_is_mentioned(
    gain: float, points: float, words: str
) -> None:
    sentence = judged(gains(5000, gps_20=gain), (20,), right=moved(5000, points)).sentence
    change = sentence.partition(" points [")[2]
    assert change.partition("]")[2].startswith(words.removeprefix("]"))


@pytest.mark.parametrize(
    ("images", "spread", "why"),
    [
        (5000, 0.0, "it may be 0.0040 worse than the learned policy with 20 views."),
        (400, 0.5, "its interval, wider as it is one of 4 choices, includes zero."),
    ],
)
def test_a_cheaper_prefix_that_comes_close_is_mentioned(
    images: int, spread: float, why: str
) -> None:
    scores = gains(images, gps_20=0.05)
    noise = spread * np.random.default_rng(1).normal(size=images)
    scores["gps", 5] = scores["gps", 20] - 0.004 + noise - noise.mean()
    scores |= {("cf", k): scores["plain", 1] - 1 for k in (1, 5, 20)}
    sentence = judged(scores, (1, 5, 20)).sentence
    assert "Cheaper and nearly as good: the learned policy with 5 views, cLL +0.0460 [" in sentence
    assert f"], 5.5 × the time; not recommended because {why}" in sentence
    scores["gps", 5] = scores["gps", 20] - 0.02
    assert "Cheaper and nearly as good" not in judged(scores, (1, 5, 20)).sentence


# Picking from the frontier
