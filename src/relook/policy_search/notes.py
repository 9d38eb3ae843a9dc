"""Notes before a search begins: few images, an unsuitable recipe, mistakes in the set-up.

Predictions of plain images reveal mistakes before they cost hours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from relook.data.base import Dataset, are_numbers
from relook.foundation.wording import count
from relook.io.identities import union, why_unknown
from relook.models import EnsemblePredictor, Predictor
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.calibration import fit_temperature
from relook.numerics.metrics import confidences
from relook.policy.recipes import RECIPES, recipe_for
from relook.policy_search.job import FEW_IMAGES, PLAIN_VIEW, SearchJob, split_images
from relook.predictions.passes import predict_views

_MIN_IMAGES, _MAX_IMAGES = 50, 256  # that a set-up is judged by
_FOLDS = 8
_NAMES_SHOWN, _LONGEST_NAME = 4, 40

# Another order of classes must reach this accuracy, with this gain, of so many standard errors.
# Some order fits a network with random weights on one image in four.
_MIN_ACCURACY, _MIN_GAIN, _MIN_ERRORS = 0.35, 0.1, 4.0

# Temperatures that no sound network has: of eleven public ones the highest is 2.4, of small ones
# that have memorised their few training images 4.4; the lowest, by label smoothing, is 0.8.
_HIGHEST, _LOWEST = 6.0, 0.25

# Without mean and std, the accuracy of the same public networks, plus two standard errors, is below
# 0.77 of their mean confidence, and 40 to 60 % of their errors crowd on few classes. Networks that
# have memorised their training images are as wrong, but at most 30 % of their errors crowd.
_ACCURACY_OF_CONFIDENCE, _CROWDED = 0.8, 0.35
_MIN_CLASSES_TO_CROWD = 4  # of two or three classes, one often draws the errors


class SetUpNote(str):
    """A note of a probable mistake, which would make all figures meaningless."""


def search_notes(job: SearchJob, given: Predictor | None = None) -> tuple[str, ...]:
    """Return the notes for readers of the figures.

    Some search images go through the model for them, as they are. `given` is the model before it
    was accelerated.
    """
    classes, recipe = len(np.unique(job.dataset.labels)), job.settings.recipe
    searched = min(job.halves, key=len) if job.halves else job.split.search
    notes = []
    for indices, use, consequence in (
        (
            searched,
            "to search with",
            "the search can fit their noise, so believe only the "
            "held-out figures, and prefer a short policy",
        ),
        (
            job.split.held_out,
            "held out",
            "the intervals will be wide and a small gain cannot be shown"
            f"{'' if job.halves else '; cross_fit (--cross-fit) holds none out'}",
        ),
    ):
        if len(indices) < max(FEW_IMAGES, classes):
            notes.append(
                f"only {count(len(indices), 'image')} {use} ({classes} classes): {consequence}"
            )
    shape, intended = job.dataset.images.shape[1:], recipe.image_size
    size, fits = min(shape[1:]), recipe_for(*shape)[0].name
    if intended is not None and not intended / 2 <= size <= intended * 2 and recipe.name != fits:
        notes.append(
            f"the recipe {recipe.name!r} is meant for images of about {intended} pixels, "
            f"these have {size}: {fits!r} fits them, of {', '.join(RECIPES)}"
        )
    elif intended is not None and recipe.finish is not None and size < intended / 2:
        notes.append(
            f"the recipe {recipe.name!r} is meant for images of about {intended} pixels, "
            f"these have {size}, and its crops move them by up to {recipe.finish.magnitude:g}: a "
            "recipe of your own can have smaller ones"
        )
    return (*notes, *_start_notes(job), *_set_up_notes(job, given or job.predictor))


def _start_notes(job: SearchJob) -> list[str]:
    """Note which held-out images the policies to start from were found on."""
    if not job.settings.start_from:
        return []
    notes, seen = [], union(*(policy.seen for policy in job.settings.start_from))
    held_out = split_images(job.dataset, job.settings, job.test).held_out
    lost = len(held_out) - len(job.split.held_out)
    if lost:
        notes.append(
            f"{lost:,} of {len(held_out):,} held-out images are left out of the comparison: a "
            "policy to start from was found on them"
        )
    why = why_unknown(job.proof.identities, seen)
    if why:
        notes.append(
            "a policy to start from may have been found on images that are held out here "
            f"({why}): then held-out figures may be too good"
        )
    return notes


def _set_up_notes(job: SearchJob, given: Predictor) -> list[str]:
    """Predict a few images, one per group, and note what is probably wrong with the set-up."""
    places, groups = job.split.search, job.groups
    if groups is not None:
        places = places[np.unique(groups, return_index=True)[1]]
    places = np.sort(np.random.default_rng(job.settings.seed).permutation(places)[:_MAX_IMAGES])
    images, labels = job.dataset.images[places], job.dataset.labels[places]
    batch = job.settings.batch
    log_probs = predict_views(job.predictor, images, PLAIN_VIEW, seed=0, batch=batch)[0]
    unstated, is_bare = _unstated(given)
    mistake = set_up_note(log_probs, labels, job.dataset.classes, unstated)
    folders = _folders_note(job.dataset, log_probs.shape[1])
    told = "mean and std" in (mistake or "")
    found = (folders, None if told else _normalisation_note(unstated, is_bare=is_bare))
    notes = [note for note in found if note is not None]
    return notes if mistake is None else [*notes, SetUpNote(mistake)]


def _unstated(predictor: Predictor) -> tuple[tuple[str, ...], bool]:
    """Return what is not given of mean and std, and whether no source can know better."""
    if isinstance(predictor, EnsemblePredictor):
        return max(map(_unstated, predictor.members), key=lambda one: (one[1], len(one[0])))
    return getattr(predictor, "unstated", ()), getattr(predictor, "is_bare", False)


def _normalisation_note(unstated: Sequence[str], *, is_bare: bool) -> str | None:
    """Note values of mean and std that nobody has given, where they may be forgotten."""
    if len(unstated) == 1:
        (one,) = unstated
        other, value = ("mean", 1) if one == "std" else ("std", 0)
        return f"{other} is given without {one} (--{one}), taken as {value}"
    if not unstated or not is_bare:
        return None
    return (
        "mean and std (--mean, --std) are not given: the network gets values 0…1, which is right "
        "only if it was trained on them or normalises them itself"
    )


def _folders_note(dataset: Dataset, outputs: int) -> str | None:
    """Note that folders were taken for the model's first classes, by their names alone."""
    known, folders = len(dataset.classes), dataset.name.startswith("folder:")
    if not folders or known == outputs or not are_numbers(dataset.classes):
        return None
    missing = count(outputs - known, "class of the model has", "classes of the model have")
    return (
        f"the folders' names, 0 to {known - 1}, are taken for the numbers of the model's classes; "
        f"{missing} no image"
    )


