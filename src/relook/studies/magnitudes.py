"""Test-time RandAugment at each magnitude (the paper's figure on the magnitude)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluation.baselines import GRID, Options
from relook.evaluation.cross_validation import cross_validated
from relook.evaluation.results import Result, Results, measured
from relook.evaluation.setup import best_magnitude, grid_log_probs
from relook.foundation.progress import Progress, part_of
from relook.foundation.wording import views_text
from relook.models import Predictor
from relook.numerics.randomness import check_seed
from relook.policy import DrawKind
from relook.policy.recipes import Recipe, get_recipe
from relook.report.metrics import metric_of
from relook.report.tables import Column, Line, Table, best_of_column, table_of
from relook.studies.study import Study, StudyKeywords, by_model, study_settings

if TYPE_CHECKING:  # drawing needs matplotlib
    from relook.report.figures import Drawing
    from relook.report.series import Curve

CHOOSERS = {"accuracy": "accuracy", "log_likelihood": "log-likelihood", "cll": "cLL"}
"""The metrics that choose M*, with their names in tables."""

RANDAUGMENT = "randaugment"
_LOOKS: Mapping[str, tuple[str, Any, tuple[float, ...]]] = {
    "accuracy": ("#14804a", (), ()),
    "log_likelihood": ("#3b3fa8", (), (4.0, 1.6)),
    "cll": ("#d1450b", (), ()),
}


def magnitudes(
    predictor: Predictor,
    dataset: Dataset,
    *,
    recipe: Recipe | str,
    grid: Sequence[float] = GRID,
    views: int = Options.grid_views,
    length: int = Options.length,
    draws: DrawKind = "fixed",
    indices: ArrayLike | None = None,
    store_path: str | Path | None = None,
    progress: Progress | None = None,
    record: Mapping[str, Any] | None = None,
    **settings: Unpack[StudyKeywords],
) -> Results:
    """Score `views` views of RandAugment at each magnitude by every metric.

    A view has `length` transforms with magnitudes uniform on [0, M]; all M share the same
    transforms and directions, so they differ only in strength. Run r draws them from
    seed + r. Metrics are cross-validated as in `relook.compare`, and the keywords `seed`, `runs`,
    `batch`, `halvings` and `protocol` mean the same. The paper averages 100 views.
    `store_path` is a directory for predictions: the same call resumes there.
    """
    scoring = study_settings(STUDY.name, settings, {}, ("budgets", "methods", "options"))
    seed, recipe, grid = check_seed(scoring.seed), get_recipe(recipe), check_grid(grid)
    for name, value in (("views", views), ("runs", scoring.runs)):
        if value < 1:
            raise RelookError(f"expected {name} of at least 1, got {value}")
    if length < 0:
        raise RelookError(f"expected a length of at least 0 transforms, got {length}")
    passes = len(grid) * views * len(dataset)
    scores: dict[float, list[Mapping[str, float]]] = {magnitude: [] for magnitude in grid}
    for run in range(scoring.runs):
        predicted = grid_log_probs(
            predictor,
            dataset,
            recipe,
            views=views,
            length=length,
            seed=seed + run,
            draws=draws,
            grid=grid,
            indices=None if indices is None else np.asarray(indices, dtype=np.int64),
            store_path=None if store_path is None else Path(store_path) / f"run-{run}",
            batch=scoring.batch,
            progress=part_of(progress, run * passes, scoring.runs * passes),
        )
        for magnitude, mean in predicted:
            scored = cross_validated(
                mean,
                dataset.labels,
                seed=seed,
                halvings=scoring.halvings,
                groups=dataset.units,
                protocol=scoring.protocol,
            )
            scores[magnitude].append(scored.metrics)
    keys = {
        "data": dataset.name,
        "method": RANDAUGMENT,
        "views": views,
        "images": len(dataset),
        "runs": scoring.runs,
    }
    return STUDY.results(
        (row for magnitude, own in scores.items() for row in _rows(magnitude, own, keys)),
        {
            "recipe": recipe.name,
            "length": length,
            "draws": draws,
            "seed": seed,
            "halvings": scoring.halvings,
            "protocol": scoring.protocol,
            "model": {"fingerprint": predictor.fingerprint},
            "data": {"name": dataset.name, "fingerprint": dataset.fingerprint},
        },
        record,
    )


def check_grid(grid: Sequence[float]) -> tuple[float, ...]:
    """Return the magnitudes sorted and without duplicates; raises if they are out of range."""
    values = sorted({float(magnitude) for magnitude in grid})
    if not values or not all(0 <= value <= 60 for value in values):
        raise RelookError(f"expected magnitudes from 0 to 60, got {list(grid)}")
    return tuple(values)


def best(results: Results, metric: str, run: int | None = None) -> float:
    """Return M* by a metric's mean over the runs, or by one run; of equals the smallest."""
    rows = results.where(metric=metric, run=run).rows
    return best_magnitude([(row["magnitude"], row.value) for row in rows])


