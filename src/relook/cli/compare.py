"""`relook compare`: a policy and every baseline on held-out images."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from relook.api.progress_bars import search_bars
from relook.cli.shared import loading, options
from relook.cli.shared.console import (
    NOT_MET,
    check_log,
    log_finished_run,
    print_json,
    print_table,
    print_text,
    print_verdict,
    resumable,
    say,
)
from relook.cli.shared.inputs import ComparisonInputs, ComparisonSource
from relook.cli.shared.option_groups import expand_options, option
from relook.cli.shared.options import LatencyOptions, keep_latency
from relook.data import Preparation
from relook.deploy.batch.image_source import open_source
from relook.deploy.latency import engine_for, fit_latency
from relook.errors import RelookError
from relook.evaluation.baselines import BASELINES, Options, check_methods
from relook.evaluation.compare import compare
from relook.evaluation.comparison import MARGIN, Comparison, Row, place_for, save_comparison
from relook.evaluation.comparison_plan import plan_comparison
from relook.evaluation.cross_validation import check_protocol
from relook.evaluation.frontier import pick
from relook.evaluation.latency import LATENCY, Latency, Limit
from relook.evaluation.requirement import Checked, Requirement, check, read_requirement
from relook.evaluation.setup import ComparisonKeywords
from relook.foundation.wording import plain, views_text
from relook.io.files import write_text_atomic
from relook.io.run_directory import RunDirectory
from relook.policy_search.run_record import pool_views
from relook.predictions.passes import Images
from relook.report.comparison_tables import comparison_table, frontier_table, junit_xml, to_latex
from relook.report.deployed_tables import latency_table
from relook.report.summary import foreign_images, when_not_to_answer
from relook.transforms.full_images import FullImages

_IMAGES_TO_TIME = 16


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """The settings of the comparison."""

    budgets: str = option("Numbers of views to compare at.", default="1,5,10,20")
    methods: str | None = option(f"Baselines, by default all: {', '.join(BASELINES)}.")
    runs: options.RunsOption = 1
    margin: float = options.details_option(
        "The smallest difference in cLL that matters to you.", default=MARGIN, min=0
    )
    baselines: options.BaselineOptions
    protocol: str = options.details_option(
        "How to fit temperatures: standard (shrunk if there are few images), or paper (as in the "
        "paper).",
        default="standard",
    )
    balanced: bool | None = options.details_option(
        "Weight all classes equally in all results.",
        "--balanced/--no-balanced",
        shown="as the search did",
    )
    ood: str | None = option(
        "Images of none of the model's classes (as --data of  relook predict), to measure how well "
        "they can be told from the others."
    )
    seed: options.SeedOption = 0
    batch: options.BatchOption = None

    def keywords(self) -> ComparisonKeywords:
        """Return the keywords of `compare`."""
        methods = None if self.methods is None else loading.read_names(self.methods)
        check_methods(methods)
        return {
            "budgets": loading.read_budgets(self.budgets),
            "methods": methods,
            "options": self.baselines.options(),
            "seed": self.seed,
            "runs": self.runs,
            "margin": self.margin,
            "batch": self.batch,
            "protocol": check_protocol(self.protocol),
            "balanced": self.balanced is True,
        }


@dataclass(frozen=True)
class OutputOptions:
    """Which row to pick, what to require, and where results go."""

    budget_views: int | None = option("Pick the best method with at most N views.", min=1)
    max_slowdown: float | None = options.latency_option(
        "Pick the best method that takes at most N times as long as one plain pass."
    )
    require: list[str] | None = option(
        "Exit with code 1 unless the recommended method meets this: helps, 'cll>=0.01', "
        "'accuracy>=-0.1', 'ece<=0.03', 'views<=10'; 'cll>=0 against best|METHOD|FORMER.json'. "
        "cll and accuracy are gains; the end of their interval counts. Can be repeated."
    )
    junit: Path | None = option(
        "Write the outcome of --require to this JUnit file, for CI.", panel=options.RESULTS
    )
    out: Path | None = option(
        "Directory for comparison.json and predictions: RUN, or else runs/compare. Without --out, "
        "a comparison.json with more views or methods is kept, and the new one goes to "
        "RUN/narrower.",
        panel=options.RESULTS,
    )
    as_csv: Path | None = option("Write all rows to this CSV file.", "--csv", panel=options.RESULTS)
    latex: Path | None = option(
        "Write a table like the paper's to this file.", panel=options.RESULTS
    )

    def picked(self, comparison: Comparison) -> Row | None:
        """Return the best row within --budget-views and --max-slowdown; None without them."""
        if self.budget_views is None and self.max_slowdown is None:
            return None
        return pick(comparison, self.budget_views, self.max_slowdown)

    def requirements(self) -> list[Requirement]:
        """Return the parsed requirements; called before any work is done."""
        if self.junit is not None and not self.require:
            raise RelookError("expected --require with --junit, got none: what is to be checked?")
        return [read_requirement(text) for text in self.require or ()]

    def write_files(self, comparison: Comparison, checked: Sequence[Checked]) -> None:
        """Write the requested files."""
        if self.junit is not None:
            write_text_atomic(self.junit, junit_xml(checked, comparison.verdict.sentence))
        if self.as_csv is not None:
            write_text_atomic(self.as_csv, comparison.results().to_csv())
        if self.latex is not None:
            settings = comparison.settings
            text = to_latex(comparison, settings["data"]["name"], settings["model"]["spec"])
            write_text_atomic(self.latex, text)


@expand_options
def compare_command(
    *,
    compared: ComparisonSource,
    settings: ComparisonOptions,
    results: OutputOptions,
    speed: LatencyOptions,
    log: options.LogOption = None,
    dry_run: options.DryRunOption = False,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Compare a policy with every baseline on held-out images, and say whether it helps."""
    check_log(log)
    keywords, required, limit = settings.keywords(), results.requirements(), speed.limit()
    inputs = compared.read()
    if settings.balanced is None:
        keywords["balanced"] = inputs.balanced
    target = results.out or compared.source.directory or Path("runs/compare")
    with resumable(timeout=timeout):
        plan = plan_comparison(
            inputs.predictor,
            inputs.dataset,
            inputs.policies,
            recipe=inputs.recipe,
            validation=inputs.validation,
            keywords=keywords,
            engine=compared.engine(target, dry_run),
        )
    if dry_run and as_json:
        print_json(plan.to_json())
        return
    plan.model.tell(say)
    fewer = plan.fewer(lambda left: f"--methods {','.join(left)}")
    say(f"{plan} (--methods and --budgets for fewer){fewer}")
    if dry_run:
        return
    unaccelerated, inputs = inputs, inputs.with_model(plan.model)
    views = [keywords[name] for name in ("budgets", "methods", "runs", "seed", "batch")]
    mark = inputs.short_fingerprint(keywords["options"] or Options(), *views)
    with RunDirectory(target), resumable(timeout=timeout), search_bars() as bars:
        comparison = compare(
            inputs.predictor,
            inputs.dataset,
            inputs.policies,
            indices=inputs.indices,
            validation=inputs.validation,
            recipe=inputs.recipe,
            store_path=target / f"compare-{mark}.zarr",
            progress=bars,
            record=inputs.record,
            known=pool_views(compared.source.directory or target, inputs.predictor, inputs.dataset),
            ood=() if settings.ood is None else _foreign_images(settings.ood, inputs),
            **keywords,
        )
        written = target if results.out is not None else place_for(target, comparison)
        save_comparison(written, comparison, inputs.dataset, inputs.indices)
        latency = None if limit is None else _latency(unaccelerated, comparison, limit, written)
    if written != target:
        kept = shlex.quote(str(target))
        say(
            f"{target}/comparison.json has more views or methods and is kept; --out {kept} "
            "replaces it"
        )
    checked = [check(comparison, one) for one in required]
    results.write_files(comparison, checked)
    _print(comparison, results.picked(comparison), latency, checked, written, as_json)
    log_finished_run(target, log)
    if not all(one.met for one in checked):
        raise typer.Exit(NOT_MET)


