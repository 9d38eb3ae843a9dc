"""Domain shift: policies found on clean images, scored on corrupted ones (the paper's study)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, from_numpy

from relook.data.base import Dataset
from relook.data.corrupted import Source
from relook.errors import RelookError
from relook.evaluation.baselines import POLICY_METHOD, label_of
from relook.evaluation.results import Results
from relook.evaluation.scoring import lines_of, score_budgets
from relook.evaluation.setup import Setup, available_methods, check_policies, with_magnitude
from relook.evaluation.unseen import Unseen, unseen_part
from relook.foundation.progress import Progress, part_of
from relook.foundation.wording import views_text, with_minus_signs
from relook.models import Predictor
from relook.numerics.splits import stratified_split
from relook.policy import Policy
from relook.policy.recipes import Recipe
from relook.predictions.passes import distinct_views
from relook.report.comparison_tables import method_table, paper_tables
from relook.report.metrics import metric_of
from relook.report.tables import (
    SHORT_NAMES,
    Column,
    Line,
    Table,
    best_of_line,
    side_by_side,
    table_of,
)
from relook.studies.corruptions import (
    check_corruptions,
    check_severities,
    corrupt_images,
    corrupt_photos,
    resized_photos,
)
from relook.studies.robustness_scores import CLEAN, Condition, Tally, result_rows
from relook.studies.study import (
    Study,
    StudyKeywords,
    corrected_change,
    methods_legend,
    study_settings,
)
from relook.transforms.full_images import FullImages

if TYPE_CHECKING:  # drawing needs matplotlib
    from relook.report.figures import Drawing

METHODS = ("plain", "cf", "mgrid")
"""The baselines of the paper's study."""


@dataclass(frozen=True)
class Shift:
    """Corruptions and severities (None: all), generated here or read from a `source`."""

    corruptions: Sequence[str] | None = None
    severities: Sequence[int] | None = None
    source: Source | None = None


def robustness(
    predictor: Predictor,
    dataset: Dataset,
    policy: Policy | Sequence[Policy],
    *,
    recipe: Recipe | str,
    validation: Dataset | None = None,
    shift: Shift | None = None,
    indices: ArrayLike | None = None,
    store_path: str | Path | None = None,
    progress: Progress | None = None,
    record: Mapping[str, Any] | None = None,
    **settings: Unpack[StudyKeywords],
) -> Results:
    """Score the policy and baselines under every corruption at every severity.

    `dataset` has clean images; those that the policy was found on are left out with a warning, as
    are their corrupted versions. `validation` has clean images for MGrid's grid search. `shift` has
    the corruptions and their source (default: all, generated from the seed and the images'
    `indices`). Photos are corrupted whole, at the size that the plain view is cut from, and then
    views are cut from them. `policy` and the other keywords are those of `relook.compare`.
    `store_path` is a directory for predictions: the same call resumes there.
    """
    policies = (policy,) if isinstance(policy, Policy) else tuple(policy)
    scoring = study_settings(STUDY.name, settings, {"budgets": (5, 10, 20), "methods": METHODS})
    check_policies(policies, scoring.runs)
    shift = shift or Shift()
    names, levels = check_corruptions(shift.corruptions), check_severities(shift.severities)
    unseen = unseen_part(dataset, policies, indices)
    images = unseen.dataset.images
    if shift.source is not None:  # its images have the size of the model's input
        images = unseen.dataset.plain
    elif isinstance(images, FullImages):
        images = resized_photos(images)
    setup = replace(scoring, runs=max(scoring.runs, len(policies))).setup(
        predictor,
        replace(unseen.dataset, images=images),
        recipe,
        indices=unseen.indices,
        store_path=None if store_path is None else Path(store_path) / "clean.zarr",
        progress=progress,
    )
    chosen, left_out = available_methods(setup, scoring.methods, validation)
    setup, grid = with_magnitude(setup, validation if "mgrid" in chosen else None)
    lines = [line for method in chosen for line in lines_of(setup, method, policies)]
    tally = Tally(names, levels)
    conditions = [CLEAN, *tally.conditions]
    distinct, _ = distinct_views(view for line in lines for view in line.views)
    passes = len(distinct) * len(setup.dataset)
    for number, condition in enumerate(conditions):
        corrupted = _images_under(setup, condition, shift.source, unseen)
        report = part_of(progress, number * passes, len(conditions) * passes)
        here = _setup_under(setup, condition, corrupted, report)
        for one in score_budgets(here, lines):
            tally.add(condition, one)
    return STUDY.results(
        result_rows(setup, tally, chosen),
        {
            **setup.record(),
            "methods": chosen,
            "left_out": left_out,
            "doubt": unseen.doubt,
            "made": shift.source is None,
            "normalised": tally.normalised,
            "grid_search": grid,
        },
        record,
    )


