"""Mistakes of a set-up are named, and sound set-ups, however weak, give no note."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relook.numerics.arrays import Labels, LogProbs
from relook.numerics.calibration import temper
from relook.policy_search.notes import set_up_note

Case = tuple[LogProbs, Labels]

NUMBERS = tuple(map(str, range(1000)))


def answered(answers: Labels, classes: int, sure: float = 0.91) -> LogProbs:
    """Return predictions that are as sure of each answer."""
    rest = (1 - sure) / (classes - 1)
    return np.log(np.eye(classes)[answers] * (sure - rest) + rest)


def network(
    classes: int = 10,
    images: int = 256,
    *,
    margin: float = 5.0,
    over: float = 1.0,
    shares: Any = None,
    seed: int = 0,
) -> Case:
    """Return calibrated predictions of a network, `over` times too sure, and labels.

    The higher the margin, the more often it is right.
    """
    generator = np.random.default_rng(seed)
    labels = generator.choice(classes, images, p=shares)
    logits = generator.normal(0, np.sqrt(margin), (images, classes))
    logits[np.arange(images), labels] += margin  # with this shift, softmax is the posterior
    return temper(logits, 1 / over), labels


def relabelled(case: Case, share: float) -> Case:
    """Replace a share of the labels by any of them."""
    log_probs, labels = case
    generator = np.random.default_rng(7)
    wrong = generator.random(len(labels)) < share
    return log_probs, np.where(wrong, generator.permutation(labels), labels)


RARE = 0.6 ** np.arange(10) / (0.6 ** np.arange(10)).sum()
SOUND: dict[str, Callable[[int], Case]] = {
    "strong": lambda seed: network(margin=9, seed=seed),
    "weak": lambda seed: network(margin=1.5, seed=seed),
    "too sure": lambda seed: network(margin=5, over=2.5, seed=seed),
    "by heart: as often wrong, and far too sure": lambda seed: network(
        margin=1.5, over=4, seed=seed
    ),
    "not sure enough": lambda seed: network(margin=6, over=0.6, seed=seed),
    "few images": lambda seed: network(images=60, margin=4, seed=seed),
    "two classes": lambda seed: network(2, margin=2, over=2, seed=seed),
    "a hundred classes": lambda seed: network(100, margin=7, over=1.5, seed=seed),
    "a thousand classes": lambda seed: network(1000, margin=8, over=1.5, seed=seed),
    "rare classes": lambda seed: network(margin=3, shares=RARE, seed=seed),
    "rare classes, too sure": lambda seed: network(margin=3, shares=RARE, over=3, seed=seed),
    "a tenth of the labels wrong": lambda seed: relabelled(network(margin=6, seed=seed), 0.1),
    "too sure, and labels wrong": lambda seed: relabelled(
        network(margin=6, over=2.5, seed=seed), 0.1
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_set_ups_give_no_note(name: str) -> None:
    for seed in range(20):
        log_probs, labels = SOUND[name](seed)
        assert set_up_note(log_probs, labels, NUMBERS[: log_probs.shape[1]]) is None, seed


def note(log_probs: LogProbs, labels: Labels, *classes: str) -> str:
    return set_up_note(log_probs, labels, classes or NUMBERS[: log_probs.shape[1]]) or ""


def test_one_answer_for_all_is_chance_and_a_weak_model_is_not() -> None:
    generator = np.random.default_rng(0)
    labels = generator.choice(3, 300, p=[0.8, 0.1, 0.1])
    assert "which is chance: check" in note(answered(labels * 0, 3), labels)
    weak = np.where(generator.random(300) < 0.4, labels, generator.integers(0, 3, 300))
    assert note(answered(weak, 3, 0.6), labels) == ""
    guessed = generator.integers(0, 3, 300)
    assert "which is chance: check" in note(answered(guessed, 3), labels)


def test_a_wrong_order_of_classes_is_noticed_and_the_right_one_named() -> None:
    labels = np.repeat(np.arange(5), 20)
    right = answered(labels, 5)
    assert note(right, labels) == ""
    told = note(np.roll(right, 1, 1), labels, "a", "b", "c", "d", "e")
    assert "accuracy is 0.0 % on the search images, which is chance, and 100.0 % if" in told
    assert "(counted from 0: 'a' 1, 'b' 2, 'c' 3, 'd' 4, …)" in told
    assert note(np.roll(right, 1, 1)[:49], labels[:49]) == "", "too few to say"


def test_an_order_that_has_a_name_is_called_by_it() -> None:
    log_probs, labels = network(100, margin=9)
    by_text = sorted(NUMBERS[:100])
    as_text = np.array([by_text.index(str(label)) for label in labels])
    assert "if the model's classes are sorted by number: name" in note(log_probs, as_text, *by_text)
    names = [f"{99 - label:02}" for label in range(100)]
    assert "if the model's classes are sorted by name: name" in note(log_probs, 99 - labels, *names)


@pytest.mark.parametrize(("classes", "moved"), [(10, 10), (10, 3), (100, 100)])
def test_orders_are_found_for_weak_networks_and_some_classes_only(classes: int, moved: int) -> None:
    log_probs, labels = network(classes, margin=8 if classes == 100 else 3)
    order = np.arange(classes)
    order[:moved] = np.roll(order[:moved], 1)
    told = note(log_probs, order[labels])
    assert "if the model's classes are in another order" in told
    assert "'0' 1, '1' 2" in told


def test_names_of_any_kind_stay_on_one_line() -> None:
    labels = np.repeat(np.arange(3), 30)
    told = note(np.roll(answered(labels, 3), 1, 1), labels, "a\nb", "x" * 1000, "[red]")
    assert len(told) < 400
    assert len(told.splitlines()) == 1


def test_answers_that_crowd_and_are_surer_than_right_point_to_the_normalisation() -> None:
    """As public CIFAR networks answer without mean and std: right on 37 %, 70 % sure."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 10, 256)
    crowd = generator.choice([2, 6], 256)
    right = generator.random(256) < 0.25
    crowded = answered(np.where(right, labels, crowd), 10, 0.7)
    assert "check mean and std (--mean, --std), the scale" in note(crowded, labels)
    told = set_up_note(crowded, labels, NUMBERS[:10], ("mean", "std")) or ""
    assert "check mean and std (--mean, --std: none given), the scale" in told
    told = set_up_note(crowded, labels, NUMBERS[:10], ("std",)) or ""
    assert "check mean and std (--mean, --std: no std given), the scale" in told
    spread = answered(np.where(right, labels, generator.integers(0, 10, 256)), 10, 0.7)
    assert note(spread, labels) == "", "a network that overfits"


def test_extreme_temperatures_are_noticed() -> None:
    log_probs, labels = network(margin=3, over=20)
    assert "check mean and std" in note(log_probs, labels)
    probabilities = np.exp(network(margin=6)[0])
    told = note(temper(probabilities, 1.0), network(margin=6)[1])
    assert "probabilities rather than logits (outputs)" in told


def test_answers_may_be_classes_that_the_data_has_no_name_for() -> None:
    """A network of forty classes, ten of them in the data, says 25 for one of these."""
    labels = np.arange(200) % 10
    answers = np.where(labels == 3, 25, labels)
    note = set_up_note(answered(answers, 40), labels, NUMBERS[:10])
    assert note is not None
    assert "'3' 25" in note
    assert "'25'" not in note
