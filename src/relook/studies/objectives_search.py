"""One run of a study of objectives: a pool predicted once, searched with each, and scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from relook.data.base import Dataset
from relook.evaluation.baselines import BASELINES
from relook.evaluation.compare import ComparisonSettings
from relook.evaluation.scoring import MethodRun, Setup, score_budgets
from relook.foundation.progress import StageProgress, stage_of
from relook.io.fingerprint import fingerprint
from relook.models import Predictor
from relook.numerics.arrays import FloatArray
from relook.numerics.metrics import per_image_log_likelihood
from relook.policy import Policy
from relook.policy.file import policy_to_json
from relook.policy_search.job import plan_pool, plan_search
from relook.policy_search.pool_predictions import policy_of, predict_pool, select_from_pool
from relook.policy_search.settings import SearchSettings
from relook.selection.objectives import UserObjective

PLAIN = "plain"
"""The name under which the plain image stands among the objectives."""

LABELS = {"accuracy": "accuracy", "ll": "LL", "cll": "cLL", "brier": "Brier score", "ece": "ECE"}
"""What tables call the objectives; others go by their name."""

Key = tuple[str, int]
"""An objective and a budget."""

Stages = Callable[[str, int, int], None]
"""Called with what is done (in words, with the run), the units done and their total."""


@dataclass(frozen=True)
class _Score:
    """One policy on a run's held-out images: `per_image` holds arrays `[n]`."""

    metrics: Mapping[str, float]
    per_image: Mapping[str, FloatArray]
    views: int


@dataclass(frozen=True)
class Run:
    """What one run found; `units` `[n]` says which image, or group, each value belongs to."""

    policies: Mapping[str, Policy]
    scores: Mapping[Key, _Score]
    units: NDArray[Any]


@dataclass(frozen=True)
class Searches:
    """What all runs share."""

    predictor: Predictor
    dataset: Dataset
    test: Dataset | None
    objectives: Mapping[str, str | UserObjective]
    asked: ComparisonSettings
    directory: Path | None
    progress: Stages | None


def label_of(objective: str) -> str:
    """Return what tables and figures call an objective."""
    return "plain image" if objective == PLAIN else LABELS.get(objective, objective)


def run_of(study: Searches, settings: SearchSettings, run: int) -> Run:
    """Predict a run's pool, search it with every objective, and score what was found."""

    def stages(**words: str) -> StageProgress | None:
        progress = study.progress
        if progress is None:
            return None
        return lambda stage, done, total, score=None: progress(
            f"run {run + 1} of {study.asked.runs}: {words[stage]}", done, total
        )

    directory = None if study.directory is None else study.directory / f"seed-{settings.seed}"
    job = plan_search(
        study.predictor, study.dataset, settings, test=study.test, directory=directory
    )
    words = {"predict": "predicting the pool", "map": "copying predictions"}
    candidates = predict_pool(job, stages(**words))
    policies = {}
    for name, objective in study.objectives.items():
        sought = replace(settings, objective=objective)
        place = directory and directory / name
        own = replace(
            job,
            settings=sought,
            plan=plan_pool(sought, job.pool, candidates.predictions.shape, place),
            # Nobody knows whether a function is still the same: its picks are not kept.
            directory=place if isinstance(objective, str) else None,
        )
        progress = stages(**words, select=f"selecting by {label_of(name)}")
        selected = select_from_pool(own, candidates, progress, None)
        policies[name] = policy_of(own, candidates, selected)
    held_out, proof = job.split.held_out, job.proof
    mark = fingerprint([policy_to_json(one) for one in policies.values()], study.asked.budgets)
    setup = replace(study.asked, seed=settings.seed, runs=1).setup(
        study.predictor,
        proof,
        settings.recipe,
        indices=held_out,
        store_path=directory and directory / f"heldout-{mark[:8]}.zarr",
        progress=stage_of(stages(evaluate="predicting held-out images"), "evaluate"),
    )
    units = held_out if proof.units is None else proof.units
    return Run(policies, _scores(setup, policies), units)


def _scores(setup: Setup, policies: Mapping[str, Policy]) -> dict[Key, _Score]:
    """Predict each distinct view of all policies once and score them at every budget."""
    lines = [MethodRun(PLAIN, 0, BASELINES[PLAIN].policy(setup.recipe))]
    most = setup.budgets[-1]
    lines += [MethodRun(name, 0, policy.for_budget(most)) for name, policy in policies.items()]
    scores: dict[Key, _Score] = {}
    for one in score_budgets(setup, lines):
        likelihoods = per_image_log_likelihood(one.log_probs, setup.dataset.labels)
        scores[one.line.method, one.budget] = _Score(
            one.evaluation.metrics,
            {**one.evaluation.per_image, "log_likelihood": likelihoods},
            one.views,
        )
    return scores
