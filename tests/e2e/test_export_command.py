"""`relook export` as a user's shell runs it, and the service that serves its file."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.e2e.conftest import SMALL, Relook, Words

import relook as package
from relook.data import load_data
from relook.models import load_model
from relook.models.onnx_runtime import is_installed, open_session
from relook.policy import Policy, Step, SubPolicy

pytestmark = pytest.mark.skipif(not is_installed(), reason="onnx or onnxruntime is not installed")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    steps = Step("rotate", 6, draws={"sign": 1}), Step("contrast", 5, -1)
    found = Policy((SubPolicy(steps), SubPolicy(), SubPolicy(steps)), temperatures=(1.0, 1.2, 1.1))
    found.save(tmp_path / "policy.json")
    return tmp_path / "policy.json"


def test_a_file_comes_out_that_gives_ttas_predictions(
    relook: Relook, sources: Words, model: str, data: str, policy: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model.onnx"
    done = relook.ok("export", policy, *sources, "--out", out, "--json")
    report = json.loads(done.out)
    assert report["views"] == 2
    assert report["check"]["images"] == 16
    assert not report["check"]["generated"]
    assert report["check"]["max_difference"] < 1e-5
    images = load_data(data).images[20:45]
    assert isinstance(images, torch.Tensor)
    found = open_session(out.read_bytes()).run(None, {"images": images.numpy()})[0]
    wanted = package.TTA(load_model(model), policy)(images)
    assert np.allclose(found, wanted, atol=1e-5)

    again = relook.refused("export", "-m", model, "-p", policy, "-d", data, "--out", out)
    assert "exists" in again.err


def test_generated_images_serve_where_none_are_given(
    relook: Relook, model: str, policy: Path, tmp_path: Path
) -> None:
    common = ("export", "-m", model, "-p", policy, "--channels", 1)
    done = relook.ok(*common, "--size", 28, "--out", tmp_path / "a.onnx", "--layout", "nhwc")
    assert "uint8 images n × 28 × 28 × 1" in done.err
    assert "8 generated images" in done.err
    *_, given, returned = done.err.splitlines()
    assert given.startswith("input: uint8 images n × 28 × 28 × 1")
    assert returned.startswith("output: probabilities of ")
    assert "give size" in relook.refused(*common, "--out", tmp_path / "b.onnx").err


def test_a_runs_own_images_are_checked_on(
    relook: Relook, model: str, data: str, tmp_path: Path
) -> None:
    digits, folder, run = load_data(data), tmp_path / "digits", tmp_path / "run"
    for place in range(40):
        (folder / str(digits.labels[place])).mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(digits.plain[place, 0].numpy())
        image.save(folder / str(digits.labels[place]) / f"{place}.png")
    quick = ("--pool-size", 3, "--length", 1)
    relook.ok("search", "-m", model, "-d", f"folder:{folder}", "--out", run, *quick)
    done = relook.ok("export", run, "--method", "policy", "--out", tmp_path / "a.onnx", "--json")
    check = json.loads(done.out)["check"]
    assert (check["images"], check["generated"]) == (16, False)
    folder.rename(tmp_path / "elsewhere")
    done = relook.ok("export", run, "--method", "policy", "--out", tmp_path / "b.onnx")
    assert "cannot be read here: the file is verified on generated images" in done.err
    assert f"{folder}: expected a folder of images, got no folder" in done.err


def test_a_policy_without_temperature_says_what_to_do(
    relook: Relook, model: str, data: str, tmp_path: Path
) -> None:
    fresh = tmp_path / "fresh.json"
    Policy((SubPolicy((Step("rotate", 6),)),), temperatures=(1.3,)).save(fresh)
    given = ("export", "-m", model, "-p", fresh, "-d", data, "--seed", 4)
    assert "relook calibrate" in relook.refused(*given, "--out", tmp_path / "m.onnx").err
    done = relook.ok(*given, "--out", tmp_path / "m.onnx", "--temperature", "1.7", "--json")
    assert json.loads(done.out)["temperature"] == 1.7


def test_a_run_brings_its_model_and_size(relook: Relook, sources: Words, tmp_path: Path) -> None:
    run = tmp_path / "run"
    relook.ok("search", *sources, *SMALL, "--out", run)
    assert "of 1 view " in relook.ok("export", run, "--views", 1, "--out", tmp_path / "m.onnx").err


def test_the_service_answers_with_classes(
    relook: Relook, model: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    names = tmp_path / "classes.txt"
    names.write_text("\n".join(f"digit {i}" for i in range(10)))
    out = tmp_path / "model.onnx"
    options = ("--size", 28, "--channels", 1, "--classes", names, "--layout", "nhwc")
    relook.ok("export", "-m", model, "-p", policy, "--out", out, *options)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    from fastapi.testclient import TestClient
    from service import make_app  # type: ignore[import-not-found]

    picture, levels = io.BytesIO(), load_data("digits").images[3:4]
    assert isinstance(levels, torch.Tensor)
    image = Image.fromarray(levels[0, 0].numpy()).resize((28, 28))
    image.save(picture, "PNG")
    with TestClient(make_app(str(out))) as client:
        answer = client.post("/predict?top=3", content=picture.getvalue())
        assert answer.status_code == 200
        assert client.post("/predict", content=b"no image").status_code == 422
        assert "1.1" in client.get("/about").json()["temperature"]
    best = answer.json()
    wanted = package.TTA(load_model(model), policy)(torch.from_numpy(np.array(image)[None, None]))
    assert best[0]["class"] == f"digit {int(wanted.argmax())}"
    assert best[0]["probability"] == pytest.approx(float(wanted.max()), abs=1e-5)
    assert len(best) == 3
