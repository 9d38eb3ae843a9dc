"""Ensembles: three ways to search for one, alongside baselines (the paper's section on ensembles).

"single": all members use one member's policy; "ensemble": a policy is found on the members'
mean; "per-member": each member has its own policy, which the paper does not try.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from relook.data.base import Dataset
from relook.errors import unknown_name
from relook.evaluation.baselines import POLICY_METHOD, Options, label_of
from relook.evaluation.results import Results, join
from relook.evaluation.setup import available_methods, with_magnitude
from relook.foundation.progress import StageProgress, stage_of
from relook.foundation.wording import with_minus_signs
from relook.io.fingerprint import fingerprint
from relook.io.run_directory import RunDirectory
from relook.models import EnsemblePredictor, Predictor
from relook.models.accelerate import accelerate_run
from relook.policy.file import policy_to_json
from relook.policy_search.job import SearchJob, plan_search
from relook.policy_search.settings import SearchSettings
from relook.report.comparison_tables import method_table, paper_tables
from relook.report.metrics import metric_of
from relook.report.tables import SHORT_NAMES, Table, side_by_side
from relook.selection.record import Log
from relook.studies.ensembles_ways import (
    ENSEMBLE,
    PER_MEMBER,
    SINGLE,
    WAYS,
    check_members,
    make_plans,
    result_rows,
    score_plans,
    search_policies,
)
from relook.studies.in_domain import CROPS_AND_TRAINING, POLICY_AND_CROPS, methods_drawing
from relook.studies.study import Study, StudyKeywords, study_settings, without_deviations

if TYPE_CHECKING:  # drawing needs matplotlib
    from relook.report.figures import Drawing

SHORT: Mapping[str, str] = {
    **SHORT_NAMES,
    "mtrain": "Tr",
    "mgrid": "M* 1",
    SINGLE: "GPS 1",
    ENSEMBLE: "GPS ens",
    PER_MEMBER: "GPS each",
}
"""The names in the paper's figure, and one for "per-member"."""

VERSUS = {"rival": "best baseline", "single": "GPS single", "plain": "plain image"}
"""The references of comparisons, with their names in tables."""

METHODS = ("plain", "cf", "mtrain", "mgrid")
"""The baselines of the paper's study: CC, CF, Tr and M*."""


def ensembles(
    members: Mapping[str, Predictor],
    dataset: Dataset,
    settings: SearchSettings,
    *,
    test: Dataset | None = None,
    single: str | None = None,
    run: str | Path | None = None,
    pools: Mapping[str, Path] = MappingProxyType({}),
    progress: StageProgress | None = None,
    log: Log | None = None,
    record: Mapping[str, Any] | None = None,
    **compared: Unpack[StudyKeywords],
) -> Results:
    """Search in three ways and score all on held-out images, alongside baselines.

    `settings` are those of one search; its split of `dataset` (or `test`) decides which images
    are held out. `single` names the member whose policy and magnitude M* all members use
    (default: the first). A budget counts distinct views per member. Every member sees the same
    number of views, and except for "per-member" the same views. The other keywords are those of
    `relook.compare`. `run` is a directory that stores everything: the same call resumes there.
    `pools` has, for members with a finished search of the same settings, the directory of that
    run, whose predictions are reused.
    """
    check_members(members, settings)
    single = next(iter(members)) if single is None else single
    if single not in members:
        raise unknown_name("member", single, members)
    scoring = study_settings(STUDY.name, compared, {"methods": METHODS}, without=("seed", "batch"))
    scoring = replace(scoring, seed=settings.seed, batch=settings.batch)
    together = EnsemblePredictor(list(members.values()))
    where = None if run is None else Path(run)
    job = plan_search(together, dataset, settings, test=test, directory=where)
    searched, held_out = job.split
    with nullcontext() if run is None else RunDirectory(run) as directory:
        if directory is not None:
            directory.check_settings(job.record())
        fast = _accelerated(members, job, pools)
        found = search_policies(fast, job, pools=pools, progress=progress, log=log)
        mark = fingerprint(single, asdict(scoring.options or Options()))
        setup = scoring.setup(
            fast[single],
            job.proof,
            settings.recipe,
            indices=held_out,
            # The grid search stores its predictions next to it.
            store_path=where and where / f"magnitude-{mark[:8]}.zarr",
            progress=stage_of(progress, "evaluate"),
        )
        validation = dataset.subset(searched)
        chosen, left_out = available_methods(setup, scoring.methods, validation)
        needs_grid = "mgrid" in chosen and setup.options.grid_magnitude is None
        setup, grid = with_magnitude(
            setup, validation if needs_grid else None, stage_of(progress, "magnitude")
        )
        plans = make_plans(setup, found, single, chosen)
        scored = score_plans(setup, list(fast.values()), plans, where and where / "held-out")
    return STUDY.results(
        (
            *result_rows(setup, scored.together(), scored.views, len(members)),
            *result_rows(setup, scored.members(), scored.views, 1),
        ),
        {
            **setup.record(),
            "members": list(members),
            "single": single,
            "policies": {name: policy_to_json(own) for name, own in found.members.items()},
            "policy": policy_to_json(found.ensemble),
            "images": len(job.proof),
            "searched": len(searched),
            "search": json.loads(json.dumps(job.record())),
            "methods": [method for method in chosen if method != POLICY_METHOD],
            "left_out": dict(left_out),
            "grid_search": grid,
            "data": {"name": dataset.name, "fingerprint": dataset.fingerprint},
        },
        record,
    )


