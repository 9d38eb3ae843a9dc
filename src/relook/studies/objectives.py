"""The objective of the search: the same pools searched by several (the paper's Table 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluation.baselines import BASELINES
from relook.evaluation.cross_validation import Evaluation
from relook.evaluation.results import Result, Results, difference, measured
from relook.evaluation.scoring import Key, MethodRun, score_budgets
from relook.evaluation.setup import ComparisonSettings, Setup, checked_budgets
from relook.foundation.progress import StageProgress, stage_of
from relook.foundation.wording import count, views_text, with_minus_signs
from relook.io.fingerprint import fingerprint
from relook.models import Predictor
from relook.numerics.intervals import Interval, paired_interval
from relook.numerics.metrics import per_image_log_likelihood
from relook.numerics.randomness import check_seed
from relook.policy import Policy
from relook.policy.file import policy_to_json
from relook.policy_search.job import SearchJob, plan_pool, plan_search
from relook.policy_search.pool_predictions import policy_of, predict_pool, select_from_pool
from relook.policy_search.settings import SearchSettings
from relook.report.comparison_tables import method_table
from relook.report.metrics import metric_of
from relook.report.tables import Column, Line, Table, best_of_column, table_of
from relook.selection.objectives import OBJECTIVES, UserObjective, resolve_objective
from relook.studies.study import (
    Study,
    StudyKeywords,
    by_model,
    check_has_held_out_images,
    largest_budget,
    study_settings,
)

if TYPE_CHECKING:  # drawing needs matplotlib
    from relook.report.figures import Drawing

REFERENCE = "cll"
"""The objective that the others are compared with."""

PLAIN = "plain"
"""The name of the plain image among the objectives."""

PAPER_OBJECTIVES = ("accuracy", "ll", "cll")

COMPARED_METRICS = ("accuracy", "log_likelihood", "cll")

LABELS = {"accuracy": "accuracy", "ll": "LL", "cll": "cLL", "brier": "Brier score", "ece": "ECE"}
"""The objectives' names in tables; other objectives keep theirs."""

Stages = Callable[[str, int, int], None]
"""Called with the current run and stage in words, the units done and their total."""


@dataclass(frozen=True)
class Run:
    """The results of one run; `units` `[n]` is the image, or group, of each value."""

    policies: Mapping[str, Policy]
    scores: Mapping[Key, Evaluation]
    views: Mapping[Key, int]
    units: NDArray[Any]


def objectives(
    predictor: Predictor,
    dataset: Dataset,
    settings: SearchSettings,
    *,
    objectives: Sequence[str | UserObjective] = PAPER_OBJECTIVES,
    test: Dataset | None = None,
    directory: str | Path | None = None,
    progress: Stages | None = None,
    record: Mapping[str, Any] | None = None,
    **scored: Unpack[StudyKeywords],
) -> Results:
    """Search the same pools with each objective and score the policies on held-out images.

    `settings` are those of one search, with the strategy greedy or paper. Run r of `runs` has the
    seed seed + r: its own pool and, without `test` images, its own split. Its pool is predicted
    once, for all objectives. Objectives are names of `OBJECTIVES` or
    functions `(log_probs, labels) -> float`. `budgets` are numbers of views (default: the
    whole policy). `directory` stores predictions and selections: the same call resumes there,
    also with more runs or objectives.
    """
    if settings.length < 1:
        raise RelookError(f"expected a policy length of at least 1, got {settings.length}")
    if settings.strategy == "conservative":
        raise RelookError(
            "a conservative selection knows one objective, cll: compare objectives with the "
            "strategy greedy or paper"
        )
    check_has_held_out_images(settings)
    defaults: StudyKeywords = {"budgets": (settings.length,), "runs": 5}
    unused = ("methods", "options", "seed", "batch")
    scoring = study_settings(STUDY.name, scored, defaults, without=unused)
    if scoring.runs < 1:
        raise RelookError(f"expected at least 1 run, got {scoring.runs}")
    seed, named = check_seed(settings.seed), check_objectives(objectives)
    scoring = replace(scoring, budgets=checked_budgets(scoring.budgets), batch=settings.batch)
    runs = []
    for run in range(scoring.runs):
        own = replace(settings, seed=seed + run)
        where = None if directory is None else Path(directory) / f"seed-{own.seed}"
        job = plan_search(predictor, dataset, own, test=test, directory=where)
        title = f"run {run + 1} of {scoring.runs}"
        runs.append(search_and_score(job, named, scoring, title, progress))
    recorded = ("length", "pool_size", "seed", "draws", "strategy", "balanced")
    return STUDY.results(
        _rows(named, dataset, runs),
        {
            "policies": {
                name: [policy_to_json(run.policies[name]) for run in runs] for name in named
            },
            "recipe": settings.recipe.name,
            **{name: getattr(settings, name) for name in recorded},
            "holdout": None if test is not None else settings.holdout,
            "halvings": scoring.halvings,
            "protocol": scoring.protocol,
            "model": {"fingerprint": predictor.fingerprint},
            "data": {"name": dataset.name, "fingerprint": dataset.fingerprint},
            "test": None if test is None else test.fingerprint,
        },
        record,
    )