def sentence(results: Results) -> str:
    """Return the answer: M* by each metric, and what the wrong one costs in cLL."""
    chosen = {name: best(results, name) for name in CHOOSERS}
    if len(set(chosen.values())) == 1:
        return f"M* is {chosen['cll']:g} by accuracy, log-likelihood and cLL alike."
    choices = ", ".join(f"{magnitude:g} by {CHOOSERS[name]}" for name, magnitude in chosen.items())
    cll = {m: results.one(metric="cll", magnitude=m).value for m in chosen.values()}
    losses = [
        f"{CHOOSERS[name]}'s choice loses {cll[chosen['cll']] - cll[magnitude]:.4f}"
        for name, magnitude in chosen.items()
        if magnitude != chosen["cll"]
    ]
    return f"M* is {choices}; in cLL, {' and '.join(losses)}."


def tables(results: Results) -> list[Table]:
    """Return a table per model with a line per magnitude, and one of M* by each metric."""
    metrics = (*CHOOSERS, "temperature")
    made = []
    columns = [Column("M"), *(Column(metric_of(m).head, {"metric": m}) for m in metrics)]
    for model, own in by_model(results):
        lines = [Line((f"{m:g}",), {"magnitude": m}) for m in own.values("magnitude")]
        title = f"{model}: {_title(own)}" if model else _title(own)
        made.append(table_of(own, columns, [lines], _is_best_score, title=title))
    return [*made, best_magnitudes_table(results)]


def best_magnitudes_table(results: Results) -> Table:
    """Return M* by each metric, its scores, and M* of each run."""
    columns = [
        Column("model", number=False, once=True),
        Column("chosen by", number=False),
        Column("M*"),
        *([Column("M* of the runs alone", optional=True)] if results.values("run") else []),
        *(Column(metric_of(name).head, {"metric": name}) for name in CHOOSERS),
    ]
    sections = []
    for (model,), own in results.groups("model"):
        lines = []
        for metric, label in CHOOSERS.items():
            chosen = best(own, metric)
            runs = [f"{best(own, metric, run):g}" for run in own.values("run")]
            texts = (str(model or ""), label, f"{chosen:g}", *([", ".join(runs)] if runs else []))
            lines.append(Line(texts, {"model": model, "magnitude": chosen}))
        sections.append(lines)
    views = " or ".join(str(views) for views in results.values("views"))
    return table_of(
        results,
        columns,
        sections,
        best_of_column,
        title="M* by each metric",
        caption="The magnitude M* of test-time RandAugment by the metric that it is chosen by, "
        f"{views} views.",
        label="table:mgrid",
    )


def figures(results: Results) -> list[Drawing]:
    """Draw accuracy above, LL and cLL below, a ring at each metric's M*; a column per model."""
    from relook.report import shapes
    from relook.report.series import curves_of
    from relook.report.style import INK, MethodStyle

    def curve_and_ring(metric: str, own: Results) -> tuple[Curve, shapes.Ring]:
        style = MethodStyle(metric, metric_of(metric).title, *_LOOKS[metric])
        (curve,) = curves_of(own, metric, {RANDAUGMENT: style}, across="magnitude")
        chosen = best(own, metric)
        value = metric_of(metric).scale * own.one(metric=metric, magnitude=chosen).value
        ring = shapes.Ring((chosen, value), f"{chosen:g}", style.color, metric == "log_likelihood")
        return curve, ring

    rows: list[list[shapes.Panel]] = [[], []]
    for model, own in by_model(results):
        for row, metrics in zip(rows, (("accuracy",), ("log_likelihood", "cll")), strict=True):
            curves, rings = zip(*(curve_and_ring(metric, own) for metric in metrics), strict=True)
            first = metric_of(metrics[0])
            row.append(shapes.Panel(model, first.title, curves, first.scale, rings=rings))
    ring = {"marker": "o", "ms": 8, "mfc": "none", "mec": INK, "mew": 1.5, "lw": 0}
    title = f"RandAugment with {views_text(results.values('views')[0])} at rising magnitudes"
    legend = [("M*: the best by that metric", ring)]
    drawing = shapes.curves_drawing(
        "magnitudes", title, rows, across="magnitude M", log=False, legend=legend
    )
    return [replace(drawing, description=results.sentence.replace("\n", " "))]


STUDY = Study(
    "magnitudes",
    "RandAugment at every magnitude",
    "Figure mgrid",
    "Accuracy, log-likelihood and calibrated log-likelihood of RandAugment at one magnitude M for "
    "all transforms, and the best M by each.",
    tables,
    best_magnitudes_table,
    figures,
    sentence=sentence,
)


def _is_best_score(grid: Any, y: int, x: int) -> bool:
    one = grid[y][x]
    return one is not None and one.metric != "temperature" and best_of_column(grid, y, x)


def _title(results: Results) -> str:
    row, runs = results.rows[0], len(results.values("run"))
    spread = f", mean ± deviation of {runs} runs" if runs else ""
    views = f"{row['views']} views of RandAugment with magnitudes up to M"
    return f"{row['images']:,} images, {views}{spread}"


def _rows(
    magnitude: float, metrics: Sequence[Mapping[str, float]], keys: Mapping[str, Any]
) -> Iterator[Result]:
    """Yield each metric's mean over the runs and, if there are several, its value in each run."""
    own = {**keys, "magnitude": magnitude}
    for name in metrics[0]:
        values = [one[name] for one in metrics]
        yield measured(name, values, **own)
        if len(values) > 1:
            yield from (Result(name, v, keys={**own, "run": r}) for r, v in enumerate(values))
