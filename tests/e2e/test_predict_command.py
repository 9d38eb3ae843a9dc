import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.e2e.conftest import SMALL, Relook, Words

from relook.data import load_data
from relook.foundation.wording import views_text
from relook.policy import Policy, Step, SubPolicy
from relook.policy.pool import sample_pool
from relook.transforms.centre_crop import CentreCrop


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    root = tmp_path / "pictures"
    root.mkdir()
    for i, digit in enumerate(load_data("digits").plain[:12].numpy()):
        Image.fromarray(digit[0]).save(root / f"{i:02d}.png")
    return root


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.json"
    Policy(sample_pool("small", 5, 0)[:3], temperatures=(1.0, 1.1, 1.2), recipe="small").save(path)
    return path


def test_a_folder_of_images(
    relook: Relook, model: str, policy: Path, pictures: Path, tmp_path: Path
) -> None:
    names = tmp_path / "names.txt"
    names.write_text("\n".join(f"digit {i}" for i in range(10)))
    out = tmp_path / "out.csv"
    common = ("predict", policy, "--model", model, "--data", f"folder:{pictures}")
    done = relook.ok(*common, "--out", out, "--classes", names, "--views", 2, "--top", 3)
    assert "12 images of 1×32×32, 2 views each" in done.err
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len(rows) == 12
    assert rows[0]["class_3"].startswith("digit ")
    assert "--force" in relook.refused(*common, "--out", out).err


def test_bad_files_end_in_a_list(
    relook: Relook, model: str, policy: Path, pictures: Path, tmp_path: Path
) -> None:
    (pictures / "note.png").write_text("no image")
    (pictures / "deeper").mkdir()
    (pictures / "deeper" / "notes.txt").write_text("no image, nor called one")
    out = tmp_path / "out.json"
    common = ("predict", "-m", model, "-p", policy, "-d", pictures, "-o", out)
    assert "--skip-bad" in relook(*common).err
    done = relook(*common, "--skip-bad", "--json")
    assert json.loads(done.out)["bad"][0]["file"] == "note.png"
    assert len(json.loads(done.out)["bad"]) == 1
    assert "skipped: note.png" in done.err
    assert "1 file that is no image is ignored: notes.txt" in done.err
    assert len(json.loads(out.read_text())) == 12


def test_a_run_brings_its_model_and_names(
    relook: Relook, sources: Words, data: str, pictures: Path, tmp_path: Path
) -> None:
    run, out = tmp_path / "run", tmp_path / "out.csv"
    relook.ok("search", *sources, *SMALL, "--out", run)
    done = relook.ok("predict", run, "--data", pictures, "--out", out)
    assert len(out.read_text().splitlines()) == 13
    advice = json.loads((run / "comparison.json").read_text())["verdict"]
    whole = advice["recommended_method"] == "gps" and advice["recommended_views"] == 2
    assert "as the verdict recommends" in done.err
    assert ("; --method policy takes the whole policy" in done.err) != whole
    assert f"1×32×32, {views_text(advice['recommended_views'])} each" in done.err
    common = ("predict", run, "--data", pictures, "--out", out, "--force")
    told = relook.ok(*common, "--method", "plain")
    assert "recommends" not in told.err
    assert "1×32×32, 1 view each" in told.err
    assert "unknown method 'flop'" in relook.refused(*common, "--method", "flop").err
    other = relook.ok(*common, "--policy", "preset:d4")
    assert "8 views each" in other.err
    assert "preset:d4 is not calibrated" in other.err
    relook.ok("calibrate", run, "--data", data, "--reuse-images")
    assert (run / "policy.calibrated.json").exists()
    nothing = relook.refused("calibrate", *sources)
    assert "expected RUN, the directory of a search or a policy file" in nothing.err


def test_a_preset_is_calibrated_and_used(
    relook: Relook, sources: Words, model: str, pictures: Path, tmp_path: Path
) -> None:
    calibrated, out = tmp_path / "flip.json", tmp_path / "out.csv"
    relook.ok("calibrate", "preset:flip", *sources, "--out", calibrated)
    assert Policy.load(calibrated).temperatures is not None
    assert Policy.load(calibrated).subpolicies == Policy.preset("flip").subpolicies
    done = relook.ok("predict", calibrated, "-m", model, "-d", pictures, "-o", out)
    assert "2 views each" in done.err
    wrong = ("predict", "preset:flop", "-m", model, "-d", pictures, "-o", tmp_path / "no.csv")
    assert "unknown preset 'flop'" in relook.refused(*wrong).err