def set_up_note(
    log_probs: LogProbs, labels: Labels, classes: Sequence[str], unstated: Sequence[str] = ()
) -> str | None:
    """Return what is probably wrong with a set-up, by predictions `[n, class]` of plain images.

    `classes` are the labels' names, `unstated` what is not given of mean and std. Weak and
    overconfident networks, few images, rare classes and noisy labels are no mistakes.
    """
    images = len(labels)
    if images < _MIN_IMAGES:
        return None
    answers = np.argmax(log_probs, axis=1)
    count = max(log_probs.shape[1], int(labels.max()) + 1)
    answered, labelled = (
        np.bincount(named, minlength=count) / images for named in (answers, labels)
    )
    chance = float(answered @ labelled)
    right = float(np.mean(answers == labels))
    at_chance = right <= chance + 2 * math.sqrt(chance * (1 - chance) / images)
    missing = {0: "", 1: f": no {' '.join(unstated)} given"}.get(len(unstated), ": none given")
    normalisation = f"mean and std (--mean, --std{missing})"
    note = f"accuracy is {100 * right:.1f} % on the search images"
    note += ", which is chance" if at_chance else ""
    order = _other_order(answers, labels, classes)
    if order is not None:
        return (
            f"{note}, and {order}: name the model's classes in its order with classes "
            "(--classes FILE)"
        )
    if at_chance:
        return (
            f"{note}: check that the classes are in the model's order, its weights, "
            f"and {normalisation}"
        )
    confidence = float(confidences(log_probs).mean())
    temperature = fit_temperature(log_probs, labels)
    note += (
        f", but mean confidence is {100 * confidence:.1f} % (temperature {temperature:.2g}): check "
    )
    if temperature < _LOWEST:
        return f"{note}whether it returns probabilities rather than logits (outputs)"
    at_most = right + 2 * math.sqrt(right * (1 - right) / images)
    if temperature > _HIGHEST or (
        at_most < _ACCURACY_OF_CONFIDENCE * confidence
        and _crowds(answers[answers != labels], labelled)
    ):
        return f"{note}{normalisation}, the scale of the pixels and the channels' order"
    return None


