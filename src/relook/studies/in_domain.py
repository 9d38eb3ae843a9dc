"""The paper's tables and figures on clean images, from comparisons of several models.

All are made from `Comparison.results`, labelled with data and model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from relook.evaluation.baselines import POLICY_METHOD, has_own_budget
from relook.evaluation.comparison import METRICS_OF_A_ROW
from relook.evaluation.results import Results
from relook.report.comparison_tables import paper_tables
from relook.report.metrics import metric_of
from relook.report.tables import Column, Line, Table, side_by_side, table_of
from relook.studies.study import Study, methods_legend, without_deviations

if TYPE_CHECKING:  # drawing needs matplotlib
    from relook.report.figures import Drawing

MAIN = ("cll", "accuracy")
CROPS_AND_TRAINING = ("plain", "cf", "mtrain")
POLICY_AND_CROPS = ("plain", "cf", POLICY_METHOD)


def tables(results: Results) -> list[Table]:
    """Return cLL and accuracy of every method, a line per data set and model."""
    return paper_tables(results.where(asked=True), MAIN)


def paper_table(results: Results) -> Table:
    """Return the paper's tables acc-nll-cifars and acc-nll-ImageNet."""
    legend = methods_legend(results)
    caption = f"Calibrated log-likelihood and accuracy of test-time augmentation: {legend}."
    return side_by_side(tables(results), caption=caption, label="table:acc-nll")


def methods_drawing(
    name: str,
    title: str,
    results: Results,
    methods: Sequence[str] | None = None,
    metrics: Sequence[str] = MAIN,
) -> Drawing:
    """Draw metrics against views: a column per model, a row per metric, a curve per method.

    `methods` limits the curves, and then the axes show all of their points.
    """
    from relook.report import shapes
    from relook.report.series import curves_of

    shown = results if methods is None else results.where(method=tuple(methods))
    rows = [
        [
            shapes.Panel(
                str(model or ""),
                metric_of(metric).title,
                curves_of(own, metric, shapes.METHODS),
                metric_of(metric).scale,
                everything=methods is not None,
            )
            for (model,), own in shown.groups("model")
        ]
        for metric in metrics
    ]
    return shapes.curves_drawing(name, title, rows, across="views")


def metrics_table(results: Results) -> Table:
    """Return every metric of every method, and the differences in cLL."""
    columns = [
        Column("data", number=False, once=True),
        Column("model", number=False, once=True),
        Column("method", number=False, once=True),
        Column("views", key="views"),
        *(Column(metric_of(name).head, {"metric": name}) for name in METRICS_OF_A_ROW),
        *(
            Column(f"cLL − {head}", {"metric": "cll", "versus": kind}, optional=True)
            for kind, head in (("plain", "plain image"), ("rival", "best baseline"))
        ),
    ]
    shown = results.where(asked=True)
    sections = [
        [
            Line(
                (str(data), str(model), str(label)),
                {"data": data, "model": model, "method": method, "budget": budget},
            )
            for (method, label, budget), _ in own.groups("method", "label", "budget")
        ]
        for (data, model), own in shown.groups("data", "model")
    ]
    return table_of(
        shown,
        columns,
        sections,
        title="",
        caption="Every metric on images that no search has seen.",
        label="table:metrics",
        wide=True,
    )


def temperature_drawing(results: Results) -> Drawing:
    """Draw the optimal temperature of each model's policy against the number of views.

    Solid: fitted by cross-validation on the comparison's images. Dashed: the policy's own, fitted
    on the images of its search.
    """
    from relook.report import shapes
    from relook.report.series import curves_of
    from relook.report.style import INK

    own = without_deviations(results.where(method=POLICY_METHOD))
    styles = shapes.named_styles(own.values("model"))
    dashed = {
        n: replace(s, method=f"{n} searched", label="", dashes=_DASHES) for n, s in styles.items()
    }
    fitted = curves_of(own, "temperature", styles, by="model")
    searched = curves_of(own, "search_temperature", dashed, by="model")
    legend = [("found by the search", {"color": INK, "dashes": _DASHES})] if searched else []
    panel = shapes.Panel("", "optimal temperature", (*fitted, *searched))
    title = "Optimal temperature against views"
    return shapes.curves_drawing("temperature_views", title, [[panel]], legend=legend)


_DASHES = (3.0, 1.8)

TRAIN_VS_CLEAN = Study(
    "train-vs-clean",
    "The training's augmentation at test time",
    "Figure train_vs_clean",
    "Random crops (CF) against RandAugment with the magnitude of the training (MTrain): the "
    "best augmentation for training need not be the best for testing.",
    figures=lambda results: [
        methods_drawing(
            "train-vs-clean",
            "Crops against the training's augmentation",
            results,
            CROPS_AND_TRAINING,
            ("accuracy",),
        )
    ],
)

IN_DOMAIN = Study(
    "in-domain",
    "Performance on clean images",
    "Figures in-domain-cifar100 and in-domain-cifar10; Tables acc-nll-cifars, acc-nll-ImageNet",
    "Calibrated log-likelihood and accuracy against the number of views, on images that no "
    "search has seen. The band of the learned policy is its deviation over runs or, for a "
    "single run, the 95 % interval of its difference to the plain image.",
    tables,
    paper_table,
    lambda results: [methods_drawing("in-domain", "Clean images", results)],
)

VANILLA = Study(
    "vanilla",
    "Networks of vanilla training",
    "Figure clean-cifar100",
    "Networks that were trained with crops and flips only: the learned policy (GPS) against "
    "random crops (CF).",
    tables,
    paper_table,
    lambda results: [
        methods_drawing("clean", "Networks of vanilla training", results, POLICY_AND_CROPS)
    ],
)

TEMPERATURE = Study(
    "temperature",
    "The optimal temperature",
    "Figure temp",
    "The temperature that calibrates the average, by the number of views.",
    figures=lambda results: [temperature_drawing(results)],
)

METRICS = Study(
    "metrics",
    "Every metric on clean images",
    "Tables acc-nll-cifars, acc-nll-ImageNet, and further metrics",
    "Log-likelihood (LL), Brier score and expected calibration error (ECE) without calibration; "
    "cLL and metrics marked cal. at a temperature (T) fitted on one half of the images and "
    "scored on the other. Differences have 95 % intervals, paired over images.",
    lambda results: [metrics_table(results)],
    metrics_table,
)


def with_budgets(results: Results, budgets: Sequence[int]) -> Results:
    """Return results whose tables show only these budgets and methods with a fixed budget."""
    rows = tuple(
        replace(
            row,
            keys={**row.keys, "asked": row["budget"] in budgets or has_own_budget(row["method"])},
        )
        for row in results.rows
    )
    return replace(results, rows=rows) if budgets else results
