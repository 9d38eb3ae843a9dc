"""The report as a reader sees it: in headless Chromium, from disk, wide and narrow."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.e2e.browser import BROWSERS, FRAME, PROBE, open_page
from tests.unit.report.example_run import (
    example_comparison,
    example_policy,
    write_example_run,
    write_search,
)

from relook.report import write_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser found: looked for {', '.join(BROWSERS)}")
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = write_example_run(tmp_path_factory.mktemp("report") / "demo")
    return write_report(run, figures=False)


def console_lines(finished: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in finished.stderr.splitlines() if "CONSOLE" in line]


def probe(browser: str, page: Path, directory: Path, width: int, *flags: str) -> Any:
    """Load a copy of the page that may run our script, and return what the script saw."""
    text = page.read_text("utf-8")
    copy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', lambda _: PROBE, text)
    assert copy != text
    (directory / "copy.html").write_text(copy, "utf-8")
    frame = directory / "frame.html"
    frame.write_text(FRAME.format(page="copy.html", width=width), "utf-8")
    # The virtual time ends when nothing is left to load or to run.
    wait = ("--dump-dom", "--virtual-time-budget=10000")
    finished = open_page(browser, frame, directory / "profile", *wait, *flags)
    seen = re.search(r'<pre id="probe">(.+?)</pre>', finished.stdout, re.DOTALL)
    assert seen is not None, finished.stderr
    return json.loads(html.unescape(seen[1]))


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_is_drawn_without_complaint(
    browser: str, page: Path, tmp_path: Path, width: int
) -> None:
    target = tmp_path / f"report-{width}.png"
    flags = (f"--window-size={width},2400", f"--screenshot={target}")
    finished = open_page(browser, page, tmp_path / "profile", *flags)
    assert console_lines(finished) == []
    with Image.open(target) as picture:
        assert picture.size == (width, 2400)
        assert len(picture.convert("RGB").getcolors(1 << 22) or []) > 100


@pytest.mark.parametrize("width", [1280, 400])
def test_images_load_and_nothing_sticks_out(
    browser: str, page: Path, tmp_path: Path, width: int
) -> None:
    seen = probe(browser, page, tmp_path, width)
    assert seen["width"] == width
    assert seen["content"] <= width
    assert len(seen["images"]) > 50
    assert min(seen["images"]) > 0
    assert seen["smallest"] >= 9


def test_the_page_is_dark_when_asked(browser: str, page: Path, tmp_path: Path) -> None:
    light = probe(browser, page, tmp_path, 800, "--blink-settings=preferredColorScheme=1")
    dark = probe(browser, page, tmp_path, 800, "--blink-settings=preferredColorScheme=0")
    assert (light["dark"], dark["dark"]) == (False, True)
    assert light["paper"] == "rgb(254, 254, 254)"
    assert dark["paper"] == "rgb(20, 23, 28)"


def test_an_unfinished_run_is_drawn_too(browser: str, tmp_path: Path) -> None:
    write_search(tmp_path / "run", example_policy())
    example_policy().save(tmp_path / "run" / "policy.json")
    page = write_report(tmp_path / "run", figures=False)
    seen = probe(browser, page, tmp_path, 400)
    assert seen["content"] <= 400


def test_long_and_hostile_names_do_no_harm(browser: str, tmp_path: Path) -> None:
    endless = "<script>console.error(1)</script>" + "x" * 300
    comparison = example_comparison(
        classes=[endless] * 10, settings={"a" * 200: "b" * 400, "command": f"relook {endless}"}
    )
    rows = tuple(replace(row, label=endless) for row in comparison.rows)
    verdict = replace(comparison.verdict, sentence=endless)
    hostile = replace(comparison, rows=rows, verdict=verdict)
    page = write_report(write_example_run(tmp_path / ("n" * 200), hostile), figures=False)
    assert probe(browser, page, tmp_path, 400)["content"] <= 400
    assert console_lines(open_page(browser, page, tmp_path / "profile", "--dump-dom")) == []


def test_the_probe_sees_what_is_wrong(browser: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<meta http-equiv="Content-Security-Policy" content="img-src data:"><body>'
        '<img src="data:image/png;base64,broken"><div style="width:900px">wide</div>'
        '<div class="figures"><svg width="9" height="9"><text>x</text></svg></div>'
        '<script>console.error("oops")</script>',
        "utf-8",
    )
    shown = open_page(browser, bad, tmp_path / "profile", "--dump-dom")
    assert any("oops" in line for line in console_lines(shown))
    seen = probe(browser, bad, tmp_path, 400)
    assert seen["images"] == [0]
    assert seen["content"] >= 900
