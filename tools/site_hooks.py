"""What MkDocs calls while it builds the site: its navigation, generated pages and links.

A page that appears under docs/ finds its place by itself: pages named here come in this order,
all others after them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

import relook
from command_pages import command_pages, overview

ROOT = Path(__file__).resolve().parents[1]
_GENERATED = re.compile(r"<!-- generated: (?P<what>\w+) -->.*?<!-- end -->", re.DOTALL)
PAGES_OF_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
NOTEBOOKS = ("torch-model", "timm-and-a-folder", "reading-a-verdict")
HOWTO = {
    "Your network": ("timm", "torch", "onnx", "huggingface", "cifar", "train"),
    "Your images": ("folder", "imagenet", "cifar-data", "own-dataset"),
    "The search": ("which-views", "recipes", "extend", "select", "speed", "cluster"),
    "Judge it": ("gate", "doubt", "tracking"),
    "Put it to use": ("deploy", "export", "prediction-sets", "early-exit", "distil"),
    "Studies": ("robustness", "transfer", "ensembles", "studies", "reproduce"),
}
MEASURED = ("results", "search-quality", "performance", "scaling", "reliability", "security")
PROJECT = ("paper", "decisions")
PUBLIC = {
    "Search and judge": ("search", "FoundPolicy", "load", "compare", "Comparison", "PolicySearch"),
    "Deploy": ("TTA", "TTAClassifier", "export", "distil", "calibrate", "calibrate_policy"),
    "Policies and views": ("Policy", "SubPolicy", "Step", "make_views", "TRANSFORMS"),
    "Pools": ("Recipe", "RECIPES", "sample_pool"),
    "Selection on predictions": ("greedy_search", "SearchResult", "calibrated_log_likelihood"),
    "Your own rows": (
        *("register_transform", "register_objective", "register_baseline"),
        *("register_model_source", "register_data_source"),
    ),
    "Data, models, errors": ("Dataset", "Predictor", "RelookError", "RelookWarning"),
}
_LINK = re.compile(r"(?<=\]\()(?P<target>[^()\s#:]+)(?P<anchor>#[^()\s]*)?(?=\))")
_LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "bash", ".md": "markdown"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation from the pages that there are."""
    docs = Path(config.docs_dir)
    sources = sorted([*docs.rglob("*.md"), *docs.rglob("*.ipynb")])
    config.nav = navigation([site_uri(Path("docs", path.relative_to(docs))) for path in sources])
    return config


def navigation(pages: Sequence[str]) -> list[Any]:
    """Return MkDocs' navigation; every page has a place in it."""
    howto = [page for page in pages if page.startswith("howto/")]
    groups = {name: [f"howto/{page}.md" for page in known] for name, known in HOWTO.items()}
    project = [*(f"{name}.md" for name in PROJECT), *PAGES_OF_ROOT.values()]
    nav: dict[str, list[Any]] = {
        "Tutorial": ["tutorial.md", *(f"notebooks/{name}.md" for name in NOTEBOOKS)],
        "How to": [
            {group: listed} for group, listed in grouped(howto, groups, rest="More").items()
        ],
        "Concepts": ["concepts.md", "words.md"],
        "Reference": [{"Commands": ["reference/commands/index.md", *command_pages()]}],
        "Measured": [f"{name}.md" for name in MEASURED],
        "Project": project,
    }
    nav["Reference"].append("reference/api.md")
    nav["Measured"] = [page for page in nav["Measured"] if page in pages]
    named = {"index.md", *howto, *_leaves(nav)}
    for page in pages:
        if page not in named:
            nav[_section(page)].append(page)
    return ["index.md", *({title: entries} for title, entries in nav.items())]


def _section(page: str) -> str:
    """Return where a page goes that is named nowhere: by its folder, or to the project's."""
    folders = {"results": "Measured", "reference": "Reference", "notebooks": "Tutorial"}
    return folders.get(page.partition("/")[0], "Project")


def _leaves(entries: Any) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
        return
    for entry in entries.values() if isinstance(entries, dict) else entries:
        yield from _leaves(entry)


