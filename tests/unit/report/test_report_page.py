import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support import refused
from tests.unit.report.example_run import (
    CLASSES,
    example_comparison,
    example_policy,
    write_example_run,
    write_examples,
    write_search,
)
from tests.unit.report.html_reader import Element, read_html

from relook.errors import FileFormatError, RunError
from relook.policy import Policy
from relook.policy.pool import sample_pool
from relook.report import write_report
from relook.report.page import render_report
from relook.report.run_files import read_run
from relook.report.summary import Summary, when_not_to_answer

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "' onmouseover='alert(3)",
    "</style><script>alert(4)</script>",
    "&lt;b&gt; $\\frac{1}{$ ${title} $body",
    "nul \x00 escape \x1b[31m surrogate \ud800 end",
    "a very long name " * 200,
    "javascript:alert(5)",
    "%s {0} {title}",
    "—ünïcode 字 ‮ rtl",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Element:
    return page_of(write_example_run(tmp_path_factory.mktemp("report") / "demo"))


def page_of(run: Path) -> Element:
    """Write the report of a run and read it back."""
    return read_html(write_report(run, figures=False).read_text("utf-8"))


def test_the_verdict_comes_first(page: Element) -> None:
    sections = page.all("section")
    names = "verdict results curves reliability where selective policy changes settings"
    assert [section.attributes["id"] for section in sections] == names.split()
    assert "the plain image: held-out cLL +0.0421 [+0.0373, +0.0464]" in sections[0].words()
    assert "It helps" in sections[0].words()


def test_links_lead_to_sections(page: Element) -> None:
    ids = Counter(str(one.attributes["id"]) for one in page.everything() if "id" in one.attributes)
    assert [key for key, count in ids.items() if count > 1] == []
    links = [str(link.attributes["href"]) for link in page.all("nav")[0].all("a")]
    assert len(links) == 8
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_the_table_holds_the_comparison(page: Element) -> None:
    comparison = example_comparison()
    groups = page.all("table")[0].all("tbody")
    for budget, group in zip(comparison.budgets, groups, strict=True):
        lines = [[cell.words() for cell in row.children] for row in group.all("tr")[1:]]
        shown = {cells[0]: cells for cells in lines}
        row = comparison.row("gps", budget)
        assert row is not None
        assert row.over_plain is not None
        cells = shown[row.label]
        assert cells[1:3] == [str(row.views), f"{row.slowdown:.1f}×"]
        assert cells[3] == f"{row.metrics['cll'].mean:.4f}".replace("-", "−")
        assert cells[5] == f"{100 * row.metrics['accuracy'].mean:.2f}"
        low = f"{row.over_plain['cll'].low:+.4f}".replace("-", "−").replace("+0.0000", "±0.0000")
        assert f"[{low}, " in cells[4]
        values = [float(cells[3].replace("−", "-")) for cells in lines]
        assert values == sorted(values, reverse=True)
        for column in (3, 5):  # the best of each budget is bold
            cells_of_it = [line.children[column] for line in group.all("tr")[1:]]
            numbers = [float(cell.words().replace("−", "-")) for cell in cells_of_it]
            bold = [bool(cell.all("b")) for cell in cells_of_it]
            assert bold == [number == max(numbers) for number in numbers]
            assert sum(bold) == 1


def test_when_not_to_answer_is_said_in_plain_words(page: Element) -> None:
    comparison = example_comparison()
    words = page.with_id("selective").words()
    assert when_not_to_answer(comparison) in words
    assert "Answering only the surest 90 % of the images, the policy is right on" in words
    assert "If images are left out by disagreement between views instead, accuracy is " in words
    few = replace(comparison, selective=None, images=60)
    assert when_not_to_answer(few).endswith("when not to answer: expected 100, got 60.")


def test_a_mistake_in_the_set_up_stands_at_the_head_of_the_page(tmp_path: Path) -> None:
    found = example_comparison()
    doubted = replace(found, settings={**found.settings, "set_up": "check it"})
    text = render_report(read_run(write_example_run(tmp_path / "run", doubted)))
    assert ", but check the set-up first</p>" in text
    assert ", but check the set-up first</p>" not in render_report(
        read_run(write_example_run(tmp_path / "other"))
    )


