"""The documentation site, built as `make docs` builds it."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from filelock import FileLock
from markdown_it import MarkdownIt
from tests.e2e.browser import BROWSERS, FRAME, PROBE, open_page

import relook
from relook.cli.verbs import VERBS

pytest.importorskip("mkdocstrings", reason="needs relook[docs]")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The site, built once for all processes of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    target = (base if worker_id == "master" else base.parent) / "docs" / "site"
    with FileLock(f"{target.parent}.lock"):
        if not target.exists():
            build(target)
    return target


def build(target: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    assert built.returncode == 0, built.stderr


def test_every_page_is_built_and_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text("utf-8")
    for page in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]:
        target = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / target).is_file()
        assert f'href="{target.as_posix()}"' in home or target.name == "index.html"


def test_every_command_has_a_page(site: Path) -> None:
    for name in VERBS:
        assert (site / "reference" / "commands" / f"{name.replace(' ', '-')}.html").is_file()
    page = (site / "reference" / "commands" / "search.html").read_text("utf-8")
    assert 'id="relook-search-pool-size"' in page


def test_notebooks_show_their_outputs_and_lead_on(site: Path) -> None:
    page = (site / "notebooks" / "torch-model.html").read_text("utf-8")
    assert "held-out images; cLL" in page
    assert 'href="reading-a-verdict.html"' in page
    assert 'href="torch-model.ipynb"' in page
    pictures = re.findall(r'<img alt="png" src="([^"]+)"', page)
    assert pictures
    assert all((site / "notebooks" / picture).is_file() for picture in pictures)


def test_every_public_name_is_described(site: Path) -> None:
    page = (site / "reference" / "api.html").read_text("utf-8")
    for name in relook.__all__:
        assert f'id="relook.{name}"' in page or name.startswith("_")


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r'<(?:script|img|iframe|link rel="(?:stylesheet|icon|preconnect)")[^>]*>')
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text("utf-8")
        for tag in loaded.findall(text):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), f"{page.name}: {tag}"
        assert 'class="mermaid"' not in text  # the theme would fetch a library to draw it
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", style.read_text("utf-8"))


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: str(page.relative_to(ROOT))
)
def test_pages_read_the_same_on_github_and_on_the_site(site: Path, page: Path) -> None:
    """GitHub reads CommonMark, MkDocs does not: lists and code within them can come out apart."""
    markdown = page.read_text("utf-8")
    if "<!-- generated: " in markdown:
        pytest.skip("filled in on the site only")
    tokens = Counter(token.type for token in MarkdownIt().enable("table").parse(markdown))
    built = (site / page.relative_to(ROOT / "docs")).with_suffix(".html").read_text("utf-8")
    article = built[built.index("<article") : built.index("</article>")]
    assert {
        "headings": len(re.findall(r"<h\d", article)),
        "code": article.count("<pre"),
        "items": len(re.findall(r"<li\b", article)),
        "tables": len(re.findall(r"<table\b", article)),
    } == {
        "headings": tokens["heading_open"],
        "code": tokens["fence"] + tokens["code_block"],
        "items": tokens["list_item_open"],
        "tables": tokens["table_open"],
    }


@pytest.mark.browser
@pytest.mark.parametrize(
    "page",
    [
        "index.html",
        "tutorial.html",
        "concepts.html",
        "search-quality.html",
        "howto/export.html",
        "notebooks/torch-model.html",
        "notebooks/reading-a-verdict.html",
        "reference/commands/search.html",
        "reference/api.html",
    ],
)
def test_pages_fit_a_phone(site: Path, page: str, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser found: looked for {', '.join(BROWSERS)}")
    copy = (site / page).with_name("probed.html")
    copy.write_text((site / page).read_text("utf-8").replace("</body>", f"{PROBE}</body>"), "utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(page=copy.as_uri(), width=390), "utf-8")
    shown = open_page(
        browser, frame, tmp_path / "profile", "--dump-dom", "--virtual-time-budget=10000"
    )
    seen = re.search(r'<pre id="probe">(.+?)</pre>', shown.stdout, re.DOTALL)
    assert seen is not None, shown.stderr
    found = json.loads(html.unescape(seen[1]))
    assert found["width"] == 390
    assert found["content"] <= 390
    assert all(found["images"])