def _foreign_images(spec: str, inputs: ComparisonInputs) -> list[Images]:
    """Read unlabelled images, prepared like the images of the comparison."""
    images = inputs.dataset.images
    channels, height, width = images.shape[1:]
    full = isinstance(images, FullImages)
    preparation = Preparation((height, width), channels=channels, full_size=full, log=say)
    source = open_source(spec, preparation.as_searched(inputs.dataset.prepared))
    return [block.images for block in source.read(source.ranges())]


def _latency(inputs: ComparisonInputs, comparison: Comparison, limit: Limit, out: Path) -> Latency:
    """Measure how many views fit into the limit: in the exported file, or else in torch."""
    images, engine = inputs.dataset.images, engine_for(inputs.predictor)
    channels, height, width = images.shape[1:]
    say(f"measuring several numbers of views in {engine} …")
    measured = fit_latency(
        *(inputs.predictor, inputs.policies[0], comparison, inputs.recipe, limit),
        engine=engine,
        size=(height, width),
        channels=channels,
        full_size=isinstance(images, FullImages),
        images=images[:_IMAGES_TO_TIME],
    ).latency
    keep_latency(out, measured)
    return measured


def _picked_text(comparison: Comparison, picked: Row) -> str:
    """Describe the picked row, why it was picked, and the verdict's advice if that differs."""
    why = f"the fewest views within {comparison.settings['margin']:g} cLL of the best affordable"
    if picked.method == "plain":
        why = "nothing affordable shows a gain over it"
    metrics, advised = picked.with_learned_average.metrics, comparison.recommended
    advice = ""
    if (picked.method, picked.views) != (advised.method, advised.views):
        advice = (
            f" The verdict, which has no such limit, advises {advised.label} with "
            f"{views_text(advised.views)}."
        )
    return (
        f"Picked: {picked.label} with {views_text(picked.views)} ({why}): "
        f"cLL {plain(metrics['cll'].mean, 4)}, accuracy {100 * metrics['accuracy'].mean:.2f} %, "
        f"about {picked.slowdown:.1f} × the time of one view.{advice}"
    )


def _print(
    comparison: Comparison,
    picked: Row | None,
    latency: Latency | None,
    checked: Sequence[Checked],
    out: Path,
    as_json: bool,
) -> None:
    for method, reason in comparison.settings["left_out"].items():
        say(f"left out: {method}: {reason}")
    if as_json:
        print_json(
            {
                "out": str(out),
                "picked": picked and {"method": picked.method, "views": picked.views},
                "latency": latency and LATENCY.to_json(latency),
                "required": [asdict(one) for one in checked],
                **comparison.to_json(),
            }
        )
        return
    print_table(comparison_table(comparison))
    print_table(frontier_table(comparison))
    if latency is not None:
        print_table(latency_table(latency))
    say(f"written to {out}: comparison.json, examples.npz")
    lines = [
        "" if latency is None else latency.sentence,
        "" if picked is None else _picked_text(comparison, picked),
        when_not_to_answer(comparison),
        foreign_images(comparison),
    ]
    for line in filter(None, lines):
        print_text(line)
    print_verdict(comparison.verdict.sentence)
    for one in checked:
        print_text(str(one))