def test_a_preset_is_not_said_to_be_found_by_a_search() -> None:
    comparison = example_comparison()
    rows = [replace(row, label="10 crops") for row in comparison.rows if row.method == "gps"]
    about = Summary(replace(comparison, rows=tuple(rows))).about
    assert about == {"gps": "the policy that was compared, a preset"}


def test_abbreviations_are_explained(page: Element) -> None:
    assert "cLL is the calibrated log-likelihood" in page.with_id("verdict").words()
    (terms,) = (dl for dl in page.all("dl") if dl.attributes["class"] == "terms")
    explained = {one.all("dt")[0].words(): one.all("dd")[0].words() for one in terms.all("div")}
    labels = {row.label for row in example_comparison().rows}
    assert set(explained) == labels
    assert explained["plain image (CC)"] == "the image as it is (CC: central crop)"
    assert "Greedy Policy Search" in explained["learned policy (GPS)"]
    methods = [one for one in page.all("span") if one.attributes.get("class") == "method"]
    assert {one.words(): one.attributes["title"] for one in methods} == explained


def test_figures_have_words(page: Element) -> None:
    drawn = [svg for svg in page.all("svg") if svg.attributes.get("role") == "img"]
    assert len(drawn) == 9
    for svg in drawn:
        title, description = str(svg.attributes["aria-labelledby"]).split()
        assert svg.with_id(title).words()
        assert len(svg.with_id(description).words()) > 40
    for svg in page.all("svg"):
        assert svg.attributes.get("role") == "img" or svg.attributes.get("aria-hidden") == "true"
    assert page.all("img")
    assert all(img.attributes.get("alt") for img in page.all("img"))


def test_the_gallery_shows_each_distinct_view(page: Element) -> None:
    figures = page.with_id("policy").all("figure")
    cards = [one for one in figures if "card" in str(one.attributes.get("class"))]
    policy = example_policy()
    assert len(cards) == 1 + len(policy.counts())
    for card, (subpolicy, count) in zip(cards[1:], policy.counts(), strict=True):
        assert card.words().startswith(f"{count} ×")
        assert len(card.all("img")) == 6
        steps = [step.words() for step in card.all("li")]
        assert " · ".join(steps) == str(subpolicy)


def test_changed_images_are_shown(page: Element) -> None:
    changes = page.with_id("changes")
    assert "puts 11 right" in changes.words()
    assert "gets 3 wrong" in changes.words()
    one = example_comparison().gained[0]
    card = changes.all("li")[0].words()
    assert CLASSES[one.label] in card
    assert f"{CLASSES[one.before]} → {CLASSES[one.after]}" in card
    assert f"{one.probability_before:.2f} → {one.probability_after:.2f}" in card
    assert len(changes.all("img")) == 9


def test_images_from_files_are_named_as_these(tmp_path: Path, page: Element) -> None:
    run = write_example_run(tmp_path)
    one = example_comparison().gained[0]
    assert f"image {one.index}" in page.with_id("changes").words()
    with np.load(run / "examples.npz") as kept:
        arrays = dict(kept)
    files = [f"cats/{index:04}.png" for index in arrays["indices"]]
    np.savez(run / "examples.npz", **arrays, names=files)
    named = page_of(run)
    for section in ("changes", "where"):
        assert "cats/0" in named.with_id(section).words()
        assert not re.search(r"images? \d", named.with_id(section).words())
    assert f"cats/{one.index:04}.png" in named.with_id("changes").words()
    np.savez(run / "examples.npz", **arrays, names=files[1:])
    refused("of different lengths", write_report, run, error=FileFormatError)


def test_where_it_gains_is_sorted_with_the_images_behind_it(page: Element) -> None:
    (section,) = (one for one in page.all("section") if one.attributes["id"] == "where")
    words = section.words()
    places = [words.index(f"{name}60") for name in CLASSES[:-1]]
    assert places == sorted(places)
    assert "zero loses; the images that lose most" in words
    assert "Too few images to tell: 1 of 10 (9 images)" in words
    assert "By brightness" in words
    assert "4 ×zero → one" in words
    assert len(section.all("img")) == 2 + 3 + 2