def grouped(
    names: Sequence[str], groups: Mapping[str, Sequence[str]], rest: str
) -> dict[str, list[str]]:
    """Sort names into groups in the groups' order; those of no group go under `rest`."""
    known = {name for group in groups.values() for name in group}
    found = {title: [name for name in group if name in names] for title, group in groups.items()}
    found[rest] = [name for name in names if name not in known]
    return {title: group for title, group in found.items() if group}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from code, and those that lie outside docs/."""
    for uri, text in command_pages().items():
        files.append(File.generated(config, uri, content=text))
    pages = [file for file in files.documentation_pages() if file.abs_src_path]
    sources = {Path(name) for name in PAGES_OF_ROOT}
    for file in pages:
        place = Path("docs", file.src_uri)
        sources.update(source for source in _linked(file.content_string, place) if source)
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        for uri, content in notebook_page(Path("docs", file.src_uri)).items():
            files.append(File.generated(config, uri, content=content))
    for source in sorted(sources):
        if not source.is_relative_to("docs"):
            files.append(File.generated(config, site_uri(source), content=source_page(source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, and lead links that leave docs/ to their pages here."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    makers = {"commands": overview, "names": public_names}
    markdown = _GENERATED.sub(lambda found: makers[found["what"]](), markdown)
    if page.file.generated_by is not None:
        return markdown
    return with_links(markdown, Path("docs", page.file.src_uri), page.file.src_uri)


def public_names() -> str:
    """Return the API page's sections: each public name for mkdocstrings to describe."""
    names = [name for name in relook.__all__ if not name.startswith("_")]
    sections = grouped(names, PUBLIC, rest="Also")
    return "\n\n".join(
        "\n\n".join([f"## {title}", *(f"::: relook.{name}" for name in section)])
        for title, section in sections.items()
    )


def site_uri(source: Path) -> str:
    """Return where a file of the repository is on the site."""
    if source.is_relative_to("docs"):
        page = source.with_suffix(".md") if source.suffix == ".ipynb" else source
        return page.relative_to("docs").as_posix()
    return PAGES_OF_ROOT.get(source.as_posix(), f"source/{source.as_posix()}.md")


def notebook_page(source: Path) -> dict[str, str | bytes]:
    """Return the page of a notebook, as it was run, and its pictures, by their places."""
    uri = Path(site_uri(source))
    exporter: Any = MarkdownExporter  # untyped
    text, resources = exporter().from_filename(
        str(ROOT / source), resources={"unique_key": source.stem}
    )
    pictures = {(uri.parent / name).as_posix(): data for name, data in resources["outputs"].items()}
    text = text.replace(' border="1" class="dataframe"', "")  # the theme lets bare tables scroll
    title, rest = with_links(text, source, uri.as_posix()).split("\n", 1)
    download = f"[Download this notebook]({source.name}); its outputs are what it printed."
    return {uri.as_posix(): f"{title}\n\n{download}\n{rest}", **pictures}


def source_page(source: Path) -> str:
    """Return the page of a file outside docs/: Markdown as it is, all else as a listing."""
    text = (ROOT / source).read_text(encoding="utf-8")
    if source.suffix == ".md":
        return with_links(text, source, site_uri(source))
    language = _LANGUAGES.get(source.suffix, "text")
    return f"# {source.name}\n\n`{source.as_posix()}`\n\n````{language}\n{text}````\n"


def _linked(markdown: str, place: Path) -> Iterator[Path | None]:
    """Yield the repository's files that a page links to; None for what is not there."""
    for link in _LINK.finditer(markdown):
        target = Path(posixpath.normpath(posixpath.join(place.parent.as_posix(), link["target"])))
        yield target if (ROOT / target).is_file() else None


def with_links(markdown: str, place: Path, uri: str) -> str:
    """Return the text of the file at `place` with links that hold for the site's page `uri`."""
    targets = _linked(markdown, place)

    def led(link: re.Match[str]) -> str:
        target = next(targets)
        if target is None:
            return link[0]
        return posixpath.relpath(site_uri(target), posixpath.dirname(uri)) + (link["anchor"] or "")

    return _LINK.sub(led, markdown)
