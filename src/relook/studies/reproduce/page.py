"""The page of a study: sections in the paper's order, with tables and figures.

It is written as Markdown and as HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from relook.evaluation.comparison import load_comparison
from relook.evaluation.results import Result, Results, load_results
from relook.io.files import one_line, write_text_atomic
from relook.policy import Policy
from relook.report.figures import Drawing, inline_svg, save_drawing
from relook.report.html import render
from relook.report.latex import latex
from relook.report.tables import Table, html
from relook.studies.in_domain import with_budgets
from relook.studies.reproduce.file import slug
from relook.studies.reproduce.inputs import RUN
from relook.studies.reproduce.jobs import COMPARISON, results_file
from relook.studies.reproduce.plan import Entry, Job
from relook.studies.reproduce.settings import GIVEN, VANILLA, StudyFile
from relook.studies.statistics import statistics
from relook.studies.study import Study
from relook.studies.table import STUDIES

TABLES, FIGURES = "tables", "figures"
_REM_PER_INCH = 6.2
_LONG = 24  # tables with more lines than this are folded

PartResults = Mapping[Entry, Results]
"""The results of the jobs of one part."""


@dataclass(frozen=True)
class StudyResults:
    """The policies, and the results of each part, by entry; parts that were not run have none."""

    study: StudyFile
    policies: Mapping[Entry, Policy] = field(default_factory=dict)
    parts: Mapping[str, PartResults] = field(default_factory=dict)

    def of(self, part: str) -> PartResults:
        """Return the results of a part."""
        return self.parts.get(part, {})

    def compared(self, augment: str | None = None) -> PartResults:
        """Return the comparisons of networks with an augmentation, at the budgets of the tables.

        None means the augmentation of the main tables.
        """
        study = self.study
        return {
            entry: with_budgets(one, study.compare.table)
            for entry, one in self.of("compare").items()
            if entry.augment == (augment or study.augments(entry.model)[0])
        }

    def by_data(self, own: PartResults) -> Iterator[tuple[str, str, Results]]:
        """Yield the name, the file suffix and the results of each data set with results."""
        for data in self.study.data:
            here = {entry: one for entry, one in own.items() if entry.data == data}
            if here:
                yield data, self.suffix(data), _joined(here)

    def suffix(self, data: str) -> str:
        """Return the suffix of a data set's file names; empty if there is only one data set."""
        return "" if len(self.study.data) == 1 else f"-{slug(data)}"


def read_results(study: StudyFile, done: Iterable[Job], jobs: Path) -> StudyResults:
    """Read the results of the finished jobs `done` from their directories under `jobs`."""
    policies: dict[Entry, Policy] = {}
    parts: dict[str, dict[Entry, Results]] = {}
    for job in done:
        directory = job.directory(jobs)
        if job.part == "search":
            policies[job.entry] = Policy.load(directory / RUN / "policy.json")
        elif job.part == "compare":
            compared = load_comparison(directory / COMPARISON).results()
            parts.setdefault(job.part, {})[job.entry] = compared
        elif job.part != "train":
            results = load_results(directory / results_file(job.part), job.part)
            parts.setdefault(job.part, {})[job.entry] = results
    return StudyResults(study, policies, parts)


TRAININGS = {"randaugment": "RandAugment", VANILLA: "vanilla", "none": "no augmentation"}
"""The augmentations of trainings, with their names in tables."""

_FILE_NAMES = {
    "statistics": "transforms",
    "robustness_views": "ood",
    "temperature_views": "temperature",
    "policy_transforms": "transforms",
}
"""The names of files that differ from those of the study's own command."""


