"""What a study will cost: model passes job by job, and a guess at the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from relook.errors import RelookError
from relook.evaluation.baselines import BASELINES
from relook.models import InputSpec, Predictor, TorchPredictor
from relook.models.base import input_of
from relook.numerics.splits import parse_split
from relook.predictions.passes import View, estimate
from relook.studies.corruptions import check_corruptions, check_severities
from relook.studies.reproduce.inputs import load_study_model
from relook.studies.reproduce.plan import Job, search_settings
from relook.studies.reproduce.settings import (
    ComparePart,
    EnsemblesPart,
    RobustnessPart,
    StudyData,
    StudyFile,
    TransferPart,
)
from relook.studies.training.networks import get_network

STEP = 3
"""A step of training costs about as much as this many passes: forward, and twice back."""

_TRIED = 32  # images of the passes that are timed
_VIEWS = 12


def pool_size(study: StudyFile) -> int:
    """Return how many candidates a search of the study has."""
    settings = search_settings(study)
    if settings.pool_size is not None:
        return settings.pool_size
    return sum(group.count for group in settings.recipe.groups) + settings.plain


def passes_of(job: Job, study: StudyFile) -> int | None:
    """Return the model passes of a job, at most; None where images are not counted in the file.

    A training's count as three, for the steps back.
    """
    if job.part == "train":
        data = study.data[job.entry.data]
        images, kept = data.train_images, data.validation
        seen = images if images is None or kept is None else 2 * images - kept
        return None if seen is None else STEP * study.train.epochs * seen
    total = 0
    for entry in job.entries:
        counts = _counts(study.data[entry.data], study.search.cross_fit)
        if counts is None:
            return None
        total += _passes(job, study, *counts)
    return total


def _counts(data: StudyData, cross_fit: bool) -> tuple[int, int] | None:
    """Return how many images are searched with and scored on, if the file says."""
    test = data.test_images
    if test is None:
        return None
    if data.validation is not None:
        return data.validation, test
    if cross_fit:
        return test, test
    shares = parse_split(data.split, test)
    used = test - round(shares.left_out * test)
    score = round(shares.holdout * used)
    return used - score, score


def _passes(job: Job, study: StudyFile, search: int, score: int) -> int:
    """Return the passes for one of a job's entries, with its images to search with and to score."""
    match job.part:
        case "search":
            return pool_size(study) * search + (2 * study.search.length + 1) * score
        case "magnitudes":
            return len(study.magnitudes.grid) * study.magnitudes.views * search
        case "objectives":
            part = study.objectives
            held_out = 1 + len(part.objectives) * (part.views or study.search.length)
            return part.runs * (pool_size(study) * search + held_out * score)
        case "robustness":
            shift = study.robustness
            levels = check_severities(shift.severities)
            conditions = len(check_corruptions(shift.corruptions)) * len(levels)
            images = score if shift.images is None else min(score, shift.images)
            return _views(study, shift) * images * (1 + conditions)
        case "transfer":
            policies = sum(study.models[entry.model].searched for entry in job.entries)
            return _views(study, study.transfer, policies) * score
        case "ensembles":
            predicted = sum(bool(job.needs_of("search", entry)) for entry in job.entries)
            alone = 1 - predicted / len(job.entries)  # the others' pools are there already
            held_out = _views(study, study.ensembles, 3) * score
            return round(alone * pool_size(study) * search) + held_out
    return _views(study, study.compare) * score


def _views(
    study: StudyFile,
    part: ComparePart | RobustnessPart | TransferPart | EnsemblesPart,
    policies: int = 1,
) -> int:
    """Return how many views of an image a comparison predicts: the plain one, methods, policies."""
    most, total = max(part.budgets), 1
    for method in {*part.methods} - {"plain"}:
        total += BASELINES[method].budget or most * part.runs
    fresh = search_settings(study).draws == "fresh"
    return total + policies * most * (part.runs if fresh else 1)


def estimated_seconds(
    study: StudyFile, plan: Sequence[Job], device: str = "cpu"
) -> dict[str, float]:
    """Return the seconds of each job by its fingerprint, measured now on random images.

    Left out are jobs of models that are not at hand, and of unknown numbers of images.
    """
    models = {entry.model for job in plan for entry in job.entries}
    rates = {name: _seconds_per_pass(study, name, device) for name in sorted(models)}
    found = {}
    for job in plan:
        passes = passes_of(job, study)
        known = [rate for entry in job.entries if (rate := rates[entry.model]) is not None]
        if passes is not None and len(known) == len(job.entries):
            found[job.mark] = passes * sum(known) / len(known)
    return found


def _seconds_per_pass(study: StudyFile, name: str, device: str) -> float | None:
    """Time a few views of random images through a model; None if it is not at hand."""
    predictor = _at_hand(study, name, device)
    if predictor is None:
        return None
    side = study.views.image_size or 32
    known = input_of(predictor) or InputSpec((side, side), channels=1)
    shape = (_TRIED, known.channels or 3, *known.size)
    numbers = np.random.default_rng(0)
    images = torch.from_numpy(numbers.integers(0, 256, shape, dtype=np.uint8))
    settings = replace(search_settings(study), pool_size=_VIEWS)
    views = [View(sub, index) for index, sub in enumerate(settings.draw_pool().candidates)]
    return estimate(predictor, images, views, seed=0, batch=study.models[name].batch)


def _at_hand(study: StudyFile, name: str, device: str) -> Predictor | None:
    """Return a network with weights that nobody trained, or a given one; nothing is fetched."""
    model = study.models[name]
    if model.network is not None:
        network = get_network(model.network)
        side, channels = network.side or study.views.image_size or 32, network.channels or 1
        known = InputSpec((side, side), crop=1.0, channels=channels)
        built = network.build(channels, 10, 0).eval()
        return TorchPredictor(built, device=device, input=known, classes=10)
    if model.pretrained:
        return None
    try:
        return load_study_model(model, model.spec or "", device)
    except RelookError:
        return None