def sentence(results: Results) -> str:
    """Return the answer at the largest budget: the best way, and how it compares to others."""
    together = results.where(members=_members(results), metric="cll")
    ways = {row["method"]: row for row in together.where(method=tuple(WAYS), versus=None).rows}
    best = max(ways.values(), key=lambda row: row.value)
    text = (
        f"With at most {best['budget']} views for each of {_members(results)} members, "
        f"{best['label']} has the best cLL, {best.value:.4f}"
    )
    for kind in ("rival", "single"):
        change = together.get(method=best["method"], budget=best["budget"], versus=kind)
        if change is not None:
            word = "better than" if change.value > 0 else "worse than"
            other = WAYS.get(change["reference"]) or label_of(change["reference"])
            text += f"; {word if change.is_clear else 'no different from'} {other}: {change}"
    return with_minus_signs(f"{text}.")


def tables(results: Results) -> list[Table]:
    """Return a line per method and budget, for the whole ensemble and for single members."""
    count = _members(results)
    both = {
        count: f"{count} members together, {results.rows[0]['images']:,} held-out images; budget "
        "and views for each member, passes in all",
        1: f"one member alone, mean ± deviation over {count}, with its own policy",
    }
    keys = {"budget": "budget", "views": "views", "passes": "passes"}
    return [
        method_table(
            results.where(members=one), ("cll", "accuracy"), VERSUS, keys=keys, title=title
        )
        for one, title in both.items()
    ]


def paper_table(results: Results) -> Table:
    """Return cLL and accuracy of the ensemble by method and budget, in the paper's form."""
    together = results.where(members=_members(results))
    methods = together.values("method")
    return side_by_side(
        paper_tables(together, ("cll", "accuracy"), order=methods, names=SHORT),
        caption=f"An ensemble of {_members(results)} members on {results.rows[0]['images']} "
        "held-out images; columns are methods and views for each member.",
        label="table:ensembles",
    )


def figures(results: Results) -> list[Drawing]:
    """Draw the ensemble's metrics against views; also CF against Tr, and GPS against CF."""
    from relook.report import shapes
    from relook.report.series import curves_of

    count = _members(results)
    together = results.where(members=count, versus=None)
    # Members differ more than methods, so deviations over members are left out.
    one = without_deviations(results.where(members=1)).labelled(model="one member")
    styles = shapes.family_styles({way: WAYS[way] for way in (PER_MEMBER, ENSEMBLE, SINGLE)})
    drawings = []
    for metric in ("cll", "accuracy"):
        look = metric_of(metric)
        curves = curves_of(together, metric, styles | shapes.METHODS)
        panel = shapes.Panel("", look.title, curves, look.scale, everything=False)
        title = f"{look.title} of {count} members against views"
        across = f"views for each of the {count} members"
        name = f"ensembles_{metric}"
        drawings.append(shapes.curves_drawing(name, title, [[panel]], across=across))
    methods = one.values("method")
    if {"cf", "mtrain"} <= set(methods):
        title = "Random crops against the augmentation of the training"
        training = one.labelled(model="")
        drawings.append(
            methods_drawing("train_vs_clean", title, training, CROPS_AND_TRAINING, ("accuracy",))
        )
    if "cf" in methods:
        ways = together.where(method=[m for m in together.values("method") if m != ENSEMBLE])
        policy = together.where(method=ENSEMBLE).labelled(method=POLICY_METHOD)
        shown = replace(results, rows=(*ways.rows, *policy.rows))
        both = join({"one member": one, f"{count} members together": shown})
        title = f"{metric_of('cll').title}: learned policy against random crops"
        drawings.append(methods_drawing("policy_vs_crops", title, both, POLICY_AND_CROPS, ("cll",)))
    return drawings


STUDY = Study(
    "ensembles",
    "Ensembles",
    "Figure ens",
    "A policy found on one member and used for all, one found on the whole ensemble, and "
    "one for each member.",
    tables,
    paper_table,
    figures,
    sentence=sentence,
)


def _members(results: Results) -> int:
    return max(int(count) for count in results.values("members"))


def _accelerated(
    members: Mapping[str, Predictor], job: SearchJob, pools: Mapping[str, Path]
) -> dict[str, Predictor]:
    """Return the members, each on the engine chosen by the settings or by an earlier call."""
    fast, settings = {}, job.settings
    for number, (name, member) in enumerate(members.items(), start=1):
        record = job.directory and job.directory / f"engine-{number}.json"
        fast[name] = accelerate_run(
            member,
            job.dataset.images,
            mode=settings.accelerate,
            precision=settings.precision,
            compiled=settings.compiled,
            passes=job.passes.pool,
            record=RunDirectory(pools[name]).engine if name in pools else record,
        ).predictor
    return fast
