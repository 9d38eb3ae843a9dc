"""`relook early-exit`: learn how many views each image needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.cli.shared import options, sources
from relook.cli.shared.console import (
    print_json,
    print_table,
    print_verdict,
    progress_bar,
    resumable,
    say,
)
from relook.cli.shared.inputs import PolicyInputs, PolicySource
from relook.cli.shared.option_groups import expand_options, option
from relook.data import Dataset
from relook.deploy.early_exit.learn import (
    check_target,
    check_unseen,
    learn_early_exit,
    parse_target,
)
from relook.deploy.early_exit.report import ExitReport, report_early_exit
from relook.deploy.early_exit.rule import EarlyExit
from relook.deploy.tta.view_plan import ViewPlan, plan_views
from relook.errors import MissingExtraError
from relook.foundation.wording import plain
from relook.io.files import write_json_atomic
from relook.io.fingerprint import fingerprint
from relook.numerics.arrays import LogProbs
from relook.numerics.splits import stratified_split
from relook.predictions.passes import predict_views
from relook.report.tables import Cell, Column, Table, change_cell


@expand_options
def early_exit_command(
    *,
    scored: PolicySource,
    target: str = option(
        "The target of the rule: accuracy-loss=0.005 (at most this loss of accuracy compared with "
        "all views, with 95 % confidence) or views=5 (the mean number of views).",
        default=...,
    ),
    views: int | None = option("Cut the policy to its first N views.", min=2, shown="all"),
    learn_share: float = option(
        "Share of the images to learn on; the rule is evaluated on the others.", default=0.5
    ),
    out: Path | None = option(
        "Where to write the rule; its report and figures go next to it.",
        shown="early-exit.json next to the policy",
    ),
    force: options.ForceOption = False,
    figures: bool = options.details_option("Draw the curves, as SVG and PNG.", default=True),
    seed: options.SeedOption = 0,
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Learn how many views each image needs, so that easy images get few and hard ones more.

    The rule is learned on a part of the images that the policy was not found on: held out by the
    search, or left out of it. On the others it is compared with the same number of views for every
    image.
    """
    parsed_target = parse_target(target)
    file = out or scored.source.policy.with_name("early-exit.json")
    sources.refuse_to_overwrite(file, force)
    inputs = scored.read_unseen()
    inputs.note_balance()
    dataset = inputs.dataset
    plan = plan_views(inputs.policies[0], views, temperature=None)
    report_on, learn_on = stratified_split(dataset.labels, learn_share, seed, dataset.units)
    learned_groups = _groups(dataset, learn_on)
    check_target(parsed_target, len(learn_on), len(plan.views), learned_groups)
    check_unseen(dataset.identities, inputs.policies[0].seen)
    say(f"{len(learn_on):,} images to learn on, {len(report_on):,} to report on")
    with resumable(timeout=timeout):
        inputs = scored.with_engine(inputs, file.parent, len(plan.views) * len(dataset))
        log_probs = _predictions(inputs, plan, file, batch)
    learned_on = (log_probs[:, learn_on], dataset.labels[learn_on])
    rule = learn_early_exit(
        *learned_on,
        plan.policy,
        parsed_target,
        seed=seed,
        groups=learned_groups,
        identities=dataset.identities[learn_on],
    )
    report = report_early_exit(
        rule,
        log_probs[:, report_on],
        dataset.labels[report_on],
        plan.policy,
        learned_on=learned_on,
        groups=_groups(dataset, report_on),
        identities=dataset.identities[report_on],
    )
    _finish(rule, report, inputs, plan, file, figures, as_json)


def _predictions(inputs: PolicyInputs, plan: ViewPlan, file: Path, batch: int | None) -> LogProbs:
    """Return each distinct view's log-probabilities, stored on disk so that it can be resumed."""
    # Stored predictions serve every view temperature.
    views = replace(plan, policy=replace(plan.policy, view_temperature=1.0)).record()
    identity = fingerprint(inputs.predictor.fingerprint, inputs.dataset.fingerprint, views, batch)
    with progress_bar("predicting unseen images", "views") as bar:
        return predict_views(
            inputs.predictor,
            inputs.dataset.images,
            plan.views,
            seed=plan.seed,
            store_path=file.parent / f"early-exit-{identity[:8]}.zarr",
            batch=batch,
            indices=inputs.indices,
            progress=bar,
        )


def _groups(dataset: Dataset, places: NDArray[np.int64]) -> NDArray[Any] | None:
    return None if dataset.units is None else dataset.units[places]


def _finish(
    rule: EarlyExit,
    report: ExitReport,
    inputs: PolicyInputs,
    plan: ViewPlan,
    file: Path,
    figures: bool,
    as_json: bool,
) -> None:
    rule.save(file)
    content = {**report.to_json(), "settings": dict(inputs.record)}
    write_json_atomic(file.with_name(f"{file.stem}-report.json"), content)
    drawn = _draw(report, file.parent / "figures") if figures else []
    if plan.policy != inputs.policies[0]:
        say("the rule holds for the policy cut to --views and frozen by its seed, as TTA runs it")
    if as_json:
        print_json({"out": str(file), "figures": [str(path) for path in drawn], **content})
        return
    print_table(_table(report))
    if report.note is not None:
        say(f"note: {report.note}")
    say(f"written to {file}, and {file.stem}-report.json" + (", figures/" if drawn else ""))
    print_verdict(report.sentence)


def _draw(report: ExitReport, directory: Path) -> list[Path]:
    try:
        from relook.report.early_exit_figures import save_early_exit_figures
    except MissingExtraError as error:
        say(f"no figures: {error}")
        return []
    return save_early_exit_figures(report, directory)


def _table(report: ExitReport) -> Table:
    learned = "the rule was not" if report.doubt else "neither policy nor rule was"
    heads = ("views", "cLL", "acc. %", "cLL, exit − this", "acc., exit − this")
    own = report.own

    def line(name: str, views: float, cll: float, right: float, *gains: Cell) -> tuple[Cell, ...]:
        texts = f"{views:.2f}", plain(cll, 4), plain(100 * right, 2)
        return (Cell(name), *map(Cell, texts), *gains)

    lines = [line("exit", own.views, own.cll, own.accuracy, Cell(), Cell())]
    for one in (report.over_same, report.over_next, report.over_full):
        gains = change_cell(one.cll, 4), change_cell(one.accuracy, 2, 100)
        cll, right = own.cll - one.cll.estimate, own.accuracy - one.accuracy.estimate
        lines.append(line("fixed", one.views, cll, right, *gains))
    columns = (Column("", number=False), *map(Column, heads))
    return Table(f"{report.images:,} images that {learned} found on", columns, (tuple(lines),))