def check_objectives(
    objectives: Sequence[str | UserObjective],
) -> dict[str, str | UserObjective]:
    """Return the objectives by name; raises if names clash or there are none."""
    named: dict[str, str | UserObjective] = {}
    for objective in objectives:
        name = resolve_objective(objective).name
        clashes = name == PLAIN or (name in OBJECTIVES and not isinstance(objective, str))
        if clashes or name in named:
            raise RelookError(f"expected each objective once, under a unique name, got {name!r}")
        named[name] = objective
    if not named:
        raise RelookError("expected at least 1 objective to search with, got none")
    return named


def sentence(results: Results) -> str:
    """Return the answer: what the other objectives lose in cLL at the largest budget."""
    shown = results.where(budget=largest_budget(results), metric="cll")
    searched = [row for row in shown.where(versus=None).rows if row["method"] != PLAIN]
    best = max(searched, key=lambda row: row.value)
    text = f"The highest held-out cLL comes from searching with {best['label']}"
    changes = [
        f"{row['label']} {row.value:+.4f}, 95 % interval {row.low:+.4f} to {row.high:+.4f}"
        for row in shown.where(versus=REFERENCE).rows
    ]
    if changes:
        text += f"; compared with cLL as the objective: {'; '.join(changes)}"
    return with_minus_signs(f"{text}.")


def tables(results: Results) -> list[Table]:
    """Return a line per objective and budget, a table per model."""
    made = []
    for model, own in by_model(results):
        row = own.rows[0]
        several = f" of each of {row['runs']} runs" if row["runs"] > 1 else ""
        where = f"{model}: " if model else ""
        title = f"{where}{row['images']:,} held-out images{several}, one pool for all objectives"
        versus = {REFERENCE: "searched with cLL"}
        table = method_table(own, COMPARED_METRICS, versus, head="searched with", title=title)
        made.append(table)
    return made


def paper_table(results: Results) -> Table:
    """Return Table 1 with LL added: lines are metrics and objectives, a column per model."""
    most, row = largest_budget(results), results.rows[0]
    found = results.where(budget=most)
    pairs = [pair for pair, _ in found.groups("method", "label") if pair[0] != PLAIN]
    columns = [
        Column("metric", number=False, once=True),
        Column("GPS criterion", number=False),
        *(Column(str(m or ""), {"model": m}) for (m,), _ in found.groups("model")),
    ]
    sections = [
        [
            Line((metric_of(metric).head, label), {"metric": metric, "method": method})
            for method, label in pairs
        ]
        for metric in COMPARED_METRICS
    ]
    return table_of(
        found,
        columns,
        sections,
        best_of_column,
        title="",
        caption=f"Greedy policy search with different objectives, measured on {row['data']}: "
        f"held-out performance of {views_text(most)}, {count(row['runs'], 'run')}.",
        label="table:gps_metrics",
    )


def figures(results: Results) -> list[Drawing]:
    """Draw a dot per objective with its deviation over runs, a figure per model."""
    from relook.report.shapes import dots_drawing
    from relook.report.style import PLAIN_COLOR, POLICY_COLOR

    colors = {objective_label(PLAIN): PLAIN_COLOR, objective_label(REFERENCE): POLICY_COLOR}
    most = largest_budget(results)
    drawings = []
    for number, (model, own) in enumerate(by_model(results), 1):
        series = {
            label: [own.one(method=method, metric=m, budget=budget) for m in ("accuracy", "cll")]
            for (method, label, budget), _ in own.groups("method", "label", "budget")
            if method == PLAIN or budget == most
        }
        where = f"{model}: policies" if model else "Policies"
        title = f"{where} of {views_text(most)} by the objective of their search"
        name = f"objectives_{number}" if model else "objectives"
        drawings.append(dots_drawing(name, title, series, colors))
    return drawings


