import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.support import refused
from tests.unit.deploy.exit_cases import some_rule
from tests.unit.deploy.tta_cases import fixed_policy, network, some_images

from relook.data import Preparation, load_data
from relook.deploy import TTA
from relook.deploy.batch import image_source
from relook.deploy.batch.image_source import ImageSource, open_source
from relook.deploy.batch.prediction import (
    EXIT_FIGURES,
    FIGURES,
    Prediction,
    columns,
    predict_source,
    write_predictions,
)
from relook.errors import FileFormatError, install_command
from relook.models import as_predictor
from relook.numerics.calibration import mean_log_probs, temper
from relook.policy import Policy, Step, SubPolicy
from relook.predictions.passes import View, predict_views

COUNT = 21
_DRAWS = {"area": 0.5, "aspect": 0.3, "x": 0.2, "y": 0.7}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images at two depths, a hidden file, and two files that are no images."""
    root = tmp_path / "pictures"
    for i, levels in enumerate(some_images(COUNT).numpy()):
        path = root / ("flat" if i % 2 else "deep/er") / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.moveaxis(levels, 0, 2)).save(path)
    (root / ".hidden.png").write_bytes(b"")
    return root


def opened(folder: Path, **options: object) -> ImageSource:
    source = open_source(f"folder:{folder}", Preparation(**options))  # type: ignore[arg-type]
    return replace(source, block=4)


def predict(folder: Path, out: Path, **options: object) -> Path:
    skip = bool(options.pop("skip_bad", False))
    tta = TTA(network(), fixed_policy(), classes=tuple("abcdefg"))
    source = opened(folder, skip_bad=skip)
    predict_source(tta, source, out, model="m", skip_bad=skip, **options)  # type: ignore[arg-type]
    return out


def test_the_rows_are_the_module_s_predictions(folder: Path, tmp_path: Path) -> None:
    out = predict(folder, tmp_path / "out.csv", top=2)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert list(rows[0]) == columns(2)
    assert [row["file"] for row in rows] == sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("[0-9]*.png")
    )
    tta = TTA(network(), fixed_policy(), classes=tuple("abcdefg"))
    places = [int(Path(row["file"]).stem) for row in rows]
    images = some_images(COUNT)[places]
    probabilities, unsure = tta.predict_proba(images), tta.uncertainty(images)
    for i, row in enumerate(rows):
        best, second = np.sort(probabilities[i])[::-1][:2]
        assert row["class_1"] == tta.predict(images[i : i + 1])[0]
        assert float(row["probability_1"]) == pytest.approx(best, abs=1e-5)
        assert float(row["probability_2"]) == pytest.approx(second, abs=1e-5)
        assert float(row["entropy"]) == pytest.approx(unsure.entropy[i], abs=1e-5)
        before = float(row["uncalibrated_entropy"])
        assert before == pytest.approx(unsure.predictive_entropy[i], abs=1e-5)
        information = float(row["uncalibrated_mutual_information"])
        assert information == pytest.approx(unsure.mutual_information[i], abs=1e-5)


def test_an_early_exit_tells_how_many_views_each_image_got(folder: Path, tmp_path: Path) -> None:
    policy = fixed_policy()
    first = TTA(network(), policy, views=1, temperature=1.0).predict_proba(some_images(COUNT))
    rule = some_rule(policy, (float(np.median(first.max(axis=1))), 1.0, 1.0, 1.0))
    tta = TTA(network(), policy, early_exit=rule)
    source = opened(folder)
    predict_source(tta, source, tmp_path / "out.json", model="m", top=1)
    rows = json.loads((tmp_path / "out.json").read_text())
    places = [int(Path(name).stem) for name in source.names]
    exited = tta.exit_early(some_images(COUNT)[places])
    assert [row["views"] for row in rows] == exited.views.tolist()
    assert set(exited.views.tolist()) == {1, 5}
    assert list(rows[0]) == ["file", "classes", "entropy", "views"]
    found = [row["classes"][0]["probability"] for row in rows]
    np.testing.assert_allclose(found, np.exp(exited.log_probs.max(axis=1)), atol=1e-5)


def test_crops_are_cut_from_full_size_files_as_in_a_search(tmp_path: Path) -> None:
    root = tmp_path / "large"
    for i, levels in enumerate(some_images(8, side=90).numpy()):
        (root / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        shown = np.moveaxis(levels[:, : 60 + i], 0, 2)
        Image.fromarray(shown).resize((240 - i, 170)).save(root / "ab"[i % 2] / f"{i}.png")
    wanted = Preparation(size=(32, 32), full_size=True)
    crops = [SubPolicy((Step("scale_crop", m, draws=_DRAWS),)) for m in (10, 25)]
    policy = Policy((SubPolicy(), *crops), temperatures=(1.0, 1.0, 1.2))
    tta = TTA(network(), policy, size=32)
    source = open_source(f"folder:{root}", wanted)
    assert "cut from the originals" in source.prepared
    predict_source(tta, source, tmp_path / "out.json", model="m", top=1)
    rows = json.loads((tmp_path / "out.json").read_text())
    dataset = load_data(f"folder:{root}", wanted)
    views = [View(sub, i) for i, sub in enumerate(policy)]
    log_probs = predict_views(as_predictor(network()), dataset.images, views, seed=0)
    expected = np.exp(temper(mean_log_probs(log_probs), 1.2)).max(axis=1)
    found = [row["classes"][0]["probability"] for row in rows]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(tta.predict_proba(dataset.images).max(axis=1), expected, atol=1e-5)
    small = tta.predict_proba(dataset.plain).max(axis=1)  # crops of the input: other views
    assert np.abs(small - expected).max() > 1e-3


@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_interrupted_run_ends_in_the_same_file(folder: Path, tmp_path: Path, after: int) -> None:
    whole = predict(folder, tmp_path / "whole.csv")
    seen: list[int] = []

    def stop(done: int, total: int) -> None:
        if len(seen) == after:
            raise KeyboardInterrupt
        seen.append(done)

    out = tmp_path / "out.csv"
    with pytest.raises(KeyboardInterrupt):
        predict(folder, out, progress=stop)
    assert not out.exists()
    calls: list[int] = []
    predict(folder, out, progress=lambda done, total: calls.append(done))
    assert calls[0] == 4 * max(0, after - 1) + 4 * (after > 0)
    assert out.read_bytes() == whole.read_bytes()
    assert not (tmp_path / "out.csv.unfinished").exists()


def test_another_question_does_not_go_on_from_here(folder: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict(folder, tmp_path / "out.csv", progress=stop)
    refused("top: 5 there, 3 here", predict, folder, tmp_path / "out.csv", top=3)
    exits = TTA(network(), fixed_policy(), early_exit=some_rule(fixed_policy(), (0.5,) * 4))
    refused("early_exit", predict_source, exits, opened(folder), tmp_path / "out.csv", model="m")
    next(folder.rglob("[0-9]*.png")).touch()
    refused("images", predict, folder, tmp_path / "out.csv")


def test_bad_files_are_listed(folder: Path, tmp_path: Path) -> None:
    (folder / "=cmd.png").write_bytes(b"no image")
    cut = (folder / "flat" / "01.png").read_bytes()
    (folder / "flat" / "cut.png").write_bytes(cut[: len(cut) // 2])  # its head is sound
    with pytest.raises(FileFormatError, match=r"1 of 23 files .*--skip-bad"):
        predict(folder, tmp_path / "out.csv")
    out = predict(folder, tmp_path / "out.csv", skip_bad=True)
    bad = list(csv.reader((tmp_path / "out.csv.bad.csv").read_text().splitlines()))
    assert [row[0] for row in bad] == ["file", "'=cmd.png", "flat/cut.png"]
    assert len(out.read_text().splitlines()) == COUNT + 1


def test_a_file_that_turns_out_bad_stops_a_run_that_can_go_on(folder: Path, tmp_path: Path) -> None:
    cut = (folder / "flat" / "01.png").read_bytes()
    (folder / "flat" / "cut.png").write_bytes(cut[: len(cut) // 2])
    with pytest.raises(FileFormatError, match=r"flat/cut.png cannot be read .*--skip-bad"):
        predict(folder, tmp_path / "out.csv")
    calls: list[int] = []
    predict(folder, tmp_path / "out.csv", skip_bad=True, progress=lambda d, t: calls.append(d))
    assert calls[0] > 0


def test_an_existing_file_stays(folder: Path, tmp_path: Path) -> None:
    out = predict(folder, tmp_path / "out.csv")
    refused("--force", predict, folder, out)
    predict(folder, out, force=True)


def test_fresh_draws_belong_to_an_image_s_place(folder: Path, tmp_path: Path) -> None:
    fresh = Policy((SubPolicy((), Step("crop_flip", 4)),), temperatures=(1.0,), recipe="cifar")
    tta = TTA(network(), fresh, draws="fresh")
    source = opened(folder)
    predict_source(tta, source, tmp_path / "out.json", model="m", top=1)
    rows = json.loads((tmp_path / "out.json").read_text())
    places = [int(Path(name).stem) for name in source.names]
    expected = tta.predict_proba(some_images(COUNT)[places]).max(axis=1)
    found = [row["classes"][0]["probability"] for row in rows]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_files_are_decoded_only_a_little_ahead(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_files: list[Path] = []
    decode = image_source._decode

    def counted(read: object, plan: object, path: Path) -> object:
        opened_files.append(path)
        return decode(read, plan, path)  # type: ignore[arg-type]

    monkeypatch.setattr(image_source, "_decode", counted)
    monkeypatch.setattr("relook.data.decode._IN_FLIGHT", 1)
    monkeypatch.setattr("relook.data.decode._MOST_THREADS", 2)
    source = opened(folder)
    next(source.read(source.ranges()))
    assert len(opened_files) <= 4 + 2 + 2


def test_a_list_of_files_and_a_single_file(folder: Path, tmp_path: Path) -> None:
    names = [str(path) for path in sorted(folder.rglob("[0-9]*.png"))[:3]]
    listing = tmp_path / "list.txt"
    listing.write_text("\n".join(names) + "\n\n")
    assert list(open_source(f"files:{listing}", Preparation()).names) == names
    assert list(open_source(names[0], Preparation()).names) == names[:1]
    assert len(open_source(str(folder), Preparation()).names) == COUNT


def test_a_folder_may_be_a_link_as_where_it_is_a_class(folder: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in ("flat", "deep"):
        (linked / name).symlink_to(folder / name)
    (linked / ".hidden").symlink_to(folder)
    assert open_source(f"folder:{linked}", Preparation()).names == opened(folder).names
    (linked / "again").symlink_to(linked)
    (linked / "above").symlink_to(tmp_path)
    (folder / "flat" / "elsewhere").symlink_to(folder / "deep")
    assert open_source(f"folder:{linked}", Preparation()).names == opened(folder).names


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("folder:{}/nothing", "expected a folder of images"),
        ("files:{}/nothing", "expected a text file with one path per line"),
        ("nonsense:{}", "expected|unknown"),
        ("folder:{}", "expected image files, got none"),
    ],
)
def test_what_is_not_there_is_told(spec: str, message: str, tmp_path: Path) -> None:
    refused(message, open_source, spec.format(tmp_path), Preparation())


ROWS = [
    Prediction("=1+1.png", ("+cat", "dog"), (0.75, 0.25), dict.fromkeys(FIGURES, 0.5)),
    Prediction("b, c.png", ("dog", "+cat"), (0.625, 0.375), dict.fromkeys(FIGURES, 0.25)),
]


def test_csv_holds_no_formulas(tmp_path: Path) -> None:
    write_predictions(tmp_path / "out.csv", ROWS, 2)
    rows = list(csv.reader((tmp_path / "out.csv").read_text().splitlines()))
    assert rows[1] == ["'=1+1.png", "'+cat", "0.75", "dog", "0.25", "0.5", "0.5", "0.5"]
    assert rows[2][0] == "b, c.png"


def test_parquet_holds_the_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    write_predictions(tmp_path / "out.parquet", ROWS, 2)
    table = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert list(table[0]) == columns(2)
    assert table[0]["file"] == "=1+1.png"
    assert [row["class_1"] for row in table] == ["+cat", "dog"]
    assert [row["probability_2"] for row in table] == [0.25, 0.375]
    row = Prediction("a.png", ("dog",), (1.0,), dict(zip(EXIT_FIGURES, (0.5, 3), strict=True)))
    write_predictions(tmp_path / "out.parquet", [row], 1, EXIT_FIGURES)
    whole = parquet.read_table(tmp_path / "out.parquet")
    assert str(whole.schema.field("views").type) == "int64"
    assert whole.to_pylist()[0]["views"] == 3


def test_parquet_without_pyarrow_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    refused(
        re.escape(install_command("parquet")), write_predictions, tmp_path / "out.parquet", ROWS, 2
    )


def test_other_endings_are_unknown(tmp_path: Path) -> None:
    refused(r"'.xlsx'", write_predictions, tmp_path / "out.xlsx", ROWS, 2)


def test_nothing_half_written_has_the_final_name(tmp_path: Path) -> None:
    def rows() -> object:
        yield ROWS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_predictions(tmp_path / "out.csv", rows(), 2)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
