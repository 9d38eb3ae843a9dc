"""The cost of a study: model passes job by job, and an estimate of the time."""

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

PASSES_PER_STEP = 3
"""A training step costs about as much as this many passes: one forward, two for backward."""

_TIMED_IMAGES = 256  # at least a batch
_TIMED_VIEWS = 12


def pool_size(study: StudyFile) -> int:
    """Return the number of candidates of a search."""
    settings = search_settings(study)
    if settings.pool_size is not None:
        return settings.pool_size
    return sum(group.count for group in settings.recipe.groups) + settings.plain


def passes_of(job: Job, study: StudyFile) -> int | None:
    """Return the largest number of model passes of a job; None if the file lacks image counts.

    A training step counts as `PASSES_PER_STEP`.
    """
    if job.part == "train":
        data = study.data[job.entry.data]
        if data.train_images is None:
            return None
        images = data.train_images
        if data.validation is not None:  # two trainings: without these images, and with all
            images = 2 * images - data.validation
        return PASSES_PER_STEP * study.train.epochs * images
    total = 0
    for entry in job.entries:
        counts = _counts(study.data[entry.data], study.search.cross_fit)
        if counts is None:
            return None
        total += _passes(job, study, *counts)
    return total


def _counts(data: StudyData, cross_fit: bool) -> tuple[int, int] | None:
    """Return the numbers of images to search on and to score on, if the file has them."""
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
    """Return the passes for one entry of a job, given its numbers of images for each use."""
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
            unpredicted = 1 - predicted / len(job.entries)  # the share of pools without a search
            held_out = _views(study, study.ensembles, 3) * score
            return round(unpredicted * pool_size(study) * search) + held_out
    return _views(study, study.compare) * score


def _views(
    study: StudyFile,
    part: ComparePart | RobustnessPart | TransferPart | EnsemblesPart,
    policies: int = 1,
) -> int:
    """Return the views per image of a comparison: plain image, methods and policies."""
    most, total = max(part.budgets), 1
    for method in {*part.methods} - {"plain"}:
        total += BASELINES[method].budget or most * part.runs
    fresh = search_settings(study).draws == "fresh"
    return total + policies * most * (part.runs if fresh else 1)


def estimated_seconds(
    study: StudyFile, plan: Sequence[Job], device: str = "cpu"
) -> dict[str, float]:
    """Return the estimated seconds of each job by its fingerprint, measured on random images.

    Jobs of unavailable models, or with unknown numbers of images, are left out.
    """
    models = {entry.model for job in plan for entry in job.entries}
    rates = {name: _seconds_per_pass(study, name, device) for name in sorted(models)}
    seconds = {}
    for job in plan:
        passes = passes_of(job, study)
        known = [rate for entry in job.entries if (rate := rates[entry.model]) is not None]
        if passes is not None and len(known) == len(job.entries):
            seconds[job.mark] = passes * sum(known) / len(known)
    return seconds


def _seconds_per_pass(study: StudyFile, name: str, device: str) -> float | None:
    """Time a few passes over random images; None if the model is not available."""
    predictor = _available_model(study, name, device)
    if predictor is None:
        return None
    side = study.views.image_size or 32
    spec = input_of(predictor) or InputSpec((side, side), channels=1)
    shape = (_TIMED_IMAGES, spec.channels or 3, *spec.size)
    numbers = np.random.default_rng(0)
    images = torch.from_numpy(numbers.integers(0, 256, shape, dtype=np.uint8))
    settings = replace(search_settings(study), pool_size=_TIMED_VIEWS)
    views = [View(sub, index) for index, sub in enumerate(settings.draw_pool().candidates)]
    return estimate(predictor, images, views, seed=0, batch=study.batch_of(name))


def _available_model(study: StudyFile, name: str, device: str) -> Predictor | None:
    """Return an untrained network, or a given model unless it must be downloaded or is missing."""
    model = study.models[name]
    if model.network is not None:
        network = get_network(model.network)
        side, channels = network.side or study.views.image_size or 32, network.channels or 1
        spec = InputSpec((side, side), crop=1.0, channels=channels)
        built = network.build(channels, 10, 0).eval()
        return TorchPredictor(built, device=device, input=spec, classes=10)
    if model.pretrained:
        return None
    try:
        return load_study_model(model, model.spec or "", device)
    except RelookError:
        return None