def test_a_policy_alone_prepares_images_as_its_search_did(
    relook: Relook, model: str, pictures: Path, tmp_path: Path
) -> None:
    for i, path in enumerate(sorted(pictures.iterdir())):
        (pictures.parent / "set" / str(i % 2)).mkdir(parents=True, exist_ok=True)
        path.rename(pictures.parent / "set" / str(i % 2) / path.name)
    data, run = f"folder:{pictures.parent / 'set'}", tmp_path / "run"
    names = tmp_path / "names.txt"
    names.write_text("\n".join(map(str, range(10))))
    how = ("--crop", 0.6, "--split", "6:6", "--classes", names, *SMALL)
    relook.ok("search", "--model", model, "--data", data, "--out", run, *how)
    policy = Policy.load(run / "policy.json")
    assert policy.preparation == CentreCrop((32, 32), 0.6, 1, every=True)
    (tmp_path / "moved").mkdir()
    policy.save(tmp_path / "moved" / "policy.json")
    written = []
    for name in (run, tmp_path / "moved" / "policy.json"):
        out = tmp_path / f"{name.name}.csv"
        sources = ("--model", model, "--data", data)
        done = relook.ok("predict", name, "--method", "policy", *sources, "--out", out)
        assert "the centre crop keeps 0.6" in done.err
        written.append(out.read_text())
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--temperature", "hot"), "--temperature: expected policy, none or a number"),
        (("--draws", "many"), "'fixed' or 'fresh'"),
        (("--size", "64x64x3"), "--size"),
        (("--model", "nothing@x"), "unknown model source"),
    ],
)
def test_wrong_options_are_one_line(
    relook: Relook, model: str, policy: Path, pictures: Path, options: Words, message: str
) -> None:
    given = ("--model", model) if "--model" not in options else ()
    sources = (*given, "-p", policy, "-d", pictures)
    done = relook.refused("predict", *sources, "-o", pictures.parent / "o.csv", *options)
    assert message in done.err
    assert len(done.err.strip().splitlines()) <= 2


def test_an_uncalibrated_policy_names_the_way_out(
    relook: Relook, model: str, pictures: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.json"
    Policy(sample_pool("small", 5, 0)[:2], recipe="small").save(bare)
    common = ("predict", "-m", model, "-p", bare, "-d", pictures, "-o", tmp_path / "out.csv")
    assert "relook calibrate" in relook(*common).err
    relook.ok(*common, "--temperature", "none")


def test_arrays_can_be_predicted_too(
    relook: Relook, model: str, policy: Path, data: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    relook.ok("predict", "-m", model, "-p", policy, "-d", data, "-o", out, "--top", 1)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["file"] for row in rows] == [str(i) for i in np.arange(240)]
    np.savez(tmp_path / "bare.npz", images=load_data(data).plain.numpy())
    bare, again = f"npz:{tmp_path / 'bare.npz'}", tmp_path / "again.csv"
    relook.ok("predict", "-m", model, "-p", policy, "-d", bare, "-o", again, "--top", 1)
    assert again.read_bytes() == out.read_bytes()


def test_crops_are_cut_from_the_originals_as_in_a_search(
    relook: Relook, model: str, pictures: Path, tmp_path: Path
) -> None:
    for path in pictures.iterdir():
        with Image.open(path) as image:
            image.resize((80, 72)).save(path)
    draws = {"area": 0.5, "aspect": 0.5, "x": 0.2, "y": 0.8}
    path = tmp_path / "crops.json"
    Policy((SubPolicy((Step("scale_crop", 20, draws=draws),)),), temperatures=(1.0,)).save(path)
    common = ("predict", "-m", model, "-p", path, "-d", pictures, "--size", 32)
    assert "crops cut from the originals" in relook.ok(*common, "-o", tmp_path / "full.csv").err
    small = relook(*common, "-o", tmp_path / "small.csv", "--full-size", "no")
    assert "crops cut from the originals" not in small.err
    assert (tmp_path / "full.csv").read_text() != (tmp_path / "small.csv").read_text()
