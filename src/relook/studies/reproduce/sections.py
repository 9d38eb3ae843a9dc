"""A study's results as sections in the paper's order, each with its tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from relook.evaluation.comparison import load_comparison
from relook.evaluation.results import Result, Results, load_results
from relook.policy import Policy
from relook.report.figures import Drawing
from relook.report.latex import latex
from relook.report.tables import Table
from relook.studies.in_domain import with_budgets
from relook.studies.reproduce.file import slug
from relook.studies.reproduce.plan import Entry, Job
from relook.studies.reproduce.settings import GIVEN, VANILLA, StudyFile
from relook.studies.statistics import statistics
from relook.studies.study import Study
from relook.studies.table import STUDIES

SCORED = ("robustness", "objectives", "magnitudes", "ensembles", "transfer")
"""The parts whose jobs leave results of a study."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class StudyResults:
    """The policies, and the results of each part, by entry; a part that was not run has none."""

    study: StudyFile
    policies: Mapping[Entry, Policy] = field(default_factory=dict)
    parts: Mapping[str, Mapping[Entry, Results]] = field(default_factory=dict)

    def of(self, part: str) -> Mapping[Entry, Results]:
        """Return what a part found."""
        return self.parts.get(part, {})


def read_results(study: StudyFile, done: Iterable[Job], jobs: Path) -> StudyResults:
    """Read what the finished jobs `done` left in their directories under `jobs`."""
    finished = list(done)

    def read(part: str, load: Callable[[Path], Found]) -> dict[Entry, Found]:
        own = [job for job in finished if job.part == part]
        return {job.entry: load(job.directory(jobs)) for job in own}

    def load_part(part: str) -> Callable[[Path], Results]:
        return lambda directory: load_results(directory / f"{part}.json", part)

    return StudyResults(
        study,
        read("search", lambda directory: Policy.load(directory / "run" / "policy.json")),
        {
            "compare": read("compare", lambda d: load_comparison(d / "comparison.json").results()),
            **{part: read(part, load_part(part)) for part in SCORED},
        },
    )


TRAININGS = {"randaugment": "RandAugment", VANILLA: "vanilla", "none": "no augmentation"}
"""What tables call the augmentations that networks are trained with."""

_NAMES = {
    "statistics": "transforms",
    "robustness_views": "ood",
    "temperature_views": "temperature",
    "policy_transforms": "transforms",
}
"""What files of a whole study are called, where a study alone names them otherwise."""


@dataclass(frozen=True)
class TableFiles:
    """What is written as one table: its parts, the answer, the numbers and LaTeX."""

    name: str
    tables: tuple[Table, ...]
    markdown: str
    csv: str
    latex: str
    sentence: str = ""


@dataclass(frozen=True)
class Section:
    """One study: what it asks, what of the paper it is, its tables and figures."""

    name: str
    title: str
    paper: str
    words: str
    tables: tuple[TableFiles, ...] = ()
    drawings: tuple[Drawing, ...] = ()


@dataclass(frozen=True)
class Part:
    """What one section shows: results for its tables, and for each set of figures.

    `figures` are results with the ending of their files' names and of their titles.
    """

    results: Results
    figures: Sequence[tuple[str, str, Results]]
    ending: str = ""
    title: str | None = None
    words: str = ""


def study_sections(found: StudyResults) -> list[Section]:
    """Return what the results show, in the paper's order; a part without results is left out."""
    sections = [
        _section(study, part) for study in STUDIES.values() for part in _PARTS[study.name](found)
    ]
    return [section for section in sections if section.tables or section.drawings]


def _section(study: Study, part: Part) -> Section:
    name = _NAMES.get(study.name, study.name) + part.ending
    tables = tuple(study.tables(part.results))
    files = TableFiles(
        name,
        tables,
        study.markdown(part.results),
        part.results.to_csv(),
        latex(study.latex(part.results)) if study.latex else "",
        part.results.sentence,
    )
    drawings = [
        replace(one, name=_NAMES.get(one.name, one.name) + ending, title=one.title + title)
        for ending, title, results in part.figures
        for one in study.figures(results)
    ]
    title, words = part.title or study.title, study.words + part.words
    shown = (files,) if tables else ()
    return Section(name, title, study.paper, words, shown, tuple(drawings))


def _whole(found: StudyResults, own: Mapping[Entry, Results], words: str = "") -> Iterator[Part]:
    """Yield one section: a table of all data sets, figures for each."""
    if own:
        figures = [
            (_ending(found, data), f", {data}", _joined(each))
            for data, each in _by_data(found, own)
        ]
        yield Part(_joined(own), figures, words=words)