STUDY = Study(
    "objectives",
    "What the search maximises",
    "Table gps_metrics",
    "The same pools searched by accuracy, log-likelihood (LL) and calibrated log-likelihood (cLL).",
    tables,
    paper_table,
    figures,
    sentence=sentence,
)


def _rows(objectives: Iterable[str], dataset: Dataset, runs: Sequence[Run]) -> Iterator[Result]:
    """Yield each objective's metrics at each budget, and its differences to cLL."""
    for name, budget in runs[0].scores:
        scores = [run.scores[name, budget] for run in runs]
        keys = {
            "data": dataset.name,
            "method": name,
            "label": objective_label(name),
            "budget": budget,
            "views": max(run.views[name, budget] for run in runs),
            "images": len(runs[0].units),
            "runs": len(runs),
        }
        for metric in scores[0].metrics:
            yield measured(metric, [one.metrics[metric] for one in scores], **keys)
        if name in (PLAIN, REFERENCE) or REFERENCE not in objectives:
            continue
        for metric in COMPARED_METRICS:
            interval = _difference_to_reference(runs, (name, budget), metric)
            yield difference(metric, interval, **keys, versus=REFERENCE, reference=REFERENCE)


def _difference_to_reference(runs: Sequence[Run], key: Key, metric: str) -> Interval:
    """Return the difference to searching with cLL; an image's runs are one group."""
    reference = (REFERENCE, key[1])
    changes = [
        run.scores[key].per_image[metric] - run.scores[reference].per_image[metric] for run in runs
    ]
    return paired_interval(
        np.concatenate(changes), groups=np.concatenate([run.units for run in runs])
    )


def objective_label(objective: str) -> str:
    """Return an objective's name in tables and figures."""
    return "plain image" if objective == PLAIN else LABELS.get(objective, objective)


def search_and_score(
    job: SearchJob,
    objectives: Mapping[str, str | UserObjective],
    scoring: ComparisonSettings,
    title: str,
    progress: Stages | None,
) -> Run:
    """Predict a run's pool, search it with every objective, and score the policies found."""

    def stages(**words: str) -> StageProgress | None:
        if progress is None:
            return None
        report = progress
        return lambda stage, done, total, score=None: report(
            f"{title}: {words[stage]}", done, total
        )

    words = {"predict": "predicting the pool", "map": "copying predictions"}
    candidates = predict_pool(job, stages(**words))
    policies = {}
    for name, objective in objectives.items():
        settings = replace(job.settings, objective=objective)
        place = job.directory and job.directory / name
        own = replace(
            job,
            settings=settings,
            plan=plan_pool(settings, job.pool, candidates.predictions.shape, place),
            # A function may change between calls, so its picks are not stored.
            directory=place if isinstance(objective, str) else None,
        )
        report = stages(**words, select=f"selecting by {objective_label(name)}")
        policies[name] = policy_of(own, candidates, select_from_pool(own, candidates, report, None))
    proof = job.proof
    mark = fingerprint([policy_to_json(one) for one in policies.values()], scoring.budgets)
    setup = replace(scoring, seed=job.settings.seed, runs=1).setup(
        job.predictor,
        proof,
        job.settings.recipe,
        indices=job.split.held_out,
        store_path=job.directory and job.directory / f"heldout-{mark[:8]}.zarr",
        progress=stage_of(stages(evaluate="predicting held-out images"), "evaluate"),
    )
    units = job.split.held_out if proof.units is None else proof.units
    return Run(policies, *_scored(setup, policies), units)


def _scored(
    setup: Setup, policies: Mapping[str, Policy]
) -> tuple[dict[Key, Evaluation], dict[Key, int]]:
    """Predict each distinct view of all policies once; return scores and views at every budget."""
    scores, views = {}, {}
    lines = [MethodRun(PLAIN, 0, BASELINES[PLAIN].policy(setup.recipe))]
    most = setup.budgets[-1]
    lines += [MethodRun(name, 0, policy.for_budget(most)) for name, policy in policies.items()]
    for one in score_budgets(setup, lines):
        likelihoods = per_image_log_likelihood(one.log_probs, setup.dataset.labels)
        per_image = {**one.evaluation.per_image, "log_likelihood": likelihoods}
        scores[one.key] = replace(one.evaluation, per_image=per_image)
        views[one.key] = one.views
    return scores, views
