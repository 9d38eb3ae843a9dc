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
from relook.report.comparison_tables import about, method_table, paper_tables
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
from relook.studies.study import Study, StudyKeywords, corrected_change, study_settings
from relook.transforms.full_images import FullImages

if TYPE_CHECKING:  # drawing needs matplotlib
    from relook.report.figures import Drawing

METHODS = ("plain", "cf", "mgrid")
"""The baselines of the paper's study."""


@dataclass(frozen=True)
class Shift:
    """Which corruptions at which severities (None: all), made here or read from a `source`."""

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

    `dataset` holds clean images, of which those that the policy was found on are left out, with
    their corrupted versions and a warning, `validation` clean ones that
    MGrid may look for its magnitude on. `shift` says which corruptions, and where they come from
    (default: all, made from the seed and the images' `indices`). Photos are corrupted whole, at
    the size that the plain view is cut from, and views are cut from what that gives. What `policy`
    and the other keywords mean is as in `relook.compare`.
    `store_path` is a directory for predictions; an interrupted call goes on.
    """
    policies = (policy,) if isinstance(policy, Policy) else tuple(policy)
    asked = study_settings(STUDY.name, settings, {"budgets": (5, 10, 20), "methods": METHODS})
    check_policies(policies, asked.runs)
    shift = shift or Shift()
    names, levels = check_corruptions(shift.corruptions), check_severities(shift.severities)
    unseen = unseen_part(dataset, policies, indices)
    images = unseen.dataset.images
    if shift.source is not None:  # those have the size of the model's input
        images = unseen.dataset.plain
    elif isinstance(images, FullImages):
        images = resized_photos(images)
    setup = replace(asked, runs=max(asked.runs, len(policies))).setup(
        predictor,
        replace(unseen.dataset, images=images),
        recipe,
        indices=unseen.indices,
        store_path=None if store_path is None else Path(store_path) / "clean.zarr",
        progress=progress,
    )
    chosen, left_out = available_methods(setup, asked.methods, validation)
    setup, grid = with_magnitude(setup, validation if "mgrid" in chosen else None)
    lines = [line for method in chosen for line in lines_of(setup, method, policies)]
    tally = Tally(names, levels)
    conditions = [CLEAN, *tally.conditions]
    distinct, _ = distinct_views(view for line in lines for view in line.views)
    passes = len(distinct) * len(setup.dataset)
    for number, condition in enumerate(conditions):
        shown = _shown(setup, condition, shift.source, unseen)
        report = part_of(progress, number * passes, len(conditions) * passes)
        here = _at(setup, condition, shown, report)
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
    """Return the plain answer for the policy at its largest budget."""
    own = results.where(method=POLICY_METHOD, metric="muce", corruption=None)
    level = own.where(versus=None).rows[-1]
    change = own.get(metric="muce", versus="rival", budget=level["budget"])
    if change is None:
        return f"Mean error under corruption: {100 * level.value:.2f} %."
    found, allowed, outcome = corrected_change(change, 1), "", "is more robust than"
    rivals = len(results.values("method")) - 1
    if found.high >= 0:  # the best of several baselines is partly a lucky one
        found, allowed = corrected_change(change, rivals), f" (for the best of {rivals})"
        outcome = "is less robust than" if found.low > 0 else "shows no difference from"
    return with_minus_signs(
        f"With {views_text(level['views'])} the policy {outcome} {label_of(change['reference'])}: "
        f"{100 * found.estimate:+.2f} points of error, 95 % interval{allowed} "
        f"{100 * found.low:+.2f} to {100 * found.high:+.2f}."
    )


def tables(results: Results) -> Sequence[Table]:
    """Return a line per method and budget, and the corruptions one by one; of models, muCE."""
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
    for method, budget, views in _largest(results):
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
    legend = ", ".join(f"{about(m)} ({SHORT_NAMES.get(m, m)})" for m in results.values("method"))
    return side_by_side(
        paper_tables(results, (metric,)),
        caption=f"{metric_of(metric).title} on {results.rows[0]['images']} corrupted images, "
        f"{len(corruptions)} corruptions at {len(levels)} severities: {legend}.",
        label="table:ce",
    )


def figures(results: Results) -> list[Drawing]:
    """Draw the mean error against views, a panel per model; of one, the corruptions too."""
    from relook.report import shapes
    from relook.report.series import curves_of

    metric = metric_of(_mean_metric(results))
    label = "mCE" if metric.scale == 1 else "Mean error under corruption (%)"
    panels = [
        shapes.Panel(
            str(model or ""),
            label,
            curves_of(own, _mean_metric(results), shapes.METHODS),
            metric.scale,
        )
        for (model,), own in results.groups("model")
    ]
    drawn = [shapes.curves_drawing("robustness_views", f"{label} against views", [panels])]
    return drawn if len(panels) > 1 else [*drawn, _corruptions_drawing(results)]


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
    """Return what the mean over corruptions is called: mCE where AlexNet's errors divide."""
    return "muce" if results.get(metric="mce") is None else "mce"


def _largest(results: Results) -> list[tuple[str, int, int]]:
    """Return each method with its largest budget, and the views that it takes."""
    last = {row["method"]: row for row in results.where(metric="muce", versus=None).rows}
    return [(method, row["budget"], row["views"]) for method, row in last.items()]


def _corruptions_drawing(results: Results) -> Drawing:
    from relook.report.shapes import METHODS as LOOKS
    from relook.report.shapes import bars_drawing

    names = results.values("corruption")
    values: dict[str, list[float]] = {}
    for method, budget, _ in _largest(results):
        own = results.where(method=method, budget=budget)
        each = [own.one(metric="uce", corruption=name).value for name in names]
        values[method] = [100 * value for value in (*each, own.one(metric="muce").value)]
    styles = {
        method: replace(LOOKS[method], label=f"{label_of(method)}, {views_text(views)}")
        for method, _, views in _largest(results)
    }
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
    """Return the places of `images` images, of each class in proportion; None: all."""
    if images is None or images >= len(dataset):
        return np.arange(len(dataset))
    if images < 4:
        raise RelookError(f"expected at least 4 images to score on, got {images}")
    share = images / len(dataset)
    return stratified_split(dataset.labels, share, seed, dataset.units)[1]


def _shown(
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
    wanted = [unseen.given, *clean.shape[1:]]
    if list(found.shape) != wanted:
        raise RelookError(
            f"{name}, severity {level}: expected corrupted images of shape {wanted}, "
            f"got {list(found.shape)}"
        )
    return found[from_numpy(unseen.kept)]


def _at(
    setup: Setup, condition: Condition, images: Tensor | FullImages, progress: Progress | None
) -> Setup:
    path = None if setup.store is None else Path(setup.store)
    if path is not None and condition != CLEAN:
        path = path.with_name(f"{condition[0]}-{condition[1]}.zarr")
    dataset = replace(setup.dataset, images=images)
    return replace(setup, dataset=dataset, store=path, progress=progress)
