"""Every source of images, from files on disk to a policy and a report."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.e2e.conftest import Finished, Relook
from tests.unit.data.image_files import encoded, photo, png_that_declares
from tests.unit.report.html_reader import read_html

from relook.evaluation.comparison import Comparison, load_comparison
from relook.report import write_report

QUICK = ("--recipe", "small", "--pool-size", "6", "--length", "2", "--batch", "64")
COLOURS = {"red": (220, 60, 50), "green": (50, 200, 60), "blue": (40, 70, 210)}
HOSTILE_NAME = "<script>alert('blue')<&nbsp;"

MODULE = """
import torch

class ByColour(torch.nn.Module):
    def forward(self, images):
        return 8 * images.mean(dim=(2, 3))

def build():
    return ByColour()
"""


@pytest.fixture
def by_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model whose classes are red, green and blue, in this order."""
    (tmp_path / "by_colour.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return "torch:by_colour:build"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sixty photos of three colours, of many sizes and kinds, and files that are no images."""
    root = tmp_path / "photos"
    generator = np.random.default_rng(0)
    kinds = ("jpg", "png", "webp", "bmp")
    for name, colour in COLOURS.items():
        place = root / (HOSTILE_NAME if name == "blue" else name)
        place.mkdir(parents=True)
        for i in range(20):
            height, width = generator.integers(20, 50, 2)
            noise = generator.normal(0, 20, (height, width, 3))
            image = Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8))
            image.save(place / f"{i}.{kinds[i % 4]}")
    (root / "red" / "broken.jpg").write_bytes(encoded(photo(), "JPEG")[:700])
    (root / "red" / "empty.png").write_bytes(b"")
    (root / "green" / "bomb.png").write_bytes(png_that_declares(50_000, 50_000))
    return root


def search(relook: Relook, out: Path, *arguments: object) -> Finished:
    done = relook("search", *arguments, "--out", out, *QUICK)
    assert "Traceback" not in done.err
    return done


def plain_accuracy(comparison: Comparison) -> float:
    (row,) = (row for row in comparison.rows if row.method == "plain")
    return row.metrics["accuracy"].mean


def test_a_folder_with_hostile_files_is_named_then_skipped(
    relook: Relook, by_colour: str, folder: Path, tmp_path: Path
) -> None:
    sources = ("--model", by_colour, "--data", f"folder:{folder}")
    done = search(relook, tmp_path / "run", *sources, "--size", 24)
    assert done.code == 2
    assert "2 of 63 files cannot be read as images" in done.err
    assert "bomb.png" in done.err
    done = search(relook, tmp_path / "run", *sources, "--skip-bad")
    assert done.code == 2
    assert "give a size, such as 224" in done.err
    (tmp_path / "classes.txt").write_text(f"red\ngreen\n{HOSTILE_NAME}\n")
    mapped = ("--size", "24", "--skip-bad", "--classes", "classes.txt")
    done = search(relook, tmp_path / "run", *sources, *mapped)
    assert done.code == 0, done.err
    assert all(name in done.err for name in ("broken.jpg", "empty.png", "bomb.png"))
    assert "images of 3×24×24 (resized, bicubic; the centre crop keeps 0.875)" in done.err
    assert "which is chance" not in done.err
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["data"]["images"] == 60
    assert record["data"]["classes"] == ["red", "green", HOSTILE_NAME]
    assert record["origin"]["size"] == "24"
    comparison = load_comparison(tmp_path / "run" / "comparison.json")
    assert plain_accuracy(comparison) == 1.0
    done = relook.ok("compare", "--run", tmp_path / "run", "--methods", "flip", "--budgets", "1,2")
    assert "held-out images are used" in done.err
    page = write_report(tmp_path / "run", figures=False).read_text(encoding="utf-8")
    assert "<script>alert('blue')" not in page
    assert HOSTILE_NAME in read_html(page).words()


