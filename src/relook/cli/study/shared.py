"""What the commands of the studies share: options, and the output of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from relook.cli.shared import options
from relook.cli.shared.console import (
    ProgressCallback,
    print_json,
    print_table,
    print_verdict,
    progress_bar,
    resumable,
    say,
    typed_command,
)
from relook.cli.shared.option_groups import argument, option
from relook.errors import MissingExtraError, RelookError
from relook.evaluation.baselines import BASELINES
from relook.evaluation.results import Results
from relook.io.files import write_text_atomic
from relook.io.run_directory import RunDirectory
from relook.models import Predictor
from relook.report.latex import latex as latex_of
from relook.studies.study import Study

BudgetsOption = Annotated[str, option("Numbers of views to compare at.")]
MethodsOption = Annotated[str, option(f"Baselines, out of: {','.join(BASELINES)}.")]
TestOption = Annotated[
    str | None,
    options.data_option(
        "A separate test set (the same for all runs) instead of a held-out share.",
        panel=options.PANEL,
    ),
]
NameOption = Annotated[
    str | None, options.details_option("Name of the model in tables.", shown="its --model")
]
OutOption = Annotated[Path, option("The study's directory; rerun the same command to resume.")]


@dataclass(frozen=True)
class RunsAndPolicies:
    """The argument RUN…, runs and policy files; --run and --policy are its older names."""

    source: list[Path] | None = argument(
        "The directories of searches (for policy, model, data and held-out images), or policy "
        "files.",
        metavar="[RUN]...",
    )
    older_run: list[Path] | None = option(None, "--run", hidden=True)
    older_policy: list[Path] | None = option(None, "--policy", "-p", hidden=True)

    @property
    def runs(self) -> list[Path]:
        """The directories of searches."""
        return [*(self.older_run or []), *(one for one in self.source or [] if not is_policy(one))]

    @property
    def policies(self) -> list[Path]:
        """The policy files that were given."""
        return [*(self.older_policy or []), *(one for one in self.source or [] if is_policy(one))]


def is_policy(path: Path) -> bool:
    """Whether a path is a policy file, not a run: it exists as a file or is named like one."""
    return path.is_file() or path.suffix == ".json"


@dataclass(frozen=True)
class WorkOptions:
    """How a study runs its model."""

    seed: options.SeedOption = 0
    batch: options.BatchOption = None
    timeout: options.TimeoutOption = None

    @contextmanager
    def in_directory(self, out: Path) -> Iterator[ProgressCallback]:
        """Lock a study's directory within the block, and show a bar of predicted views."""
        with (
            RunDirectory(out),
            resumable(timeout=self.timeout),
            progress_bar("predicting", "views") as bar,
        ):
            yield bar


@dataclass(frozen=True)
class ResultOptions:
    """Where a study's tables go, and what is printed."""

    as_csv: Path | None = option(
        "Write all results to this file as one tidy table: CSV, or Parquet for .parquet.",
        "--csv",
        panel=options.RESULTS,
    )
    markdown: Path | None = option(
        "Write the tables to this file as Markdown.", panel=options.RESULTS
    )
    latex: Path | None = option(
        "Write a table like the paper's to this file.", panel=options.RESULTS
    )
    figures: bool = option("Draw the figures, as SVG and PNG.", default=True, panel=options.RESULTS)
    as_json: options.JsonOption = False

    def show(
        self, study: Study, results: Results, out: Path | None, files: Sequence[str] = ()
    ) -> None:
        """Write results, tables and figures, and print them.

        `out` gets NAME.json and figures/; `files` are files there to mention as well.
        """
        drawn: list[Path] = []
        if out is not None:
            results.save(out / f"{study.name}.json")
            drawn = _save_figures(study, results, out) if self.figures else []
        if self.as_csv is not None and self.as_csv.suffix == ".parquet":
            results.save(self.as_csv)
        elif self.as_csv is not None:
            write_text_atomic(self.as_csv, results.to_csv())
        if self.markdown is not None:
            write_text_atomic(self.markdown, study.markdown(results))
        if self.latex is not None and study.latex is not None:
            write_text_atomic(self.latex, latex_of(study.latex(results)))
        for method, reason in results.settings.get("left_out", {}).items():
            say(f"left out: {method}: {reason}")
        if self.as_json:
            names = [str(path) for path in drawn]
            print_json({"out": out and str(out), "figures": names, **results.to_json()})
            return
        for table in (study.brief or study.tables)(results):
            print_table(table)
        if out is not None:
            written = [f"{study.name}.json", *files, *(["figures/"] if drawn else [])]
            say(f"written to {out}: {', '.join(written)}")
        if results.sentence:
            print_verdict(results.sentence)


def _save_figures(study: Study, results: Results, out: Path) -> list[Path]:
    """Write the figures, unless matplotlib is missing; return the files."""
    try:
        return study.save_figures(results, out / "figures")
    except MissingExtraError as error:
        say(f"no figures: {error}")
        return []


def model_record(label: str, predictor: Predictor) -> dict[str, Any]:
    """Return the record of the command and its model for a study's results."""
    return {
        "command": typed_command(),
        "model": {"spec": label, "fingerprint": predictor.fingerprint},
    }


def check_one_of(split: str | None, test: str | None) -> None:
    """Raise if both options that choose the held-out images are given."""
    if split is not None and test is not None:
        raise RelookError("expected one of --split and --test, got both: give one")
