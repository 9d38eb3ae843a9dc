"""ImageNet's way: photos of many shapes, crops cut from the originals, by the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.e2e.conftest import Relook
from tests.unit.data.image_files import encoded, png_that_declares

from relook.data import Preparation, load_data
from relook.evaluation.baselines import BASELINES, Options
from relook.evaluation.comparison import load_comparison
from relook.policy import Policy
from relook.policy.recipes import get_recipe
from relook.policy.views import apply_subpolicy
from relook.report import write_report
from relook.transforms.full_images import FullImages, open_images

QUICK = ("--recipe", "imagenet", "--pool-size", "6", "--length", "3", "--size", "32")

MODULE = """
import torch

class ByCorner(torch.nn.Module):
    \"\"\"Tells which colour the upper left part of an image has.\"\"\"

    def forward(self, images):
        return 4 * images[:, :, :20, :20].mean(dim=(2, 3)) + images.mean(dim=(2, 3))

def build():
    return ByCorner()
"""


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ninety photos of three colours, 60 to 200 pixels wide and high, and four hostile files."""
    (tmp_path / "by_corner.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(4)
    root = tmp_path / "photos"
    for place, name in enumerate(("a-red", "b-green", "c-blue")):
        (root / name).mkdir(parents=True)
        for i in range(30):
            height, width = generator.integers(60, 200, 2)
            levels = generator.normal(110, 60, (height, width, 3))
            levels[..., place] += 25
            image = Image.fromarray(levels.clip(0, 255).astype(np.uint8))
            image.save(root / name / f"{i:02}.jpg", quality=90)
    (root / "a-red" / "broken.jpg").write_bytes(encoded(image, "PNG")[:9000])
    (root / "a-red" / "empty.png").write_bytes(b"")
    (root / "b-green" / "bomb.png").write_bytes(png_that_declares(50_000, 50_000))
    (root / "b-green" / "text.jpg").write_text("not an image")
    return root


def search(photos: Path, out: str, *more: str) -> tuple[str, ...]:
    sources = ("--model", "torch:by_corner:build", "--data", f"folder:{photos}", "--skip-bad")
    return ("search", *sources, *QUICK, "--out", out, *more)


def test_a_policy_is_searched_compared_and_reported(
    relook: Relook, photos: Path, tmp_path: Path
) -> None:
    done = relook.refused(*(word for word in search(photos, "run") if word != "--skip-bad"))
    assert "3 of 94 files cannot be read as images" in done.err
    done = relook.ok(*search(photos, "run", "--cache", "cache"))
    assert "decoded 90 full-size images" in done.err
    assert all(name in done.err for name in ("broken.jpg", "empty.png", "bomb.png", "text.jpg"))
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["data"]["full_size"] is True
    assert record["data"]["shape"] == [3, 32, 32]
    done = relook.ok("compare", "--run", "run", "--budgets", "1,5,10", "--methods", "5c,10c,flip")
    assert "decoded before" in done.err
    assert "held-out images are used" in done.err
    comparison = load_comparison(tmp_path / "run" / "comparison.json")
    assert {row.method for row in comparison.rows} >= {"plain", "5c", "10c", "flip", "gps"}
    with np.load(tmp_path / "run" / "examples.npz") as examples:
        assert examples["images"].shape[1:] == (3, 32, 32)
    assert write_report(tmp_path / "run", figures=False).is_file()
    policy = ("--policy", "run/policy.json", "--out", "new.json", "--skip-bad", "--size", "32")
    sources = ("--model", "torch:by_corner:build", "--data", f"folder:{photos}")
    again = ("calibrate", *sources, *policy, "--cache", "cache", "--reuse-images")
    assert "decoded before" in relook.ok(*again).err


def test_where_the_images_are_kept_changes_nothing(
    relook: Relook, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relook.ok(*search(photos, "memory"))
    monkeypatch.setattr("relook.data.image_files.IN_MEMORY", 1000)
    relook.ok(*search(photos, "mapped", "--batch", "64"))
    assert (tmp_path / "mapped.images").is_dir()
    one, other = (Policy.load(tmp_path / run / "policy.json") for run in ("memory", "mapped"))
    assert one.subpolicies == other.subpolicies
    assert relook(*search(photos, "mapped", "--batch", "64")).err.count("decoded before") == 1


def test_an_interrupted_search_ends_in_the_same_policy(
    relook: Relook, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relook.ok(*search(photos, "whole"))
    calls = 0

    def make(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 20:
            raise KeyboardInterrupt
        return original(*arguments)

    original = open_images
    with monkeypatch.context() as patch:
        patch.setattr("relook.policy.views.open_images", make)
        assert relook(*search(photos, "cut", "--batch", "8")).code == 130
    relook.ok(*search(photos, "cut", "--batch", "8"))
    relook.ok(*search(photos, "again", "--batch", "8"))
    cut, again = ((tmp_path / run / "policy.json").read_bytes() for run in ("cut", "again"))
    assert cut == again


def test_auto_follows_the_recipe_and_no_keeps_the_small_images(
    relook: Relook, photos: Path, tmp_path: Path
) -> None:
    assert "full-size images" not in relook.ok(*search(photos, "small", "--full-size", "no")).err
    record = json.loads((tmp_path / "small" / "run.json").read_text())
    assert "full_size" not in record["data"]
    done = relook.ok("compare", "--run", "small", "--methods", "plain", "--budgets", "1")
    assert "full-size images" not in done.err  # as the search saw them
    assert "held-out images are used" in done.err
    done = relook(*search(photos, "cifar", "--recipe", "cifar"))
    assert "full-size images" not in done.err
    np.savez("set.npz", images=np.zeros((9, 40, 40, 3), np.uint8), labels=np.arange(9) % 3)
    asked = ("--model", "torch:by_corner:build", "--data", "npz:set.npz", *QUICK, "--full-size")
    assert "expected image files (folder:, csv:" in relook.refused("search", *asked, "yes").err
    relook.refused("search", *asked, "maybe")


def test_photos_for_a_large_model_choose_their_recipe(relook: Relook, photos: Path) -> None:
    tried = ("--recipe", "auto", "--size", "100", "--dry-run")
    done = relook.ok(*search(photos, "auto", *tried))
    assert "recipe imagenet: photos for a 100-pixel model (--recipe to choose)" in done.err
    assert "decoded 90 full-size images" in done.err
    assert (
        "colour images of 96 pixels" in relook.ok(*search(photos, "a", *tried, "--size", "96")).err
    )


def test_five_crops_are_the_corners_of_the_resized_image(photos: Path) -> None:
    wanted = Preparation((32, 32), 0.8, full_size=True, skip_bad=True, log=lambda _: None)
    images = load_data(f"folder:{photos}", wanted).images
    assert isinstance(images, FullImages)
    policy = BASELINES["5c"].policy(get_recipe("imagenet"), options=Options().for_images(images))
    chosen = np.array([0, 31, 62])
    made = [apply_subpolicy(sub, images[chosen], chosen, 0, 0) for sub in policy]
    for row, place in enumerate(chosen):
        image = images.picture(place)
        short = min(image.size)
        width, height = (40 if side == short else 40 * side // short for side in image.size)
        whole = image.resize((width, height), Image.Resampling.BICUBIC)
        right, bottom = whole.width - 32, whole.height - 32
        for view, (left, top) in zip(
            made[1:], ((0, 0), (right, 0), (0, bottom), (right, bottom)), strict=True
        ):
            expected = np.asarray(whole.crop((left, top, left + 32, top + 32)))
            np.testing.assert_array_equal(view[row].permute(1, 2, 0).numpy(), expected)
    assert len(policy) == len({view.numpy().tobytes() for view in made}) == 5


def test_an_exported_file_sees_what_was_searched(
    relook: Relook, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime alone, on the original photos: what `relook predict` says of their files."""
    pytest.importorskip("onnxruntime")
    relook.ok(*search(photos, "run"))
    policy = Policy.load(tmp_path / "run" / "policy.json")
    assert policy.preparation is not None
    assert policy.preparation.full_size
    out = tmp_path / "model.onnx"
    options = ("--method", "policy", "--layout", "nhwc", "--out", out)
    done = relook.ok("export", "run", *options)
    assert "photos of any size, uint8 RGB n × height × width × 3" in done.err
    assert "on 16 images" in done.err  # of those that were searched
    fixed = ("--full-size", "no", "--force")
    assert "uint8 images n × 32 × 32 × 3" in relook.ok("export", "run", *options, *fixed).err
    relook.ok("export", "run", *options, "--force")
    rows = ("predict", "run", "--method", "policy", "--data", f"folder:{photos}", "--skip-bad")
    relook.ok(*rows, "--out", "rows.json", "--top", "3")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    pytest.importorskip("fastapi")
    from service import Classifier  # type: ignore[import-not-found]

    classifier, sizes = Classifier(str(out)), set()
    for row in json.loads((tmp_path / "rows.json").read_text())[::6]:
        with Image.open(photos / row["file"]) as photo:
            sizes.add(photo.size)
            found = {one["class"]: one["probability"] for one in classifier.predict(photo, 3)}
        for one in row["classes"]:
            assert found[one["class"]] == pytest.approx(one["probability"], abs=1e-4)
    assert len(sizes) > 10
