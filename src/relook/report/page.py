"""One self-contained HTML page of a run: the answer first, then everything it rests on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import relook
from relook.evaluation.comparison import Comparison
from relook.foundation import wording
from relook.io.files import write_text_atomic
from relook.policy import Policy
from relook.policy.transform_counts import transform_statistics
from relook.report import gallery, results
from relook.report.markup import Html, element, escape, join
from relook.report.run_files import RunFiles, read_run
from relook.report.series import curves, shown_range
from relook.report.style import shorten

if TYPE_CHECKING:
    from relook.report.figures import Drawing

_MOST_SETTINGS = 200
_LONGEST_SETTING = 300


def write_report(run_dir: str | Path, out: Path | None = None, *, figures: bool = True) -> Path:
    """Write the report of a run (default: report.html inside it) and return its path.

    With `figures`, the page's figures are also written as SVG and PNG into the run's
    `figures/`. What the run does not hold yet is named on the page with the command that
    adds it; a run that holds nothing raises a RunError.
    """
    run = read_run(Path(run_dir))
    target = out or run.path / "report.html"
    write_text_atomic(target, render_report(run))
    if figures:
        _write_figures(run)
    return target


def render_report(run: RunFiles) -> str:
    """Return the page as text, the same bytes for the same files."""
    sections = _sections(run)
    links = [element("a", title, href=f"#{key}") for key, title, _ in sections]
    head = element(
        "header",
        element("p", element("b", "relook"), " report", class_="brand"),
        element("h1", run.name),
        element("p", _subject(run), class_="subject") if run.comparison else None,
        element("nav", *links, aria_label="Sections") if len(links) > 1 else None,
    )
    top = results.verdict(run.comparison, _notes(run)) if run.comparison else _unfinished(run)
    body = [
        element("section", element("h2", title), *content, id=key)
        for key, title, content in sections
    ]
    foot = element(
        "footer",
        f"Written by relook {relook.__version__} from the files of the run alone. "
        "This page loads nothing and runs nothing.",
    )
    template = Template(resource("page.html"))
    return template.substitute(
        title=escape(f"{run.name} · relook report"),
        style=resource("report.css"),
        body=join([head, element("main", top, *body), foot]),
    )


def _subject(run: RunFiles) -> str:
    """Say what was compared: data, images, recipe."""
    if run.comparison is None:
        return ""
    settings = run.comparison.settings
    data = settings.get("data")
    name = data.get("name") if isinstance(data, Mapping) else None
    known = (name, f"{run.comparison.images:,} held-out images", settings.get("recipe"))
    return " · ".join(str(part) for part in known if part)


Section = tuple[str, str, list[Html]]


def _sections(run: RunFiles) -> list[Section]:
    from relook.report import figures

    drawings: dict[str, Drawing] = {}
    if run.comparison is not None:
        drawn = figures.comparison_drawings(run.comparison, legend=False)
        drawings |= {drawing.name: drawing for drawing in drawn}
    drawings |= {drawing.name: drawing for drawing in _policy_drawings(run)}
    shown = {name: figures.inline_svg(drawing) for name, drawing in drawings.items()}
    sections = [] if run.comparison is None else _comparison_sections(run.comparison, shown)
    if run.policy is not None:
        sections.append(_policy_section(run, run.policy, shown))
    elif "search" in shown:
        sections.append(
            (
                "policy",
                "The search",
                [_figures(_figure(shown["search"], "The search,", "step by step."))],
            )
        )
    if run.comparison is not None and (run.comparison.gained_count or run.comparison.lost_count):
        sections.append(_changes_section(run, run.comparison))
    sections.append(("settings", "Settings", _settings(run)))
    return sections


def _comparison_sections(comparison: Comparison, shown: dict[str, Html]) -> list[Section]:
    band = results.band_words(comparison)
    captions = {
        "cll": ("Calibrated log-likelihood,", "higher is better.", band,
                _leaving(comparison, "cll")),
        "accuracy": ("Accuracy,", "higher is better.", band, _leaving(comparison, "accuracy")),
        "frontier": ("What each cost can buy:", "no method is better and cheaper than a point on "
                     "the line. Points off the line are faint."),
        "temperature": ("The temperature", "that calibrates the average of so many views: above 1 "
                        "the average is too sure, below 1 not sure enough."),
    }  # fmt: skip
    pairs = [_figure(shown[name], *words) for name, words in captions.items() if name in shown]
    sections = [
        (
            "results",
            "Results",
            [
                _lead(results.table_words(comparison), " ", results.left_out_words(comparison)),
                results.table(comparison),
            ],
        ),
        ("curves", "Views and cost", [results.legend(comparison), _figures(*pairs)]),
    ]
    reliability = [
        _figure(shown[f"reliability_{when}"], f"{when.capitalize()} calibration")
        for when in ("before", "after")
        if f"reliability_{when}" in shown
    ]
    if reliability:
        words = (
            "Of the images that get a confidence of 0.8, 80 % should be right: then the points lie "
            "on the diagonal. Larger points hold more images."
        )
        key = element(
            "ul",
            element("li", element("i", class_="dot policy"), "policy", class_="strong"),
            element("li", element("i", class_="dot plain"), "plain image"),
            class_="legend",
        )
        sections.append(("reliability", "Reliability", [_lead(words), key, _figures(*reliability)]))
    return sections


def _policy_section(run: RunFiles, policy: Policy, shown: dict[str, Html]) -> Section:
    comparison = run.comparison
    classes = comparison.classes if comparison else ()
    indices: Sequence[int] = comparison.gallery if comparison else ()
    if not indices and run.examples is not None:
        indices = list(run.examples.places)
    content = [
        _lead(policy_words(policy)),
        gallery.policy_cards(policy, run.examples, indices, classes),
    ]
    if run.examples is None:
        content.append(
            _missing("The run keeps no example images (examples.npz), so the views are not shown.")
        )
    drawn = [
        _figure(shown[name], *caption)
        for name, caption in (
            ("transforms", ("Transforms,", "repeats counted; the finish is left out.")),
            ("search", ("The search,", "step by step, scored on its own images: held-out images "
             "show less.")),
        )
        if name in shown
    ]  # fmt: skip
    return ("policy", "The policy", [*content, _figures(*drawn)])


def policy_words(policy: Policy) -> str:
    """Say in a sentence what a policy is: entries, views, draws, recipe, seed."""
    entries = wording.count(len(policy), "entry", "entries")
    views = wording.count(policy.views, "model pass", "model passes")
    kind = "fixed (the same for every image)" if policy.is_fixed else "fresh (new for each image)"
    recipe = "" if policy.recipe is None else f" From the recipe {policy.recipe}."
    return (
        f"{entries}, {wording.count(len(policy.counts()), 'distinct view')}, {views} an image; "
        f"draws are {kind}.{recipe} Each view counts as often as it stands in the policy."
    )


def _changes_section(run: RunFiles, comparison: Comparison) -> Section:
    content = [_lead(gallery.changed_words(comparison))]
    for title, changed, total in (
        ("Put right", comparison.gained, comparison.gained_count),
        ("Got wrong", comparison.lost, comparison.lost_count),
    ):
        if total:
            which = "" if len(changed) >= total else f", {len(changed)} of them shown"
            content.append(element("h3", f"{title}: {total:,}{which}"))
            content.append(gallery.changed_cards(changed, run.examples, comparison.classes))
    return ("changes", "Images gained and lost", content)


def _settings(run: RunFiles) -> list[Html]:
    content = []
    if run.commands:
        code = element("code", "\n".join(run.commands))
        content += [element("h3", "To reproduce"), element("pre", code)]
    rows = [
        element("div", element("dt", name), element("dd", shorten(value, _LONGEST_SETTING)))
        for name, value in run.settings()[:_MOST_SETTINGS]
    ]
    if rows:
        content.append(element("dl", *rows, class_="settings"))
    again = shlex.join(["relook", "report", str(run.path)])
    content.append(_lead("This page again: ", element("code", again), "."))
    return content


def _unfinished(run: RunFiles) -> Html:
    what = "a search" if run.steps else "a policy"
    command = shlex.join(["relook", "compare", "--run", str(run.path)])
    return element(
        "section",
        element("p", "No verdict yet", class_="mark same"),
        element("p", f"This run holds {what}, but no comparison.", class_="sentence"),
        element(
            "p",
            "Missing: the table, the curves, the reliability diagram and the images gained and "
            "lost. ",
            element("code", command),
            " adds them; then write the report again.",
            class_="note",
        ),
        *(element("p", note, class_="note") for note in _notes(run)),
        id="verdict",
        aria_label="Verdict",
    )


def _notes(run: RunFiles) -> list[str]:
    notes = run.record.get("notes")
    return [str(note) for note in notes[:20]] if isinstance(notes, list) else []


def _policy_drawings(run: RunFiles) -> list[Drawing]:
    from relook.report import figures

    drawings = []
    uses = transform_statistics(run.policy) if run.policy is not None else ()
    if uses:
        drawings.append(figures.transforms_drawing(uses))
    if run.steps:
        drawings.append(figures.trace_drawing(run.steps))
    return drawings


def _write_figures(run: RunFiles) -> None:
    from relook.report import figures

    drawings = _policy_drawings(run)
    if run.comparison is not None:
        drawings += figures.comparison_drawings(run.comparison, legend=True)
    for drawing in drawings:
        figures.save_drawing(drawing, run.path / "figures")


def _leaving(comparison: Comparison, metric: str) -> str:
    return results.leaving_words(shown_range(curves(comparison, metric)).leaving)


def _figures(*figures: Html) -> Html:
    return element("div", *figures, class_="figures")


def _figure(svg: Html, title: str, *sentences: str) -> Html:
    return element("figure", svg, results.caption(title, *sentences))


def _lead(*words: str) -> Html:
    return element("p", *words, class_="lead")


def _missing(words: str) -> Html:
    return element("p", words, class_="note")


def resource(name: str) -> str:
    """Return a style sheet or template of this package."""
    return files("relook.report").joinpath(name).read_text(encoding="utf-8")
