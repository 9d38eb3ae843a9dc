"""`Study`: the tables, figures and answer of a study's results; and what studies share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from relook.errors import RelookError, unknown_name
from relook.evaluation.baselines import Options
from relook.evaluation.cross_validation import Evaluation
from relook.evaluation.results import Result, Results, difference, measured
from relook.evaluation.scoring import Key
from relook.evaluation.setup import ComparisonSettings, Setup
from relook.foundation.progress import Progress, part_of
from relook.io.fingerprint import fingerprint
from relook.numerics.intervals import Interval, corrected
from relook.policy_search.settings import SearchSettings
from relook.predictions.passes import View, distinct_views
from relook.report.comparison_tables import about
from relook.report.tables import SHORT_NAMES, Table, markdown

if TYPE_CHECKING:  # drawing needs matplotlib
    from relook.report.figures import Drawing


@dataclass(frozen=True)
class Study:
    """How the results of a study, of one model or several, are shown.

    `title`, `paper` (the corresponding figures and tables of the paper) and `words` (a
    description) head its section on a page. `latex` is the table in the paper's form, `brief`
    are the tables for a terminal if that shows fewer, `sentence` is the answer in plain words.
    """

    name: str
    title: str
    paper: str
    words: str
    tables: Callable[[Results], Sequence[Table]] = lambda results: ()
    latex: Callable[[Results], Table] | None = None
    figures: Callable[[Results], Sequence[Drawing]] = lambda results: ()
    brief: Callable[[Results], Sequence[Table]] | None = None
    sentence: Callable[[Results], str] = lambda results: ""

    def results(
        self, rows: Iterable[Result], settings: Mapping[str, Any], record: Mapping[str, Any] | None
    ) -> Results:
        """Return results with their settings, the record of their origin, and their answer.

        The answer is followed by the setting `doubt`, if there is any.
        """
        results = Results(self.name, tuple(rows), {**settings, **(record or {})})
        answer = f"{self.sentence(results)} {settings.get('doubt', '')}".strip()
        return replace(results, sentence=answer)

    def markdown(self, results: Results) -> str:
        """Return the tables and the answer as Markdown."""
        parts = [markdown(table) for table in self.tables(results)]
        return "\n".join([*parts, *([f"{results.sentence}\n"] if results.sentence else [])])

    def save_figures(self, results: Results, directory: str | Path) -> list[Path]:
        """Write the figures as SVG and PNG; returns the files."""
        from relook.report.figures import save_drawing

        return [p for one in self.figures(results) for p in save_drawing(one, Path(directory))]


class StudyKeywords(TypedDict, total=False):
    """The fields of `ComparisonSettings` that studies take as keywords."""

    budgets: Sequence[int]
    methods: Sequence[str] | None
    options: Options | None
    seed: int
    runs: int
    batch: int | None
    halvings: int
    protocol: str


def study_settings(
    study: str, given: StudyKeywords, defaults: StudyKeywords, without: Sequence[str] = ()
) -> ComparisonSettings:
    """Return a study's settings: the given keywords, or else the study's defaults.

    `without` names keywords that the study does not take.
    """
    known = [name for name in StudyKeywords.__annotations__ if name not in without]
    for name in given:
        if name not in known:
            raise unknown_name(f"keyword of {study}", name, known)
    return replace(ComparisonSettings(**defaults), **given)


def check_has_held_out_images(settings: SearchSettings) -> None:
    """Raise unless a search leaves images to score on."""
    if settings.cross_fit:
        raise RelookError(
            "cross_fit holds out no images, which this study scores on: leave it out, or give a "
            "split"
        )


def measured_rows(
    setup: Setup,
    evaluations: Mapping[Key, Sequence[Evaluation]],
    key: Key,
    others: Mapping[str, Key | None],
    keys: Mapping[str, object],
) -> Iterator[Result]:
    """Yield a method's metrics, as means over its runs, and its differences in cLL and accuracy.

    `others` are the methods that it is compared with, by the kind of comparison; those without
    evaluations are skipped.
    """
    own = evaluations[key]
    for metric in own[0].metrics:
        yield measured(metric, [one.metrics[metric] for one in own], **keys)
    for kind, other in others.items():
        if other is not None and other != key and other in evaluations:
            changes = setup.differences(own, evaluations[other])
            for metric, interval in changes.items():
                yield difference(metric, interval, **keys, versus=kind, reference=other[0])


def corrected_change(change: Result, number: int) -> Interval:
    """Return a difference with an interval corrected for being the best of `number`."""
    low = -math.inf if change.low is None else change.low
    high = math.inf if change.high is None else change.high
    return corrected(Interval(change.value, low, high, 0.95), number)


def without_deviations(results: Results) -> Results:
    """Return the rows that are not differences, without their deviations, for curves."""
    own = results.where(versus=None)
    return replace(own, rows=tuple(replace(row, deviation=0.0) for row in own.rows))


def largest_budget(results: Results) -> int:
    """Return the largest budget of a study."""
    return max(int(budget) for budget in results.values("budget"))


def by_model(results: Results) -> list[tuple[str, Results]]:
    """Return each model's results with its name, which is empty if there is only one model."""
    parts = [(str(model or ""), own) for (model,), own in results.groups("model")]
    return parts if len(parts) > 1 else [("", own) for _, own in parts]


def methods_legend(results: Results) -> str:
    """Return the methods with their short names, for a caption."""
    methods = results.values("method")
    return ", ".join(f"{about(name)} ({SHORT_NAMES.get(name, name)})" for name in methods)


def predictions_path(
    setup: Setup, views: Sequence[View], directory: str | Path | None
) -> Path | None:
    """Return the file for these predictions, named by all they depend on; None: not stored."""
    if directory is None:
        return None
    identity = fingerprint(
        setup.predictor.fingerprint,
        setup.dataset.fingerprint,
        setup.places,
        [(asdict(view.subpolicy), view.index) for view in distinct_views(views)[0]],
        setup.seed,
        setup.batch,
    )
    return Path(directory) / f"{identity[:12]}.zarr"


def split_progress(progress: Progress | None, passes: Sequence[int]) -> list[Progress | None]:
    """Return a progress callback for each part of a job, given the parts' numbers of passes."""
    starts = [sum(passes[:place]) for place in range(len(passes))]
    return [part_of(progress, start, sum(passes)) for start in starts]