def test_a_path_alone_is_read_as_what_it_holds(
    relook: Relook, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cats", "dogs"):
        (tmp_path / "photos" / name).mkdir(parents=True)
    command = ("search", "--model", model, "--dry-run", "--data")
    done = relook.refused(*command, "photos")
    assert done.err.splitlines()[0] == "photos is read as folder:photos"
    assert "expected a source before the path, such as folder:photos/cats" in (
        relook.refused(*command, "photos/cats").err
    )
    Path("net.onnx").write_bytes(b"")
    done = relook.refused("search", "--model", "net.onnx", "--data", "digits")
    assert done.err.splitlines()[0] == "net.onnx is read as onnx:net.onnx"


def test_a_wrong_order_of_classes_is_said(
    relook: Relook, by_colour: str, folder: Path, tmp_path: Path
) -> None:
    sources = ("--model", by_colour, "--data", f"folder:{folder}", "--size", "24", "--skip-bad")
    (tmp_path / "classes.json").write_text(json.dumps({"red": 1, "green": 2, HOSTILE_NAME: 0}))
    split = ("--split", "52:rest")
    done = search(relook, tmp_path / "run", *sources, "--classes", "classes.json", *split)
    assert done.code == 0, done.err
    assert "accuracy is 0.0 % on the search images, which is chance" in done.err
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["split"]["search"] == 52
    assert record["split"]["held_out"] == 8
    assert any("which is chance" in note for note in record["notes"])


def test_classes_that_do_not_fit_are_said(
    relook: Relook, by_colour: str, folder: Path, tmp_path: Path
) -> None:
    sources = ("--model", by_colour, "--data", f"folder:{folder}", "--size", "24", "--skip-bad")
    (tmp_path / "classes.txt").write_text("red\ngreen\nblue\n")
    done = search(relook, tmp_path / "run", *sources, "--classes", "classes.txt")
    assert done.code == 2
    assert "1 of 3 are not in it" in done.err
    (tmp_path / "classes.txt").write_text(f"red\ngreen\n{HOSTILE_NAME}\nyellow\n")
    done = search(relook, tmp_path / "run", *sources, "--classes", "classes.txt")
    assert done.code == 2
    assert "and 3 from the model" in done.err


def test_a_test_folder_gets_the_classes_of_the_other(
    relook: Relook, by_colour: str, folder: Path, tmp_path: Path
) -> None:
    for number, name in enumerate(("red", "green")):  # alone they would be green 0, red 1
        place = tmp_path / "test" / name
        place.mkdir(parents=True)
        for i in range(15):
            Image.new("RGB", (30 + i, 40), COLOURS[name]).save(place / f"{number}{i}.png")
    (tmp_path / "classes.txt").write_text(f"red\ngreen\n{HOSTILE_NAME}\n")
    sources = ("--model", by_colour, "--data", f"folder:{folder}", "--size", "24", "--skip-bad")
    test = ("--test", f"folder:{tmp_path / 'test'}", "--classes", "classes.txt")
    done = search(relook, tmp_path / "run", *sources, *test)
    assert done.code == 0, done.err
    comparison = load_comparison(tmp_path / "run" / "comparison.json")
    assert comparison.images == 30
    assert plain_accuracy(comparison) == 1.0


def test_a_table_is_searched_with_its_groups(
    relook: Relook, by_colour: str, folder: Path, tmp_path: Path
) -> None:
    place = {"red": 0, "green": 1, HOSTILE_NAME: 2}
    rows = [
        f'"{path.relative_to(tmp_path)}",{place[path.parent.name]},p{i // 3}'
        for i, path in enumerate(sorted(folder.glob("*/[0-9]*")))
    ]
    (tmp_path / "table.csv").write_text("\n".join(["path,label,patient", *rows]))
    sources = ("--model", by_colour, "--data", f"csv:{tmp_path / 'table.csv'}", "--size", "24x20")
    done = search(relook, tmp_path / "run", *sources, "--group", "patient")
    assert done.code == 0, done.err
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["data"]["shape"] == [3, 24, 20]
    done = relook.ok("compare", "--run", tmp_path / "run", "--methods", "flip", "--budgets", "1,2")
    assert "held-out images are used" in done.err
