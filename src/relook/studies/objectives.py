"""What to maximise: the same pools searched with several objectives (the paper's Table 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluation.baselines import BASELINES, Options
from relook.evaluation.compare import checked_budgets
from relook.evaluation.comparison import Measured
from relook.evaluation.cross_validation import Evaluation, cross_validated, prefix_log_probs
from relook.evaluation.scoring import Line, Setup, predicted
from relook.foundation.progress import StageProgress, stage_of
from relook.io.fingerprint import fingerprint
from relook.models import Predictor
from relook.numerics.arrays import FloatArray
from relook.numerics.intervals import Interval, mean_and_deviation, paired_bootstrap
from relook.numerics.metrics import per_image_log_likelihood
from relook.numerics.randomness import check_seed
from relook.policy import DrawKind, Policy
from relook.policy.file import policy_to_json
from relook.policy.recipes import Recipe, get_recipe
from relook.policy_search.job import plan_pool, plan_search
from relook.policy_search.pool_predictions import policy_of, predict_pool, select_from_pool
from relook.policy_search.settings import SearchSettings
from relook.selection.objectives import OBJECTIVES, UserObjective, resolve_objective
from relook.studies.objectives_result import PLAIN, REFERENCE, ObjectiveRow, Objectives

OF_THE_PAPER = ("accuracy", "ll", "cll")
LABELS = {"accuracy": "accuracy", "ll": "LL", "cll": "cLL", "brier": "Brier score", "ece": "ECE"}
"""What tables call the objectives; others go by their name."""

COMPARED = ("accuracy", "log_likelihood", "cll")

Stages = Callable[[str, int, int], None]
"""Called with what is done (in words, with the run), the units done and their total."""

Key = tuple[str, int]
"""An objective and a budget."""


@dataclass(frozen=True)
class _Score:
    """One policy on a run's held-out images: `per_image` holds arrays `[n]`."""

    metrics: Mapping[str, float]
    per_image: Mapping[str, FloatArray]
    views: int


@dataclass(frozen=True)
class _Run:
    """What one run found; `units` `[n]` says which image, or group, each value belongs to."""

    policies: Mapping[str, Policy]
    scores: Mapping[Key, _Score]
    units: NDArray[Any]


@dataclass(frozen=True)
class _Study:
    """What all runs share."""

    predictor: Predictor
    dataset: Dataset
    test: Dataset | None
    objectives: Mapping[str, str | UserObjective]
    budgets: tuple[int, ...]
    directory: Path | None
    halvings: int
    progress: Stages | None


def objectives(
    predictor: Predictor,
    dataset: Dataset,
    *,
    recipe: Recipe | str,
    objectives: Sequence[str | UserObjective] = OF_THE_PAPER,
    test: Dataset | None = None,
    runs: int = 5,
    seed: int = 0,
    length: int = 20,
    pool_size: int | None = None,
    draws: DrawKind = "fixed",
    strategy: str = "greedy",
    plain: bool = True,
    balanced: bool = False,
    holdout: float = 1 / 3,
    left_out: float = 0.0,
    budgets: Sequence[int] | None = None,
    batch: int | None = None,
    memory: int | None = None,
    directory: str | Path | None = None,
    progress: Stages | None = None,
    halvings: int = 5,
    resamples: int = 2000,
    record: Mapping[str, Any] | None = None,
) -> Objectives:
    """Search the same pools with each objective and score the policies on held-out images.

    Run r has the seed seed + r: its own pool and, without `test` images, its own split. Its
    pool is predicted once, for all objectives. Objectives are names of `OBJECTIVES` or
    functions `(log_probs, labels) -> float`. `budgets` are numbers of views (default: the
    whole policy). In `directory` predictions and selections are kept, and an interrupted
    call goes on; later calls with more runs or objectives find what is done.
    """
    if runs < 1:
        raise RelookError(f"expected at least 1 run, got {runs}")
    settings = SearchSettings(
        recipe=get_recipe(recipe),
        length=length,
        pool_size=pool_size,
        seed=check_seed(seed),
        draws=draws,
        strategy=strategy,
        plain=plain,
        balanced=balanced,
        holdout=holdout,
        left_out=left_out,
        batch=batch,
        memory=memory,
    )
    _check(settings)
    study = _Study(
        predictor,
        dataset,
        test,
        checked_objectives(objectives),
        (length,) if budgets is None else checked_budgets(budgets),
        None if directory is None else Path(directory),
        halvings,
        progress,
    )
    found = [_run(study, replace(settings, seed=seed + run), run, runs) for run in range(runs)]
    return Objectives(
        rows=_rows(study, found, seed, resamples),
        objectives=tuple(study.objectives),
        budgets=study.budgets,
        runs=runs,
        images=len(found[0].units),
        policies={name: tuple(run.policies[name] for run in found) for name in study.objectives},
        settings={**_settings(study, settings, resamples), **(record or {})},
    )


def checked_objectives(
    objectives: Sequence[str | UserObjective],
) -> dict[str, str | UserObjective]:
    """Return the objectives by name, each once, or raise."""
    named: dict[str, str | UserObjective] = {}
    for objective in objectives:
        name = resolve_objective(objective).name
        clashes = name == PLAIN or (name in OBJECTIVES and not isinstance(objective, str))
        if clashes or name in named:
            raise RelookError(f"expected each objective once, under a name of its own: {name!r}")
        named[name] = objective
    if not named:
        raise RelookError("expected at least 1 objective to search with, got none")
    return named


def label_of(objective: str) -> str:
    """Return what tables and figures call an objective."""
    return "plain image" if objective == PLAIN else LABELS.get(objective, objective)


