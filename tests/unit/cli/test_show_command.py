import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import refused
from tests.unit.cli.command_line import relook
from tests.unit.report.example_run import example_policy, write_example_run, write_search
from torch import Tensor

from relook.cli.show import policy_summary, print_policy, temperatures_at
from relook.policy import Policy, Step, SubPolicy
from relook.report.pictures import policy_picture
from relook.transforms.centre_crop import CentreCrop
from relook.transforms.full_images import FullImages


def run(*words: object) -> str:
    result = relook(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def run_json(*words: object) -> Any:
    return json.loads(run(*words, "--json"))


def test_transforms_as_a_table() -> None:
    content = run_json("show", "transforms")
    assert content["picture"] is None
    assert content["transforms"]["rotate"]["values"]["45"] == 60
    assert content["transforms"]["invert"]["values"] is None


def test_a_run_shows_where_it_gains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relook.cli.shared.console.console._width", 120)
    text = run("show", write_example_run(tmp_path / "run"))
    assert "zero                     60  −0.0600 [−0.1000, −0.0200]" in text
    assert "1 too small to tell" in text
    assert "confusions it corrects (true class → answer): zero → one (4), one → two (3)" in text


def test_transforms_as_a_picture(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "transforms.png"
    assert run("show", "transforms", "--out", target).strip() == str(target)
    with Image.open(target) as picture:
        assert picture.format == "PNG"


def test_a_preset_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_json("show", "preset:flip")["views"] == 2
    assert run_json("show", "preset:crops?views=3")["entries"] == 3
    Image.new("RGB", (40, 40)).save("image.png")
    run("show", "preset:flip", "--image", "image.png")
    assert (tmp_path / "flip.png").is_file()
    refused("unknown preset 'flop'", run, "show", "preset:flop")


def test_a_policy_as_a_table(tmp_path: Path) -> None:
    policy = example_policy()
    policy.save(tmp_path / "policy.json")
    assert list(tmp_path.iterdir()) == [tmp_path / "policy.json"]
    assert run_json("show", tmp_path / "policy.json") == {
        **json.loads(json.dumps(policy_summary(policy))),
        "picture": None,
    }
    content = policy_summary(policy)
    assert (content["entries"], content["views"], content["draws"]) == (20, 11, "fixed")
    assert sum(entry["count"] for entry in content["subpolicies"]) == 20
    assert content["transforms"][0] == {
        "transform": "sharpness",
        "count": 8,
        "mean_magnitude": pytest.approx(4.3, abs=0.1),
    }


def test_both_temperatures_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    print_policy(replace(example_policy(), view_temperature=4.0))
    shown = capsys.readouterr().out
    assert "the view temperature, 4, makes each view's prediction flatter before views are" in shown
    print_policy(example_policy())
    assert "flatter" not in capsys.readouterr().out


def test_a_policy_drawn_on_an_image(tmp_path: Path) -> None:
    example_policy().save(tmp_path / "policy.json")
    Image.new("RGB", (60, 40), (10, 200, 30)).save(tmp_path / "photo.jpg")
    run("show", tmp_path / "policy.json", "--image", tmp_path / "photo.jpg")
    with Image.open(tmp_path / "policy.png") as picture:
        assert picture.width > 200


def test_a_run_draws_what_its_network_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_example_run(tmp_path / "run")
    Image.new("RGB", (60, 40), (10, 200, 30)).save(tmp_path / "photo.jpg")
    drawn: list[tuple[int, ...]] = []

    def picture(policy: Policy, images: Tensor | FullImages) -> Image.Image:
        drawn.append(tuple(images.shape))
        return policy_picture(policy, images)

    monkeypatch.setattr("relook.cli.show.policy_picture", picture)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    record["data"] = {}
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    words = "show", tmp_path / "run", "--image", tmp_path / "photo.jpg"
    assert run(*words, "--out", tmp_path / "views.png") == f"{tmp_path / 'views.png'}\n"
    record["data"] = {"shape": [1, 32, 32]}
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    run(*words)
    plan = CentreCrop((48, 48), 0.5, 3, every=True, full_size=True)
    replace(example_policy(), preparation=plan).save(tmp_path / "photos.json")
    run("show", tmp_path / "photos.json", "--image", tmp_path / "photo.jpg")
    assert drawn == [(1, 3, 19, 28), (1, 1, 32, 32), (1, 3, 48, 48)]


def test_temperatures_are_those_of_the_budgets() -> None:
    policy = example_policy()
    assert policy.temperatures is not None
    found = temperatures_at(policy)
    assert list(found) == [1, 2, 5, 10, 11]
    assert found[1] == policy.temperatures[0]
    assert found[11] == policy.temperatures[-1]
    assert temperatures_at(Policy((SubPolicy((Step("rotate", 3),)),))) == {}
    assert temperatures_at(Policy(())) == {}


def test_a_run(tmp_path: Path) -> None:
    write_example_run(tmp_path)
    content = run_json("show", tmp_path)
    assert content["policy"]["views"] == 11
    assert content["comparison"]["verdict"]["outcome"] == "helps"
    assert len(content["scores"]) == 20
    write_search(tmp_path / "unfinished", example_policy())
    content = run_json("show", tmp_path / "unfinished")
    assert (content["policy"], content["comparison"]) == (None, None)


@pytest.mark.parametrize("target", ["nowhere.json", "no\nwhere"])
def test_a_missing_target_is_one_line(target: str) -> None:
    refused("which does not exist", run, "show", target)


def test_a_report_is_written_and_named(tmp_path: Path) -> None:
    write_example_run(tmp_path)
    target = tmp_path / "elsewhere.html"
    assert run("report", tmp_path, "--out", target, "--no-figures").strip() == str(target)
    assert target.exists()
    assert not (tmp_path / "report.html").exists()
    assert not (tmp_path / "figures").exists()
    content = run_json("report", tmp_path, "--no-figures")
    assert content == {"page": str(tmp_path / "report.html"), "figures": []}
