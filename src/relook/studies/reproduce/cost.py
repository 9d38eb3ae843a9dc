"""What a study will cost: model passes job by job, and a guess at the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch

from relook.errors import RelookError
from relook.evaluation.baselines import BASELINES
from relook.models import InputSpec, Predictor, TorchPredictor
from relook.models.base import input_of
from relook.numerics.splits import parse_split
from relook.predictions.passes import View, estimate
from relook.studies.corruptions import CORRUPTIONS, SEVERITIES
from relook.studies.reproduce.inputs import load_study_model
from relook.studies.reproduce.plan import Job, model_spec, search_settings
from relook.studies.reproduce.settings import StudyData, StudyFile
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


@dataclass(frozen=True)
class Counts:
    """How many images are trained on, searched with and scored on; None where nobody said."""

    train: int | None = None
    search: int | None = None
    score: int | None = None


def counts_of(data: StudyData, *, cross_fit: bool = False) -> Counts:
    """Return how many images each use has, as far as the file says."""
    train, test = data.train_images, data.test_images
    if data.validation is not None:
        return Counts(train, data.validation, test)
    if test is None or cross_fit:
        return Counts(train, test, test)
    shares = parse_split(data.split, test)
    used = test - round(shares.left_out * test)
    score = round(shares.holdout * used)
    return Counts(train, used - score, score)


def passes_of(job: Job, study: StudyFile) -> int | None:
    """Return the model passes of a job, at most; None where images are not counted in the file.

    A training's count as three, for the steps back.
    """
    counts = [
        counts_of(study.data[entry.data], cross_fit=study.search.cross_fit) for entry in job.entries
    ]
    if job.part == "train":
        return None if counts[0].train is None else _train(job, study, counts[0].train)
    total = 0
    for one in counts:
        if one.search is None or one.score is None:
            return None
        total += _COSTS[job.part](job, study, one.search, one.score)
    return total


def _train(job: Job, study: StudyFile, images: int) -> int:
    kept = study.data[job.entry.data].validation
    return STEP * study.train.epochs * (images if kept is None else 2 * images - kept)


def _search(job: Job, study: StudyFile, search: int, score: int) -> int:
    return pool_size(study) * search + (2 * study.search.length + 1) * score


def _magnitudes(job: Job, study: StudyFile, search: int, score: int) -> int:
    return len(study.magnitudes.grid) * study.magnitudes.views * search


def _compare(job: Job, study: StudyFile, search: int, score: int) -> int:
    part = study.compare
    return _views(study, part.methods, part.budgets, part.runs) * score


def _robustness(job: Job, study: StudyFile, search: int, score: int) -> int:
    part = study.robustness
    names = len(CORRUPTIONS) if part.corruptions is None else len(part.corruptions)
    levels = len(SEVERITIES) if part.severities is None else len(part.severities)
    images = score if part.images is None else min(score, part.images)
    return _views(study, part.methods, part.budgets, part.runs) * images * (1 + names * levels)


def _objectives(job: Job, study: StudyFile, search: int, score: int) -> int:
    part = study.objectives
    held_out = (1 + len(part.objectives) * (part.views or study.search.length)) * score
    return part.runs * (pool_size(study) * search + held_out)


def _transfer(job: Job, study: StudyFile, search: int, score: int) -> int:
    """Return the passes on one of the models."""
    part = study.transfer
    policies = sum(study.models[entry.model].searched for entry in job.entries)
    return _views(study, part.methods, part.budgets, part.runs, policies) * score


def _ensembles(job: Job, study: StudyFile, search: int, score: int) -> int:
    """Return the passes of one of the members."""
    part = study.ensembles
    views = _views(study, ("cf", "mtrain", "mgrid"), part.budgets, part.runs, policies=3)
    predicted = sum(job.waits_for("search", entry) for entry in job.entries)
    alone = 1 - predicted / len(job.entries)  # the others' pools are there from their searches
    return round(alone * pool_size(study) * search) + views * score


def _views(
    study: StudyFile,
    methods: Iterable[str],
    budgets: Iterable[int],
    runs: int,
    policies: int = 1,
) -> int:
    """Return how many views of an image a comparison predicts: the plain one, methods, policies."""
    most, total = max(budgets), 1
    for method in {*methods} - {"plain"}:
        row = BASELINES[method]
        total += row.budget or most * runs
    fresh = search_settings(study).draws == "fresh"
    return total + policies * most * (runs if fresh else 1)


_COSTS: Mapping[str, Callable[[Job, StudyFile, int, int], int]] = MappingProxyType(
    {
        "search": _search,
        "magnitudes": _magnitudes,
        "compare": _compare,
        "robustness": _robustness,
        "objectives": _objectives,
        "transfer": _transfer,
        "ensembles": _ensembles,
    }
)
"""The passes of each part: of a job, from its images to search with and to score on."""


def estimated_seconds(
    study: StudyFile, plan: Sequence[Job], device: str = "cpu"
) -> dict[str, float]:
    """Return the seconds of each job by its fingerprint, measured now on random images.

    Left out are jobs of models that are not at hand, and of unknown numbers of images.
    """
    models = {entry.model for job in plan for entry in job.entries}
    measured = {name: _seconds_per_pass(study, name, device) for name in sorted(models)}
    rates = {name: rate for name, rate in measured.items() if rate is not None}
    found = {}
    for job in plan:
        passes = passes_of(job, study)
        own = [rates.get(entry.model) for entry in job.entries]
        known = [rate for rate in own if rate is not None]
        if passes is not None and len(known) == len(own):
            found[job.mark] = passes * sum(known) / len(known)
    return found


def _seconds_per_pass(study: StudyFile, name: str, device: str) -> float | None:
    """Time a few views of random images through a model; None if it is not at hand."""
    predictor = _untrained(study, name, device) or _given(study, name, device)
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


def _untrained(study: StudyFile, name: str, device: str) -> Predictor | None:
    """Return a model's network with weights that nobody trained."""
    spec = study.models[name].network
    if spec is None:
        return None
    network = get_network(spec)
    built = network.build(network.channels or 1, 10, 0).eval()
    side = network.side or study.views.image_size or 32
    known = InputSpec((side, side), crop=1.0, channels=network.channels or 1)
    return TorchPredictor(built, device=device, input=known, classes=10)


def _given(study: StudyFile, name: str, device: str) -> Predictor | None:
    """Return a model whose weights are at hand; nothing is fetched for a guess."""
    model = study.models[name]
    if model.spec is None or model.pretrained:
        return None
    try:
        return load_study_model(model, model_spec(study, name), device)
    except RelookError:
        return None