def _check(settings: SearchSettings) -> None:
    if settings.length < 1:
        raise RelookError(f"expected a policy length of at least 1, got {settings.length}")
    if settings.strategy == "conservative":
        raise RelookError(
            "a conservative selection knows one objective, cll: compare objectives with the "
            "strategy greedy or paper"
        )


def _run(study: _Study, settings: SearchSettings, run: int, runs: int) -> _Run:
    """Predict a run's pool, search it with every objective, and score what was found."""

    def stages(**words: str) -> StageProgress | None:
        progress = study.progress
        if progress is None:
            return None
        return lambda stage, done, total, score=None: progress(
            f"run {run + 1} of {runs}: {words[stage]}", done, total
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
            # Nobody can tell whether a function is still the same: its picks are not kept.
            directory=place if isinstance(objective, str) else None,
        )
        progress = stages(**words, select=f"selecting by {label_of(name)}")
        selected = select_from_pool(own, candidates, progress, None)
        policies[name] = policy_of(own, candidates, selected)
    held_out, proof = job.split.held_out, job.proof
    setup = _setup(study, settings, proof, held_out, directory, policies)
    evaluated = stages(evaluate="predicting held-out images")
    setup = replace(setup, progress=stage_of(evaluated, "evaluate"))
    units = held_out if proof.groups is None else proof.groups
    return _Run(policies, _scores(setup, policies), units)


def _setup(
    study: _Study,
    settings: SearchSettings,
    proof: Dataset,
    held_out: NDArray[np.int64],
    directory: Path | None,
    policies: Mapping[str, Policy],
) -> Setup:
    mark = fingerprint([policy_to_json(policy) for policy in policies.values()], study.budgets)
    return Setup(
        predictor=study.predictor,
        dataset=proof,
        places=held_out,
        recipe=settings.recipe,
        budgets=study.budgets,
        options=Options(),
        seed=settings.seed,
        runs=1,
        halvings=study.halvings,
        resamples=0,
        store_path=None if directory is None else directory / f"heldout-{mark[:8]}.zarr",
        batch=settings.batch,
        progress=None,
    )


def _scores(setup: Setup, policies: Mapping[str, Policy]) -> dict[Key, _Score]:
    """Predict each distinct view of all policies once and score them at every budget."""
    most = setup.budgets[-1]
    lines = [Line(PLAIN, 0, BASELINES[PLAIN].policy(setup.recipe))]
    lines += [Line(name, 0, policy.for_budget(most)) for name, policy in policies.items()]
    read = predicted(setup, [view for line in lines for view in line.views])
    scores: dict[Key, _Score] = {}
    for line in lines:
        budgets = (1,) if line.method == PLAIN else setup.budgets
        lengths = {budget: len(line.policy.for_budget(budget)) for budget in budgets}
        prefixes = sorted(set(lengths.values()))
        means = prefix_log_probs(read(line.views), prefixes)
        found = {k: _score(setup, mean) for k, mean in zip(prefixes, means, strict=True)}
        for budget, length in lengths.items():
            evaluation, likelihoods = found[length]
            scores[line.method, budget] = _Score(
                evaluation.metrics,
                {**evaluation.per_image, "log_likelihood": likelihoods},
                line.policy[:length].views,
            )
    return scores


def _score(setup: Setup, mean: FloatArray) -> tuple[Evaluation, FloatArray]:
    labels, groups = setup.dataset.labels, setup.dataset.groups
    evaluation = cross_validated(
        mean, labels, seed=setup.seed, halvings=setup.halvings, groups=groups
    )
    return evaluation, per_image_log_likelihood(mean, labels)


def _rows(
    study: _Study, found: Sequence[_Run], seed: int, resamples: int
) -> tuple[ObjectiveRow, ...]:
    rows = []
    for key in found[0].scores:
        name, budget = key
        scores = [run.scores[key] for run in found]
        rows.append(
            ObjectiveRow(
                objective=name,
                label=label_of(name),
                budget=budget,
                views=max(score.views for score in scores),
                metrics={
                    metric: Measured(*mean_and_deviation([one.metrics[metric] for one in scores]))
                    for metric in scores[0].metrics
                },
                over_cll=_over_reference(study, found, key, seed, resamples),
            )
        )
    return tuple(rows)


def _over_reference(
    study: _Study, found: Sequence[_Run], key: Key, seed: int, resamples: int
) -> dict[str, Interval] | None:
    """Return the differences to searching with cLL; an image counts with all its runs."""
    name, budget = key
    if name in (PLAIN, REFERENCE) or REFERENCE not in study.objectives:
        return None
    units = np.concatenate([run.units for run in found])
    return {
        metric: paired_bootstrap(
            np.concatenate(
                [
                    run.scores[key].per_image[metric]
                    - run.scores[REFERENCE, budget].per_image[metric]
                    for run in found
                ]
            ),
            seed=seed,
            resamples=resamples,
            groups=units,
        )
        for metric in COMPARED
    }


def _settings(study: _Study, settings: SearchSettings, resamples: int) -> dict[str, Any]:
    return {
        "recipe": settings.recipe.name,
        "length": settings.length,
        "pool_size": settings.pool_size,
        "seed": settings.seed,
        "draws": settings.draws,
        "strategy": settings.strategy,
        "balanced": settings.balanced,
        "holdout": None if study.test is not None else settings.holdout,
        "halvings": study.halvings,
        "resamples": resamples,
        "model": {"fingerprint": study.predictor.fingerprint},
        "data": {"name": study.dataset.name, "fingerprint": study.dataset.fingerprint},
        "test": None if study.test is None else study.test.fingerprint,
    }
