"""What a study is, as tables, figures and files see it, and what studies share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from relook.errors import RelookError, unknown_name
from relook.evaluation.baselines import Options
from relook.evaluation.cross_validation import Evaluation
from relook.evaluation.outcomes import corrected
from relook.evaluation.results import Result, Results, difference, measured
from relook.evaluation.scoring import Key
from relook.evaluation.setup import ComparisonSettings, Setup
from relook.foundation.progress import Progress, part_of
from relook.io.fingerprint import fingerprint
from relook.numerics.intervals import Interval
from relook.policy_search.settings import SearchSettings
from relook.predictions.passes import View, distinct_views
from relook.report.tables import Table, markdown

if TYPE_CHECKING:  # what draws needs matplotlib
    from relook.report.figures import Drawing


@dataclass(frozen=True)
class Study:
    """One study: its answer, its tables, as people see them and as in the paper, and its figures.

    `title`, `paper` (what of the paper it is) and `words` stand above it on a page. All are
    made from results, which may be those of several models. `brief` has the tables that a
    terminal shows, where those are fewer.
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
        """Return rows with their settings and their plain answer, with its doubt if it has one.

        `record` says where they come from.
        """
        made = Results(self.name, tuple(rows), {**settings, **(record or {})})
        said = f"{self.sentence(made)} {settings.get('doubt', '')}".strip()
        return replace(made, sentence=said)

    def markdown(self, results: Results) -> str:
        """Return the tables and the answer as Markdown."""
        parts = [markdown(table) for table in self.tables(results)]
        return "\n".join([*parts, *([f"{results.sentence}\n"] if results.sentence else [])])

    def save_figures(self, results: Results, directory: str | Path) -> list[Path]:
        """Write the figures as SVG and PNG; returns the files."""
        from relook.report.figures import save_drawing

        return [p for one in self.figures(results) for p in save_drawing(one, Path(directory))]


class StudyKeywords(TypedDict, total=False):
    """Those fields of `ComparisonSettings` that studies take as keywords."""

    budgets: Sequence[int]
    methods: Sequence[str] | None
    options: Options | None
    seed: int
    runs: int
    batch: int | None
    halvings: int
    protocol: str


def asked_for(
    study: str, given: StudyKeywords, usual: StudyKeywords, without: Sequence[str] = ()
) -> ComparisonSettings:
    """Return a study's settings: what is given, or else what is usual for it.

    `without` names the keywords that mean nothing to the study.
    """
    known = [name for name in StudyKeywords.__annotations__ if name not in without]
    for name in given:
        if name not in known:
            raise unknown_name(f"keyword of {study}", name, known)
    return replace(ComparisonSettings(**usual), **given)


def check_holds_out(settings: SearchSettings) -> None:
    """Raise unless a search leaves images to score on."""
    if settings.cross_fit:
        raise RelookError(
            "cross_fit holds no images out, and this study scores on such: leave it out, or give "
            "a split"
        )


def measured_rows(
    setup: Setup,
    evaluations: Mapping[Key, Sequence[Evaluation]],
    key: Key,
    others: Mapping[str, Key | None],
    keys: Mapping[str, object],
) -> Iterator[Result]:
    """Yield a method's metrics, means over its runs, and its differences in cLL and accuracy.

    `others` are what it is compared with, by the kind of comparison; what was not scored is left
    out.
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
    """Return a difference with an interval that holds for the best of `number`."""
    low = -math.inf if change.low is None else change.low
    high = math.inf if change.high is None else change.high
    return corrected(Interval(change.value, low, high, 0.95), number)


def without_deviations(results: Results) -> Results:
    """Return the rows that are no differences, without their deviations, for curves."""
    own = results.where(versus=None)
    return replace(own, rows=tuple(replace(row, deviation=0.0) for row in own.rows))


def largest_budget(results: Results) -> int:
    """Return the largest budget of a study."""
    return max(int(budget) for budget in results.values("budget"))


def store_path_of(setup: Setup, views: Sequence[View], directory: str | Path | None) -> Path | None:
    """Return where these predictions are kept: another study, or other views, are elsewhere."""
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


def progress_shares(progress: Progress | None, passes: Sequence[int]) -> list[Progress | None]:
    """Return for each of several parts, given its passes, how it reports as part of all."""
    starts = [sum(passes[:place]) for place in range(len(passes))]
    return [part_of(progress, start, sum(passes)) for start in starts]