def _each(
    found: StudyResults, part: str, own: Mapping[Entry, Results], *, training: bool = False
) -> Iterator[Part]:
    """Yield a section for each data set."""
    for data, each in _by_data(found, own):
        joined, ending = _joined(each, training=training), _ending(found, data)
        title = None if len(found.study.data) == 1 else f"{STUDIES[part].title}: {data}"
        yield Part(joined, [(ending, "", joined)], ending, title)


def _comparisons(found: StudyResults) -> dict[Entry, Results]:
    """Return the comparisons of networks of the main training, with the tables' budgets."""
    study = found.study
    return {
        entry: with_budgets(one, study.compare.table)
        for entry, one in found.of("compare").items()
        if entry.augment == study.augments(entry.model)[0]
    }


def _train_vs_clean(found: StudyResults) -> Iterator[Part]:
    if "mtrain" in found.study.compare.methods:
        yield from _whole(found, _comparisons(found))


def _vanilla(found: StudyResults) -> Iterator[Part]:
    if found.study.train.augments[0] != VANILLA:
        own = {e: one for e, one in found.of("compare").items() if e.augment == VANILLA}
        table = found.study.compare.table
        yield from _whole(found, {e: with_budgets(one, table) for e, one in own.items()})


def _robustness(found: StudyResults) -> Iterator[Part]:
    own = found.of("robustness")
    made = all(one.settings["made"] for one in own.values())
    yield from _whole(found, own, " The corruptions were made here." if made else "")


def _transfer(found: StudyResults) -> Iterator[Part]:
    for results in found.of("transfer").values():
        yield Part(results, [("", "", results)])


def _ensembles(found: StudyResults) -> Iterator[Part]:
    for entry, results in found.of("ensembles").items():
        models = [entry.model] if entry.augment != GIVEN else found.study.ensembles.models
        ending = f"-{entry.name}"
        figures = [(ending, "", results)]
        yield Part(results, figures, ending, f"Ensembles of {', '.join(models)}")


def _temperature(found: StudyResults) -> Iterator[Part]:
    if "temperature" in found.study.parts:
        yield from _each(found, "temperature", _comparisons(found))


def _magnitudes(found: StudyResults) -> Iterator[Part]:
    if "magnitudes" in found.study.parts:
        yield from _each(found, "magnitudes", found.of("magnitudes"), training=True)


def _statistics(found: StudyResults) -> Iterator[Part]:
    if "statistics" not in found.study.parts:
        return
    for data in found.study.data:
        groups: dict[str, list[Policy]] = {}
        for entry, policy in found.policies.items():
            if entry.data == data:
                groups.setdefault(_training(entry), []).append(policy)
        if groups:
            results, ending = statistics(groups), _ending(found, data)
            title = None if len(found.study.data) == 1 else f"{STUDIES['statistics'].title}: {data}"
            yield Part(results, [(ending, "", results)], ending, title)


_PARTS: Mapping[str, Callable[[StudyResults], Iterator[Part]]] = MappingProxyType(
    {
        "train-vs-clean": _train_vs_clean,
        "in-domain": lambda found: _whole(found, _comparisons(found)),
        "objectives": lambda found: _each(found, "objectives", found.of("objectives")),
        "robustness": _robustness,
        "transfer": _transfer,
        "ensembles": _ensembles,
        "vanilla": _vanilla,
        "temperature": _temperature,
        "magnitudes": _magnitudes,
        "statistics": _statistics,
        "metrics": lambda found: _whole(found, _comparisons(found)),
    }
)
"""Which results each study shows."""


def _by_data(
    found: StudyResults, own: Mapping[Entry, Results]
) -> Iterator[tuple[str, dict[Entry, Results]]]:
    """Yield each data set's results."""
    for data in found.study.data:
        here = {entry: one for entry, one in own.items() if entry.data == data}
        if here:
            yield data, here


def _joined(own: Mapping[Entry, Results], *, training: bool = False) -> Results:
    """Return results of several entries as one table, with their data and models."""
    rows: list[Result] = []
    lines = []
    for entry, one in own.items():
        model = _with_training(entry) if training else entry.model
        rows += one.labelled(data=entry.data, model=model).rows
        lines.append(f"{model}: {one.sentence}")
    first = next(iter(own.values()))
    # A comparison's answer is about one policy; its table here is about all.
    sentence = "" if first.study == "comparison" else "\n".join(lines)
    return Results(first.study, tuple(rows), {}, sentence)


def _ending(found: StudyResults, data: str) -> str:
    return "" if len(found.study.data) == 1 else f"-{slug(data)}"


def _training(entry: Entry) -> str:
    return "all" if entry.augment == GIVEN else TRAININGS.get(entry.augment, entry.augment)


def _with_training(entry: Entry) -> str:
    return entry.model if entry.augment == GIVEN else f"{entry.model}, {_training(entry)}"