def sentence(results: Results) -> str:
    """Return the answer for the policy at its largest budget."""
    own = results.where(method=POLICY_METHOD, metric="muce", corruption=None)
    error = own.where(versus=None).rows[-1]
    change = own.get(metric="muce", versus="rival", budget=error["budget"])
    if change is None:
        return f"Mean error under corruption: {100 * error.value:.2f} %."
    interval, correction, outcome = corrected_change(change, 1), "", "is more robust than"
    rivals = len(results.values("method")) - 1
    if interval.high >= 0:  # the best of several baselines is partly a lucky one
        interval, correction = corrected_change(change, rivals), f" (for the best of {rivals})"
        outcome = "is less robust than" if interval.low > 0 else "shows no difference from"
    return with_minus_signs(
        f"With {views_text(error['views'])} the policy {outcome} {label_of(change['reference'])}: "
        f"{100 * interval.estimate:+.2f} points of error, 95 % interval{correction} "
        f"{100 * interval.low:+.2f} to {100 * interval.high:+.2f}."
    )


def tables(results: Results) -> Sequence[Table]:
    """Return errors by method and by corruption or, for several models, muCE by method."""
    if len(list(results.groups("data", "model"))) > 1:
        return paper_tables(results, (_mean_metric(results),))
    corruptions, levels = (results.values(key) for key in ("corruption", "severity"))
    metrics = ("clean_error", "muce", *(["mce"] if results.get(metric="mce") else []), "cll")
    methods = method_table(
        results,
        metrics,
        {"rival": "best baseline", "plain": "plain image"},
        compared="muce",
        title=f"{results.rows[0]['images']:,} images × {len(corruptions)} corruptions × "
        f"{len(levels)} severities; muCE: mean error under corruption, lower is better",
    )
    columns = [Column("corruption", number=False)]
    for method, budget, views in _largest_budgets(results):
        head = f"{SHORT_NAMES.get(method, method)} ×{views}"
        columns.append(Column(head, {"method": method, "budget": budget}))
    lines = [
        Line((name.replace("_", " "),), {"corruption": name, "metric": "uce"})
        for name in corruptions
    ]
    each = table_of(
        results.where(corruption=(None, *corruptions)),
        columns,
        [lines, [Line(("mean",), {"corruption": None, "metric": "muce"})]],
        best_of_line,
        title="error (%) by corruption, mean over severities; the lowest is bold",
    )
    return [methods, each]


def paper_table(results: Results) -> Table:
    """Return muCE (or mCE) by method and budget, in the form of the paper's appendix."""
    metric = _mean_metric(results)
    corruptions, levels = (results.values(key) for key in ("corruption", "severity"))
    return side_by_side(
        paper_tables(results, (metric,)),
        caption=f"{metric_of(metric).title} on {results.rows[0]['images']} corrupted images, "
        f"{len(corruptions)} corruptions at {len(levels)} severities: {methods_legend(results)}.",
        label="table:ce",
    )