def test_nothing_is_loaded_and_nothing_runs(page: Element) -> None:
    for element in page.everything():
        assert element.name not in ("script", "link", "iframe", "object", "embed", "form", "base")
        assert not [name for name in element.attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href"):
            value = element.attributes.get(name)
            assert value is None or value.startswith(("#", "data:image/"))
    assert all("url(" not in style.words() for style in page.all("style"))
    policy = page.all("meta")[3].attributes
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert str(policy["content"]).startswith("default-src 'none'")


def test_names_from_outside_stay_text(tmp_path: Path) -> None:
    settings = {"note": HOSTILE[0], HOSTILE[1]: HOSTILE[3], "command": ["relook", *HOSTILE[:3]]}
    harmless = example_comparison(settings={"note": "", "x": "", "command": "relook"})
    comparison = example_comparison(classes=HOSTILE, settings=settings)
    labels = [HOSTILE[ord(row.method[-1]) % len(HOSTILE)] for row in comparison.rows]
    named = zip(comparison.rows, labels, strict=True)
    rows = tuple(replace(row, label=label) for row, label in named)
    verdict = replace(comparison.verdict, sentence=f"Helps: {HOSTILE[0]} {HOSTILE[1]}")
    comparison = replace(comparison, rows=rows, verdict=verdict)
    run = write_example_run(tmp_path / "<img src=x onerror=alert(6)>", harmless)
    (run / "comparison.json").write_text(json.dumps(comparison.to_json()))
    found, other = page_of(run), page_of(write_example_run(tmp_path / "benign", harmless))
    elements = [Counter(one.name for one in read.everything()) for read in (found, other)]
    assert elements[0] == elements[1]
    assert not [key for one in found.everything() for key in one.attributes if key[:2] == "on"]
    assert HOSTILE[3] in found.with_id("changes").words()
    assert HOSTILE[1] in found.with_id("settings").words()
    assert found.all("h1")[0].words() == "<img src=x onerror=alert(6)>"


def test_a_run_that_is_named_by_a_seed_is_titled_by_model_and_images(tmp_path: Path) -> None:
    def title(name: str, **origin: object) -> str:
        run = replace(read_run(write_example_run(tmp_path / name)), record={"origin": origin})
        return read_html(render_report(run)).all("h1")[0].words()

    origin = {"model": "timm:resnet18@/home/me/weights.safetensors", "data": "folder:a/photos"}
    assert title("mine", **origin) == "mine"
    assert title("seed-0") == "seed-0"
    known = "timm:resnet18@weights.safetensors on folder:photos"
    assert title("seed-1", **origin) == f"{known}, seed-1"


def test_a_narrow_table_hides_no_column(tmp_path: Path) -> None:
    text = render_report(read_run(write_example_run(tmp_path / "run")))
    narrow = text.split("@media screen and (max-width")[1].split("@media")[0]
    assert "display: none" not in narrow


@pytest.mark.parametrize(
    ("outcome", "mark"),
    [
        ("helps", "It helps"),
        ("averaging helps", "Averaging helps"),
        ("no difference", "No difference"),
        ("too few images to tell", "Too few images to tell"),
        ("hurts", "It hurts"),
    ],
)
def test_each_outcome_is_named(tmp_path: Path, outcome: str, mark: str) -> None:
    comparison = example_comparison(outcome=outcome)
    verdict = page_of(write_example_run(tmp_path, comparison)).with_id("verdict")
    assert verdict.all("p")[0].words() == mark
    assert comparison.verdict.sentence.partition(": ")[2][1:] in verdict.words()
    plain = "helps" not in outcome
    assert ("Recommended1 viewplain image" in verdict.words()) == plain
    # The figures are those of the row that was judged, not of the one that was picked.
    whose = "" if comparison.verdict.recommended_method == "gps" else "learned policy (GPS), "
    assert f"cLL, {whose}11 views−0.1097+0.0421 [" in verdict.words()


def test_the_same_files_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    for parent in ("a", "b"):
        (tmp_path / parent).mkdir()
        monkeypatch.chdir(tmp_path / parent)
        run = write_example_run(Path("runs") / "demo")
        write_report(run)
        files = [run / "report.html", *sorted((run / "figures").iterdir())]
        written.append({file.name: file.read_bytes() for file in files})
    assert written[0] == written[1]
    assert len(written[0]["report.html"]) < 1_000_000
    names = {"cll", "accuracy", "frontier", "temperature", "transforms", "search"}
    names |= {"reliability_before", "reliability_after", "selective"}
    assert set(written[0]) == {"report.html", *(f"{n}.{k}" for n in names for k in ("svg", "png"))}


def test_large_images_and_long_policies_stay_small(tmp_path: Path) -> None:
    policy = Policy(sample_pool("imagenet", 60, seed=1, draws="fresh"), recipe="imagenet")
    comparison = replace(example_comparison(), policy=policy)
    run = write_example_run(tmp_path, comparison)
    named = [one.index for one in (*comparison.gained, *comparison.lost)]
    indices = np.array(sorted({*comparison.gallery, *named}))
    noise = np.random.default_rng(0).integers(0, 256, (len(indices), 3, 160, 200), dtype=np.uint8)
    np.savez(run / "examples.npz", indices=indices, images=noise, labels=indices % 10)
    assert len(page_of(run).with_id("policy").all("img")) == 61 * 4
    assert (run / "report.html").stat().st_size < 3_000_000


def test_several_runs_show_their_deviation(tmp_path: Path) -> None:
    text = page_of(write_example_run(tmp_path, example_comparison(runs=5))).words()
    assert "± 0.0007" in text
    assert "± one standard deviation over runs" in text


def test_a_search_without_comparison_shows_what_it_left(tmp_path: Path) -> None:
    policy = example_policy()
    write_search(tmp_path, policy)
    page = page_of(tmp_path)
    assert len([svg for svg in page.all("svg") if svg.attributes.get("role") == "img"]) == 1
    policy.save(tmp_path / "policy.json")
    page = read_html(write_report(tmp_path).read_text("utf-8"))
    sections = [one.attributes["id"] for one in page.all("section")]
    assert sections == ["verdict", "policy", "settings"]
    assert "no comparison" in page.with_id("verdict").words()
    assert f"relook compare {tmp_path}" in page.with_id("verdict").words()
    assert "examples.npz" in page.with_id("policy").words()
    assert str(policy[1].steps[0]) in page.with_id("policy").words()
    assert (tmp_path / "figures" / "search.svg").exists()
    write_examples(tmp_path, example_comparison())
    assert page_of(tmp_path).with_id("policy").all("img")


def test_a_comparison_alone(tmp_path: Path) -> None:
    example_comparison().save(tmp_path / "comparison.json")
    page = page_of(tmp_path)
    assert not page.all("img")
    assert page.with_id("changes").words()


def test_nothing_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        (tmp_path / "file").write_text("x")
        refused(re.escape(str(path)), write_report, path, error=RunError)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("comparison.json", b"{}"),
        ("comparison.json", b'{"format": "relook-comparison", "version": 1}'),
        ("search.json", b'{"steps": [{"views": "many"}]}'),
        ("search.json", b"[]"),
        ("run.json", b"[]"),
        ("examples.npz", b"not a zip"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    run = write_example_run(tmp_path)
    (run / name).write_bytes(content)
    refused(re.escape(name), write_report, run, error=FileFormatError)


def test_examples_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    run = write_example_run(tmp_path)
    images = np.zeros((2, 1, 32, 32), dtype=np.float32)
    np.savez(run / "examples.npz", indices=[0, 1], images=images, labels=[0, 1])
    refused("uint8", write_report, run, error=FileFormatError)
    pickled = np.array([{}], dtype=object)
    np.savez(run / "examples.npz", indices=[0], images=pickled, labels=[0], allow_pickle=True)
    refused(r"examples\.npz", write_report, run, error=FileFormatError)
