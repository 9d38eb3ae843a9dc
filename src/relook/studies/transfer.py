"""Policies on models and data other than those they were found on (the section on transfer)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from relook.evaluation.baselines import BASELINES, label_of
from relook.evaluation.results import Result, Results
from relook.evaluation.scoring import MethodRun, Scored, score_budgets
from relook.evaluation.setup import Setup, check_policies, checked_budgets
from relook.evaluation.unseen import unseen_part
from relook.foundation.progress import Progress
from relook.foundation.wording import count, views_text, with_minus_signs
from relook.policy import Policy
from relook.policy.file import policy_to_json
from relook.policy.recipes import Recipe
from relook.report.metrics import metric_of
from relook.report.tables import SHORT_NAMES, Cell, Column, Table, cell_of
from relook.studies.study import (
    Study,
    StudyKeywords,
    corrected_change,
    largest_budget,
    measured_rows,
    predictions_path,
    split_progress,
    study_settings,
    without_deviations,
)
from relook.studies.transfer_targets import (
    Target,
    TargetJob,
    check_targets,
    common_recipe,
    make_target_job,
)

if TYPE_CHECKING:  # drawing needs matplotlib
    from relook.report.figures import Drawing

CROPS = "cf"
"""The baseline that policies are compared with on targets without a policy of their own."""

Scores = dict[tuple[str, int], list[Scored]]
"""The runs of each policy or baseline at each budget."""

METHODS = ("plain", CROPS)
"""The baselines that policies are scored alongside."""


def transfer(
    targets: Sequence[Target],
    policies: Mapping[str, Policy],
    *,
    recipe: Recipe | str | None = None,
    store_path: str | Path | None = None,
    progress: Progress | None = None,
    record: Mapping[str, Any] | None = None,
    **settings: Unpack[StudyKeywords],
) -> Results:
    """Score every policy on every target at equal numbers of distinct views.

    A target whose `own` names one of the policies gets the change from that policy to each
    other one; every target gets the difference to the baselines `methods`. Budgets are limited to
    the views of the shortest policy. `recipe` is that of the random crops (default: the
    policies' own). Images that a policy was found on are left out, with a warning.
    The other keywords are those of `relook.compare`.
    `store_path` is a directory for predictions: the same call resumes there.
    """
    defaults: StudyKeywords = {"budgets": (5, 10, 20), "methods": METHODS}
    scoring = study_settings(STUDY.name, settings, defaults, without=("options",))
    check_policies(tuple(policies.values()), scoring.runs)
    check_targets(targets, policies)
    prior = common_recipe(policies, recipe)
    budgets = checked_budgets(scoring.budgets)
    most = min(policy.views for policy in policies.values())
    shared = tuple(sorted({min(budget, most) for budget in budgets}))
    jobs: list[TargetJob] = []
    doubts: list[str] = []
    for given in targets:
        unseen = unseen_part(given.dataset, [*policies.values()], given.indices)
        target = replace(given, dataset=unseen.dataset, indices=unseen.indices)
        doubts += [unseen.doubt] if unseen.doubt not in ("", *doubts) else []
        here = replace(scoring, budgets=shared, batch=target.batch or scoring.batch)
        setup = here.setup(
            target.predictor, target.dataset, prior, indices=target.indices, store_path=store_path
        )
        jobs.append(make_target_job(target, setup, policies, scoring.methods))
    rows: list[Result] = []
    infos: list[dict[str, Any]] = []
    reports = split_progress(progress, [job.passes for job in jobs])
    for job, report in zip(jobs, reports, strict=True):
        scores, classes = _score(replace(job.setup, progress=report), job.lines)
        rows += _rows(job, scores, policies)
        infos.append(
            {
                "name": job.target.name,
                "data": job.target.dataset.name,
                "images": len(job.target.dataset),
                "classes": classes,
                "own": job.target.own,
                "model": job.target.predictor.fingerprint,
            }
        )
    return STUDY.results(
        rows,
        {
            "targets": infos,
            "recipe": prior.name,
            "budgets": list(shared),
            "asked_budgets": list(budgets),
            "left_out": {name: why for job in jobs for name, why in job.left_out.items()},
            "doubt": " ".join(doubts),
            "seed": scoring.seed,
            "runs": scoring.runs,
            "halvings": scoring.halvings,
            "protocol": scoring.protocol,
            "policies": {name: policy_to_json(policy) for name, policy in policies.items()},
        },
        record,
    )


def _score(setup: Setup, lines: Sequence[MethodRun]) -> tuple[Scores, int]:
    """Predict each distinct view once; return the scores at each budget, and the class count."""
    views = [view for line in lines for view in line.views]
    here = replace(setup, store=predictions_path(setup, views, setup.store))
    scores: Scores = {}
    classes = 0
    for one in score_budgets(here, lines, _lengths):
        scores.setdefault((one.line.method, one.budget), []).append(one)
        classes = one.log_probs.shape[1]
    return scores, classes


def _lengths(setup: Setup, line: MethodRun) -> dict[int, int]:
    """Return how many entries to score at each budget; fixed-budget methods at larger ones too."""
    row = BASELINES.get(line.method)
    if row is not None and row.budget is not None:
        return {b: len(line.policy) for b in setup.budgets if row.budget <= b}
    return {budget: len(line.policy.for_budget(budget)) for budget in setup.budgets}


def _rows(job: TargetJob, scores: Scores, policies: Mapping[str, Policy]) -> Iterator[Result]:
    """Yield the metrics of each policy and baseline on one target, and the differences."""
    target = job.target
    evaluations = {key: [one.evaluation for one in runs] for key, runs in scores.items()}
    for budget in job.setup.budgets:
        for source in (*policies, *job.baselines):
            runs = scores.get((source, budget))
            if runs is None:
                continue
            keys = {
                "model": target.name,
                "data": target.dataset.name,
                "method": source,
                "label": source if source in policies else label_of(source),
                "budget": budget,
                "views": max(one.views for one in runs),
                "kind": "policy" if source in policies else "baseline",
                "own": source == target.own,
                "images": len(target.dataset),
            }
            others = {"own": target.own, "crops": CROPS, "plain": "plain"}
            pairs = {kind: (other, budget) for kind, other in others.items() if other is not None}
            yield from measured_rows(job.setup, evaluations, (source, budget), pairs, keys)


def shown(own: Results, metric: str = "cll") -> Result | None:
    """Return the change that the matrix shows for a method on a target.

    It is relative to the target's own policy or, if it has none, to random crops; None for these
    references themselves.
    """
    return own.get(metric=metric, versus="own") or (
        None if own.values("own") == [True] else own.get(metric=metric, versus="crops")
    )


def foreign(results: Results) -> list[Results]:
    """Return the results of each policy on each target that it was not searched for."""
    parts = results.where(kind="policy", own=False).groups("method", "model")
    return [own for _, own in parts]


def sentence(results: Results) -> str:
    """Return the answer at the largest budget."""
    most = largest_budget(results)
    parts = foreign(results.where(budget=most))
    answers = [text for text in (_changed(parts), _against_crops(parts)) if text]
    text = "; ".join(answers) or "no policy was tried on a foreign target"
    return with_minus_signs(f"With {views_text(most)}: {text}.")


def tables(results: Results) -> list[Table]:
    """Return a matrix for each budget and metric, the largest budget first."""
    budgets = sorted(results.values("budget"), reverse=True)
    return [matrix(results, metric, b) for b in budgets for metric in ("cll", "accuracy")]


def matrix(results: Results, metric: str = "cll", budget: int | None = None) -> Table:
    """Return a line per policy and a column per target; a difference beyond chance is bold."""
    budget = largest_budget(results) if budget is None else budget
    here = results.where(budget=budget)
    targets = here.values("model")
    heads = [name if _has_own(here, name) else f"{name} (− CF)" for name in targets]
    columns = [Column("policy of", number=False, levels=("", "Policy of"))]
    columns += [Column(head, levels=("Evaluated on", head)) for head in heads]
    sections = []
    for _, part in here.groups("kind"):
        lines = []
        for (_, label), own in part.groups("method", "label"):
            cells = [_cell(here, own.where(model=target), metric) for target in targets]
            lines.append((Cell(label), *cells))
        sections.append(tuple(lines))
    images = here.values("images")
    amount = " to ".join(f"{number:,}" for number in sorted({min(images), max(images)}))
    unit = "accuracy (points)" if metric == "accuracy" else "cLL"
    return Table(
        f"change in {unit}, {views_text(budget)}, {amount} unseen images: the line's policy − the "
        "column's own",
        tuple(columns),
        tuple(sections),
        caption="The change in calibrated log-likelihood when a model's own policy is replaced by "
        f"another model's, with {views_text(budget)}; own policies with their calibrated "
        "log-likelihood.",
        label="table:transfer",
    )


def figures(results: Results) -> list[Drawing]:
    """Draw the heat map, and cLL against views for each target without a policy of its own."""
    drawings = [heat_map(results)]
    for number, target in enumerate(results.values("model"), 1):
        if not _has_own(results, target):
            drawings.append(views_drawing(results, target, f"transfer_views_{number}"))
    return drawings


def heat_map(results: Results) -> Drawing:
    """Draw the change in cLL, a line per policy and a column per target (the paper's figure)."""
    from relook.report.shapes import HeatCell, heat_drawing

    most = largest_budget(results)
    here = results.where(budget=most)
    targets, sources = here.values("model"), here.values("method")
    policies = here.where(kind="policy").values("method")
    cells, words = {}, []
    for y, source in enumerate(sources):
        for x, target in enumerate(targets):
            own = here.where(method=source, model=target)
            change = shown(own)
            if change is not None:
                text = metric_of("cll").signed(change.value)
                cells[y, x] = HeatCell(text, change.value, change.is_clear)
                words.append(f"policy of {source} on {target} {change}")
            elif own:
                level = metric_of("cll").number(own.one(metric="cll").value)
                cells[y, x] = HeatCell(f"{_standing(here, own)}\n{level}".strip())
    changes = [abs(one.value) for part in foreign(here) if (one := shown(part)) is not None]
    return heat_drawing(
        "transfer",
        "Change in cLL under other policies",
        [one if one in policies else SHORT_NAMES.get(one, one) for one in sources],
        [one if _has_own(here, one) else f"{one}\n(minus CF)" for one in targets],
        cells,
        largest=max(changes, default=0.0) or 1e-3,
        first=len(policies),
        axes_labels=("evaluated on", "policy of"),
        note=f"cLL with {views_text(most)}, line minus own policy; bold: 95 % interval without 0",
        words=f"Differences in cLL with {views_text(most)}: {'; '.join(words)}.",
    )


def views_drawing(results: Results, target: str, name: str = "transfer_views") -> Drawing:
    """Draw cLL against views of every policy and baseline on one target."""
    from relook.report import shapes
    from relook.report.series import curves_of

    here = results.where(model=target)
    labels = {
        row["method"]: "its own policy" if row["own"] else f"policy of {row['method']}"
        for row in here.where(kind="policy", metric="cll", versus=None).rows
    }
    curves = curves_of(
        without_deviations(here), "cll", shapes.family_styles(labels) | shapes.METHODS
    )
    panel = shapes.Panel(target, metric_of("cll").title, curves)
    title = f"Calibrated log-likelihood against views on {target}"
    return shapes.curves_drawing(name, title, [[panel]])


STUDY = Study(
    "transfer",
    "Policies on other models",
    "Figures transfer-cifar, transfer-imagenet",
    "The change in calibrated log-likelihood when a model's own policy is replaced by that of "
    "another.",
    tables,
    matrix,
    figures,
    brief=lambda results: tables(results)[:2],
    sentence=sentence,
)


def _has_own(results: Results, target: str) -> bool:
    return bool(results.where(model=target, own=True))


def _standing(results: Results, own: Results) -> str:
    """Return the label of a cell without a difference: own policy, reference or neither."""
    row = own.rows[0]
    if row["own"]:
        return "own"
    is_reference = row["method"] == CROPS and not _has_own(results, row["model"])
    return "reference" if is_reference else ""


def _cell(results: Results, own: Results, metric: str) -> Cell:
    if not own:
        return Cell()
    change = shown(own, metric)
    if change is not None:
        return cell_of(change, bold=change.is_clear)
    level = cell_of(own.one(metric=metric))
    return Cell(f"{_standing(results, own)} {level.text}".strip())


def _changed(parts: Sequence[Results]) -> str:
    """Describe what foreign policies cost on targets that have policies of their own."""
    changes = [one for part in parts if (one := part.get(metric="cll", versus="own"))]
    if not changes:
        return ""
    worst = min(changes, key=lambda one: one.value)
    mean = float(np.mean([one.value for one in changes]))
    return (
        f"a foreign policy changes cLL by {mean:+.4f} on average over "
        f"{count(len(changes), 'pair')}, {worst.value:+.4f} at worst "
        f"({worst['method']} on {worst['model']})"
    )


def _against_crops(parts: Sequence[Results]) -> str:
    """Describe how foreign policies compare to random crops."""
    changes = [one for part in parts if (one := part.get(metric="cll", versus="crops"))]
    if not changes:
        return ""
    intervals = [corrected_change(one, len(changes)) for one in changes]
    better, worse = sum(one.low > 0 for one in intervals), sum(one.high < 0 for one in intervals)
    if len(changes) == 1:
        (one,) = changes
        verb = "is better than" if better else "shows no difference from"
        verb = "is worse than" if worse else verb
        return (
            f"the policy of {one['method']} on {one['model']} {verb} random crops: cLL {one}, "
            "95 % interval"
        )
    return (
        f"foreign policies are better than random crops on {better} of {len(changes)}, worse on "
        f"{worse}, the rest shows no difference (at 95 % for all of them together)"
    )
