"""One self-contained HTML page of a run: the verdict first, then all that supports it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from relook.evaluation.where import Where
from relook.io.files import write_text_atomic
from relook.policy.transform_counts import transform_statistics
from relook.report.comparison_tables import ranked
from relook.report.deployed_tables import latency_table, sets_sentence, sets_table
from relook.report.gallery import Gallery, class_name, images_text, kept_pictures, policy_gallery
from relook.report.html import render
from relook.report.run_files import RunFiles, read_run
from relook.report.style import shorten
from relook.report.summary import Summary
from relook.report.tables import html

if TYPE_CHECKING:
    from relook.report.figures import Drawing

_MOST_SETTINGS = 200
_MOST_NOTES = 20
_CHANGED_SIDE = 72


def write_report(run_dir: str | Path, out: Path | None = None, *, figures: bool = True) -> Path:
    """Write the report of a run (default: report.html inside it) and return its path.

    With `figures`, the page's figures are also written as SVG and PNG into the run's
    `figures/`. If the run lacks a part, the page names the command that adds it; an empty run
    raises a RunError.
    """
    run = read_run(Path(run_dir))
    target = out or run.path / "report.html"
    write_text_atomic(target, render_report(run))
    if figures:
        from relook.report.figures import save_drawing

        for drawing in _drawings(run, legend=True):
            save_drawing(drawing, run.path / "figures")
    return target


def render_report(run: RunFiles) -> str:
    """Return the page as text, always the same for the same files."""
    from relook.report.figures import inline_svg

    comparison = run.comparison
    drawn = {drawing.name: inline_svg(drawing) for drawing in _drawings(run, legend=False)}
    named = [one.index for one in (*comparison.gained, *comparison.lost)] if comparison else []
    where = comparison.where if comparison else None
    examples = where.examples if where else []
    notes = run.record.get("notes")
    page = render(
        "report.html",
        run=run,
        comparison=comparison,
        summary=comparison and Summary(comparison),
        sections=_sections(run, drawn),
        figures=drawn,
        latency=run.latency and html(replace(latency_table(run.latency), title="", note="")),
        sets=run.sets and html(replace(sets_table(run.sets.report, whole=True), title="")),
        sets_sentence=run.sets and sets_sentence(run.sets.report, run.sets.coverage),
        gallery=_gallery(run),
        changed=kept_pictures([*named, *examples], run.examples, _CHANGED_SIDE),
        ranked=ranked,
        shorten=shorten,
        reach=_reach(where),
        images_text=partial(images_text, run.examples),
        class_name=partial(class_name, comparison.classes if comparison else ()),
        notes=notes[:_MOST_NOTES] if isinstance(notes, list) else (),
        settings=[(name, shorten(value, 300)) for name, value in run.settings()[:_MOST_SETTINGS]],
        path=shlex.quote(str(run.path)),
    )
    return str(page)


def _drawings(run: RunFiles, *, legend: bool) -> list[Drawing]:
    from relook.report import figures

    compared, uses = run.comparison, transform_statistics(run.policy) if run.policy else ()
    return [
        *(figures.comparison_drawings(compared, legend=legend) if compared else ()),
        *([figures.transforms_drawing(uses)] if uses else ()),
        *([figures.trace_drawing(run.scores)] if run.scores else ()),
    ]


def _sections(run: RunFiles, drawn: Mapping[str, str]) -> dict[str, str]:
    """Return the keys and titles of the sections for which the run has content, in order."""
    comparison = run.comparison
    changed = comparison is not None and comparison.gained_count + comparison.lost_count > 0
    titles = {
        "results": "Results" if comparison else "",
        "curves": "Views and cost" if comparison else "",
        "reliability": "Reliability" if any("reliability" in name for name in drawn) else "",
        "where": "Where it gains and loses" if comparison and comparison.where else "",
        "selective": "When not to answer" if "selective" in drawn else "",
        "sets": "Prediction sets" if run.sets else "",
        "policy": "The policy" if run.policy is not None else "The search" if run.scores else "",
        "changes": "Images gained and lost" if changed else "",
        "settings": "Settings",
    }
    return {key: title for key, title in titles.items() if title}


def _reach(where: Where | None) -> float:
    """Return the range of the bars of gains in cLL: up to the 0.9 quantile of intervals' ends."""
    found = [one.cll for one in where.slices if one.cll] if where else []
    ends = [max(abs(one.low), abs(one.high)) for one in found]
    return float(np.quantile(ends, 0.9)) or 1.0 if ends else 1.0


def _gallery(run: RunFiles) -> Gallery | None:
    if run.policy is None:
        return None
    shown, classes = (
        (run.comparison.gallery, run.comparison.classes) if run.comparison else ((), ())
    )
    kept = () if run.examples is None else tuple(run.examples.places)
    return policy_gallery(run.policy, run.examples, shown or kept, classes)