def _crowds(wrong: Indices, shares: FloatArray) -> bool:
    """Whether wrong answers crowd on few classes, more than chance or the labels explain."""
    count = len(shares)
    found = np.bincount(wrong, minlength=count) / len(wrong)
    crowd = min(np.abs(found - expected).sum() / 2 for expected in (shares, 1 / count))
    noise = math.sqrt(count / (2 * math.pi * len(wrong)))
    return count >= _MIN_CLASSES_TO_CROWD and crowd - noise > _CROWDED * max(0.0, 1 - noise)


def _other_order(answers: Indices, labels: Labels, classes: Sequence[str]) -> str | None:
    """Describe an order of the classes in which far more answers are right, if there is one."""
    right = answers == labels
    for described, answer_of in _orders(answers, labels, classes):
        fits = answers == answer_of
        gained, lost = int((fits & ~right).sum()), int((right & ~fits).sum())
        if (
            fits.mean() >= _MIN_ACCURACY
            and gained - lost >= _MIN_GAIN * len(labels)
            and gained - lost >= _MIN_ERRORS * math.sqrt(gained + lost)
        ):
            return f"{100 * float(fits.mean()):.1f} % if {described}"
    return None


def _orders(
    answers: Indices, labels: Labels, classes: Sequence[str]
) -> Iterator[tuple[str, Indices]]:
    """Yield orders of the model's classes, in words, with each image's right answer in them."""
    for described, key in (("by name", str), ("by number", _number_key)):
        place = {name: index for index, name in enumerate(sorted(classes, key=key))}
        yield (
            f"the model's classes are sorted {described}",
            np.array([place[c] for c in classes])[labels],
        )
    # An assignment fits noise too: each image is judged by one made without it.
    expected = np.empty_like(labels)
    folds = np.random.default_rng(0).permutation(len(labels)) % _FOLDS
    for fold in range(_FOLDS):
        own = folds == fold
        fitted = _best_answers(answers[~own], labels[~own])
        expected[own] = [fitted.get(label, label) for label in labels[own].tolist()]
    named = _best_answers(answers, labels)
    moved = [(label, named[label]) for label in np.unique(labels).tolist() if named[label] != label]
    pairs = [f"{classes[label][:_LONGEST_NAME]!r} {place}" for label, place in moved[:_NAMES_SHOWN]]
    pairs += ["…"] if len(moved) > _NAMES_SHOWN else []
    listed = f"(counted from 0: {', '.join(pairs)})"
    yield f"the model's classes are in another order {listed}", expected


def _best_answers(answers: Indices, labels: Labels) -> dict[int, int]:
    """Return the answer that fits each label best, each answer for one label only."""
    used, codes = np.unique(np.concatenate([labels, answers]), return_inverse=True)
    table = np.eye(len(used)) / 2  # in a tie, a class stays where it is
    np.add.at(table, (codes[: len(labels)], codes[len(labels) :]), 1)
    best = used[linear_sum_assignment(table, maximize=True)[1]].tolist()
    return dict(zip(used.tolist(), best, strict=True))


def _number_key(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts names by the numbers in them."""
    parts = re.findall(r"\d+|\D+", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