def figures(results: Results) -> list[Drawing]:
    """Draw the mean error against views by model; for a single model also by corruption."""
    from relook.report import shapes
    from relook.report.series import curves_of

    metric = _mean_metric(results)
    label = "mCE" if metric == "mce" else "Mean error under corruption (%)"
    scale = metric_of(metric).scale
    panels = [
        shapes.Panel(str(model or ""), label, curves_of(own, metric, shapes.METHODS), scale)
        for (model,), own in results.groups("model")
    ]
    drawings = [shapes.curves_drawing("robustness_views", f"{label} against views", [panels])]
    return drawings if len(panels) > 1 else [*drawings, _corruptions_drawing(results)]


STUDY = Study(
    "robustness",
    "Robustness to domain shift",
    "Figures ood-cifar, ood-imagenet; Tables ce-cifarsC, ce-ImageNetC",
    "The mean error under common corruptions, with policies found on clean images.",
    tables,
    paper_table,
    figures,
    sentence=sentence,
)


def _mean_metric(results: Results) -> str:
    """Return the metric of the mean over corruptions: mCE if errors are divided by AlexNet's."""
    return "muce" if results.get(metric="mce") is None else "mce"


def _largest_budgets(results: Results) -> list[tuple[str, int, int]]:
    """Return each method with its largest budget and the number of views at that."""
    last = {row["method"]: row for row in results.where(metric="muce", versus=None).rows}
    return [(method, row["budget"], row["views"]) for method, row in last.items()]


def _corruptions_drawing(results: Results) -> Drawing:
    from relook.report.shapes import METHODS as METHOD_STYLES
    from relook.report.shapes import bars_drawing

    names = results.values("corruption")
    values, styles = {}, {}
    for method, budget, views in _largest_budgets(results):
        own = results.where(method=method, budget=budget)
        each = [own.one(metric="uce", corruption=name).value for name in names]
        values[method] = [100 * value for value in (*each, own.one(metric="muce").value)]
        label = f"{label_of(method)}, {views_text(views)}"
        styles[method] = replace(METHOD_STYLES[method], label=label)
    words = "; ".join(
        f"{name}: " + ", ".join(f"{label_of(m)} {own[place]:.1f}" for m, own in values.items())
        for place, name in enumerate(names)
    )
    shown = [*(name.replace("_", " ") for name in names), "mean"]
    panels = {"error (%), mean over severities": values}
    return bars_drawing(
        "robustness_corruptions",
        "Error by corruption",
        shown,
        panels,
        styles,
        f"{words}.",
        rule=True,
    )


def stratified_part(dataset: Dataset, images: int | None, seed: int) -> NDArray[np.int64]:
    """Return the places of `images` images, stratified by class; None: all."""
    if images is None or images >= len(dataset):
        return np.arange(len(dataset))
    if images < 4:
        raise RelookError(f"expected at least 4 images to score on, got {images}")
    share = images / len(dataset)
    return stratified_split(dataset.labels, share, seed, dataset.units)[1]


def _images_under(
    setup: Setup, condition: Condition, corrupted: Source | None, unseen: Unseen
) -> Tensor | FullImages:
    """Return the images under a condition."""
    name, level = condition
    clean = setup.dataset.images
    if condition == CLEAN:
        return clean
    if corrupted is None:
        made: Any = {"seed": setup.seed, "indices": setup.places}
        if isinstance(clean, FullImages):
            return corrupt_photos(clean, name, level, **made)
        return corrupt_images(clean, name, level, **made)
    found = corrupted(name, level)
    expected = [unseen.given, *clean.shape[1:]]
    if list(found.shape) != expected:
        raise RelookError(
            f"{name}, severity {level}: expected corrupted images of shape {expected}, "
            f"got {list(found.shape)}"
        )
    return found[from_numpy(unseen.kept)]


def _setup_under(
    setup: Setup, condition: Condition, images: Tensor | FullImages, progress: Progress | None
) -> Setup:
    """Return the setup for the images under a condition, with its own store of predictions."""
    path = None if setup.store is None else Path(setup.store)
    if path is not None and condition != CLEAN:
        path = path.with_name(f"{condition[0]}-{condition[1]}.zarr")
    dataset = replace(setup.dataset, images=images)
    return replace(setup, dataset=dataset, store=path, progress=progress)