@dataclass(frozen=True)
class Section:
    """One study on the page; `title`, `paper` and `words` are those of `Study`.

    `files` are the tables as text, by file extension; `sentence` is the answer.
    """

    name: str
    title: str
    paper: str
    words: str
    tables: tuple[Table, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    sentence: str = ""
    drawings: tuple[Drawing, ...] = ()


def study_sections(found: StudyResults) -> list[Section]:
    """Return a section for each study with results, in the paper's order."""
    sections = [one for study in STUDIES.values() for one in _sections_of(found, study)]
    return [section for section in sections if section.tables or section.drawings]


def _section(
    study: Study,
    results: Results,
    suffix: str = "",
    figures: Sequence[tuple[str, str, Results]] | None = None,
) -> Section:
    """Return the section of a study; `suffix` ends the names of its files.

    `figures` are the results to draw (default: all), each with suffixes of file names and titles.
    """
    tables = tuple(study.tables(results))
    files = {
        "md": study.markdown(results),
        "csv": results.to_csv(),
        "tex": latex(study.latex(results)) if study.latex else "",
    }
    drawings = tuple(
        replace(one, name=_FILE_NAMES.get(one.name, one.name) + ending, title=one.title + more)
        for ending, more, own in figures or [(suffix, "", results)]
        for one in study.figures(own)
    )
    name = _FILE_NAMES.get(study.name, study.name) + suffix
    head = (name, study.title, study.paper, study.words)
    return Section(*head, tables, files if tables else {}, results.sentence, drawings)


def _joint_section(found: StudyResults, study: Study, own: PartResults) -> Iterator[Section]:
    """Yield one section: a table of all data sets, figures for each."""
    if own:
        figures = [(suffix, f", {data}", each) for data, suffix, each in found.by_data(own)]
        yield _section(study, _joined(own), figures=figures)


def _sections_by_data(study: Study, parts: Iterable[tuple[str, str, Results]]) -> Iterator[Section]:
    """Yield a section for each data set."""
    for data, suffix, results in parts:
        titled = replace(study, title=f"{study.title}: {data}") if suffix else study
        yield _section(titled, results, suffix)


def _sections_of(found: StudyResults, study: Study) -> Iterator[Section]:
    """Yield the sections of a study that have results."""
    own, file = found.of(study.name), found.study
    match study.name:
        case "in-domain" | "metrics":
            yield from _joint_section(found, study, found.compared())
        case "train-vs-clean" if "mtrain" in file.compare.methods:
            yield from _joint_section(found, study, found.compared())
        case "vanilla" if file.train.augments[0] != VANILLA:
            yield from _joint_section(found, study, found.compared(VANILLA))
        case "robustness":
            if all(one.settings["made"] for one in own.values()):
                study = replace(study, words=f"{study.words} The corruptions were generated here.")
            yield from _joint_section(found, study, own)
        case "objectives":
            yield from _sections_by_data(study, found.by_data(own))
        case "transfer":
            for results in own.values():
                yield _section(study, results)
        case "ensembles":
            for entry, results in own.items():
                models = [entry.model] if entry.augment != GIVEN else file.ensembles.models
                titled = replace(study, title=f"Ensembles of {', '.join(models)}")
                yield _section(titled, results, f"-{entry.name}")
        case "temperature" if study.name in file.parts:
            yield from _sections_by_data(study, found.by_data(found.compared()))
        case "magnitudes" if study.name in file.parts:
            named = {_with_training(entry): one for entry, one in own.items()}
            yield from _sections_by_data(study, found.by_data(named))
        case "statistics" if study.name in file.parts:
            yield from _sections_by_data(study, _policy_statistics(found))


def _policy_statistics(found: StudyResults) -> Iterator[tuple[str, str, Results]]:
    for data in found.study.data:
        groups: dict[str, list[Policy]] = {}
        for entry, policy in found.policies.items():
            if entry.data == data:
                groups.setdefault(_training(entry), []).append(policy)
        if groups:
            yield data, found.suffix(data), statistics(groups)


def _joined(own: PartResults) -> Results:
    """Return results of several entries as one table, with their data and models."""
    rows: list[Result] = []
    for entry, one in own.items():
        rows += one.labelled(data=entry.data, model=entry.model).rows
    first = next(iter(own.values()))
    # A comparison's answer is about one policy, but its table here is about all policies.
    lines = [f"{entry.model}: {one.sentence}" for entry, one in own.items()]
    sentence = "" if first.study == "comparison" else "\n".join(lines)
    return Results(first.study, tuple(rows), {}, sentence)


def _training(entry: Entry) -> str:
    return "all" if entry.augment == GIVEN else TRAININGS.get(entry.augment, entry.augment)


def _with_training(entry: Entry) -> Entry:
    """Return an entry with the training in its model's name, if the study trained it."""
    trained = entry.augment != GIVEN
    return replace(entry, model=f"{entry.model}, {_training(entry)}") if trained else entry


def write_study(sections: Sequence[Section], title: str, facts: Sequence[str], out: Path) -> Path:
    """Write tables, figures, index.md and index.html into a directory; return the page's path.

    `facts` are lines about the settings of the study.
    """
    for section in sections:
        for ending, text in section.files.items():
            write_text_atomic(out / TABLES / f"{section.name}.{ending}", text)
        for drawing in section.drawings:
            save_drawing(drawing, out / FIGURES)
    write_text_atomic(out / "index.md", study_markdown(sections, title, facts))
    page = out / "index.html"
    write_text_atomic(page, study_html(sections, title, facts))
    return page


def study_markdown(sections: Sequence[Section], title: str, facts: Sequence[str]) -> str:
    """Return the index as Markdown; figures are links to their files."""
    lines = [f"# {_text(title)}", "", *(f"- {_text(fact)}" for fact in facts)]
    for section in sections:
        lines += ["", f"## {_text(section.title)}", "", f"{section.paper}. {section.words}"]
        for drawing in section.drawings:
            lines += ["", f"![{_text(drawing.title)}]({FIGURES}/{drawing.name}.png)"]
        if section.files:
            files = ", ".join(f"[{e}]({TABLES}/{section.name}.{e})" for e in section.files)
            lines += ["", section.files["md"].strip(), "", f"The table as {files}."]
    return "\n".join(lines) + "\n"


def study_html(sections: Sequence[Section], title: str, facts: Sequence[str]) -> str:
    """Return the index as one self-contained page, with inline figures."""
    page = render(
        "study.html",
        title=title,
        facts=facts,
        sections={section.name: section.title for section in sections},
        parts=[
            {
                "section": section,
                "figures": [(drawing, inline_svg(drawing)) for drawing in section.drawings],
                "tables": [html(one) for one in section.tables],
                "is_long": sum(len(table.lines) for table in section.tables) > _LONG,
            }
            for section in sections
        ],
        rem_per_inch=_REM_PER_INCH,
    )
    return str(page)


def _text(text: str) -> str:
    """Return a text as one line, with Markdown's characters escaped."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", one_line(text))
