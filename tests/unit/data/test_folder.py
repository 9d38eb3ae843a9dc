import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.support import refused
from tests.unit.data.image_files import (
    encoded,
    photo,
    png_that_declares,
    with_orientation,
    write_classes,
)

from relook.data import Preparation, as_dataset, load_data, read_groups
from relook.errors import RelookError, RelookWarning

HOSTILE = {
    "empty.jpg": b"",
    "cut.jpg": encoded(photo(), "JPEG")[:700],
    "cut.png": encoded(photo(), "PNG")[:-200],
    "notes.png": b"not an image",
    "bomb.png": png_that_declares(30_000, 30_000),
    "larger.png": png_that_declares(9_200, 9_100),
    "floats.tiff": encoded(Image.fromarray(np.zeros((40, 60), np.float32)), "TIFF"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_classes(tmp_path / "set", "cat", "dog", "Yak")
    return tmp_path / "set"


def test_the_folders_are_the_classes_and_the_files_the_images(root: Path) -> None:
    loaded = load_data(f"folder:{root}")
    assert loaded.classes == ("Yak", "cat", "dog")
    assert loaded.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert loaded.images.shape == (9, 3, 40, 60)
    assert loaded.columns["path"].tolist()[:4] == [
        "Yak/0.png",
        "Yak/1.png",
        "Yak/2.png",
        "cat/0.png",
    ]
    want = np.asarray(photo(seed=1)).transpose(2, 0, 1)
    np.testing.assert_array_equal(loaded.plain[4].numpy(), want)


def test_hidden_files_and_files_beside_the_classes_are_left_alone(root: Path) -> None:
    before = load_data(f"folder:{root}").fingerprint
    (root / "README").write_text("about the data")
    (root / ".cache").mkdir()
    (root / "cat" / ".DS_Store").write_bytes(b"\0\1")
    (root / "cat" / ".thumbs").mkdir()
    (root / "cat" / ".thumbs" / "0.png").write_bytes(b"")
    assert load_data(f"folder:{root}").fingerprint == before


def test_files_that_are_no_images_are_ignored_and_counted(root: Path) -> None:
    before = load_data(f"folder:{root}").fingerprint
    for name in ("notes.txt", "Thumbs.db", "cover.JSON", "clip.mp4"):
        (root / "cat" / name).write_bytes(b"something else")
    said: list[str] = []
    assert load_data(f"folder:{root}", Preparation(log=said.append)).fingerprint == before
    told = "4 files that are no images are ignored: Thumbs.db, clip.mp4, cover.JSON, …"
    assert said[0] == f"folder:{root}: {told}"
    with pytest.warns(RelookWarning, match="4 files that are no images are ignored"):
        load_data(f"folder:{root}")
    (root / "cat" / "photo.dat").write_bytes(encoded(photo(), "PNG"))
    assert len(load_data(f"folder:{root}", Preparation(log=said.append))) == 10, "an image inside"
    (root / "cat" / "cut.dat").write_bytes(encoded(photo(), "PNG")[:-200])
    plan = Preparation(log=said.append)
    refused("1 of 11 files .*cat/cut.dat: ", load_data, f"folder:{root}", plan)
    (root / "dog" / "photo.heic").write_bytes(b"a kind that Pillow cannot read")
    refused("1 of 12 files .*dog/photo.heic: ", load_data, f"folder:{root}", plan)


def test_a_class_of_other_files_only_holds_no_images(root: Path) -> None:
    (root / "emu").mkdir()
    (root / "emu" / "notes.txt").write_text("none yet")
    plan = Preparation(log=lambda line: None)
    refused(r"1 of 4 hold none \(emu\)", load_data, f"folder:{root}", plan)


def test_images_may_lie_deeper_and_classes_elsewhere(root: Path, tmp_path: Path) -> None:
    (root / "cat" / "more").mkdir()
    photo(seed=50).save(root / "cat" / "more" / "x.png")
    write_classes(tmp_path / "elsewhere", "owl", images=2)
    (root / "owl").symlink_to(tmp_path / "elsewhere" / "owl")
    (root / "cat" / "3.png").symlink_to(tmp_path / "elsewhere" / "owl" / "0.png")
    loaded = load_data(f"folder:{root}")
    assert np.bincount(loaded.labels).tolist() == [3, 5, 3, 2]


def test_grey_photos_among_coloured_ones_are_told(root: Path) -> None:
    said: list[str] = []
    photo(seed=51).convert("L").save(root / "cat" / "grey.png")
    load_data(f"folder:{root}", Preparation(log=said.append))
    assert f"folder:{root}: 1 grey image is read as colour" in said
    said.clear()
    load_data(f"folder:{root}", Preparation(channels=1, log=said.append))
    assert "read as colour" not in "".join(said)


def test_links_in_a_circle_are_harmless(root: Path) -> None:
    (root / "itself").symlink_to(root / "itself")
    (root / "cat" / "up").symlink_to(root)
    refused(r"1 of 10 files .*cat/up: it is not a file", load_data, f"folder:{root}")
    with pytest.warns(UserWarning, match="1 of 10 files skipped"):
        assert len(load_data(f"folder:{root}", Preparation(skip_bad=True))) == 9
    (root / "all").symlink_to(root)
    refused(r"all: expected a class of its own, got a link", load_data, f"folder:{root}")


def test_a_wrong_number_of_classes_is_said_before_anything_is_decoded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relook.data.image_files.read_heads", None)
    how = r"with classes \(--classes FILE\): one name per line, 10 lines"
    json = r', or JSON \{"NAME": INDEX, …\} for those in the data'
    says = f"got 3 in folder:.* and 10 from the model: .*{how}{json}"
    refused(says, as_dataset, root, outputs=10)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_named_or_skipped(root: Path, name: str) -> None:
    before = load_data(f"folder:{root}").fingerprint
    (root / "dog" / name).write_bytes(HOSTILE[name])
    refused(f"1 of 10 files .*dog/{name}: .*--skip-bad", load_data, f"folder:{root}")
    told: list[str] = []
    loaded = load_data(f"folder:{root}", Preparation(skip_bad=True, log=told.append))
    assert loaded.fingerprint == before
    assert any(f"dog/{name}: " in line for line in told)
    assert any("1 of 10 files skipped" in line for line in told)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("larger.png", "it declares 9100×9200, more than the allowed 80,000,000 pixels"),
        ("bomb.png", "it declares more than the allowed 80,000,000 pixels"),
        ("empty.jpg", "it is empty"),
        ("notes.png", "it is not an image"),
        ("cut.jpg", "truncated"),
    ],
)
def test_the_reason_is_said(root: Path, name: str, reason: str) -> None:
    (root / "dog" / name).write_bytes(HOSTILE[name])
    refused(f"{name}: .*{reason}", load_data, f"folder:{root}")


def test_all_hostile_files_are_counted_and_listed(root: Path) -> None:
    for name, content in HOSTILE.items():
        (root / "dog" / name).write_bytes(content)
    (root / "dog" / "pipe.jpg").unlink(missing_ok=True)
    os.mkfifo(root / "dog" / "pipe.jpg")
    told: list[str] = []
    loaded = load_data(f"folder:{root}", Preparation(skip_bad=True, log=told.append))
    assert len(loaded) == 9
    assert {Path(line.split(": ")[0]).name for line in told if line.startswith("  ")} == {
        *HOSTILE,
        "pipe.jpg",
    }


def test_nothing_but_hostile_files_is_an_error(root: Path) -> None:
    for path in root.glob("*/*.png"):
        path.write_bytes(encoded(photo(), "JPEG")[:700])
    refused("none of the 9 files", load_data, f"folder:{root}", Preparation(skip_bad=True))


def test_a_class_whose_files_are_all_bad_stays_a_class(root: Path) -> None:
    for path in (root / "cat").iterdir():
        path.write_bytes(b"")
    with pytest.warns(UserWarning, match="3 of 9 files skipped"):
        loaded = load_data(f"folder:{root}", Preparation(skip_bad=True))
    assert loaded.classes == ("Yak", "cat", "dog")
    assert loaded.labels.tolist() == [0, 0, 0, 2, 2, 2]


def test_empty_folders_are_named(root: Path) -> None:
    (root / "emu").mkdir()
    (root / "gnu\nnew").mkdir()
    refused(r"2 of 5 hold none \(emu, 'gnu\\nnew'\)", load_data, f"folder:{root}")


def test_a_folder_without_classes_is_refused(root: Path, tmp_path: Path) -> None:
    refused("at least two, got 0 folders and 3 other entries", load_data, f"folder:{root / 'cat'}")
    refused("No such file or directory", load_data, f"folder:{tmp_path / 'none'}")


def test_names_that_break_lines_are_written_on_one(tmp_path: Path) -> None:
    write_classes(tmp_path / "set", "a\nb", "<script>alert(1)</script>".replace("/", "∕"))
    (tmp_path / "set" / "a\nb" / "x\ny.png").write_bytes(b"")
    refused(".", load_data, f"folder:{tmp_path / 'set'}")
    (tmp_path / "set" / "a\nb" / "x\ny.png").unlink()
    (tmp_path / "set" / os.fsdecode(b"\xff\xfe")).mkdir()
    photo().save(tmp_path / "set" / os.fsdecode(b"\xff\xfe") / "0.png")
    loaded = load_data(f"folder:{tmp_path / 'set'}")
    assert all(name.isprintable() for name in loaded.classes)
    assert len(loaded.classes) == 3


def test_sizes_that_differ_need_a_size(root: Path) -> None:
    photo(30, 30).save(root / "cat" / "small.png")
    refused(r"2 sizes from 30×30 to 40×60 .*give a size", load_data, f"folder:{root}")
    told: list[str] = []
    loaded = load_data(f"folder:{root}", Preparation(size=(28, 28), log=told.append))
    assert loaded.images.shape == (10, 3, 28, 28)
    assert told == [
        f"folder:{root}: 10 images of 3×28×28 (resized, bicubic; the centre crop keeps 0.875), "
        "23.5 kB"
    ]


def test_more_than_half_of_the_memory_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relook.data.prepare.half_of_memory", lambda: 9 * 3 * 40 * 60 - 1)
    refused(r"9 images of 3×40×60 take 0\.0 GB, more than half", load_data, f"folder:{root}")


def test_progress_is_told(root: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    load_data(f"folder:{root}", Preparation(progress=lambda *call: calls.append(call)))
    assert [call[1:] for call in calls] == [(i, 9) for i in range(1, 10)] * 2


SAMPLES = {
    "a.jpg": with_orientation(photo(), 6),
    "b.png": encoded(photo().convert("P"), "PNG"),
    "c.webp": encoded(photo(), "WEBP", lossless=True),
    "d.gif": encoded(photo().convert("P"), "GIF"),
    "e.tiff": encoded(photo(), "TIFF", compression="tiff_lzw"),
    "f.bmp": encoded(photo(), "BMP"),
}


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None
)
@given(data=st.data())
def test_damaged_files_are_read_skipped_or_named(tmp_path: Path, data: st.DataObject) -> None:
    root = tmp_path / "damaged"
    if not root.exists():
        write_classes(root, "cat", "dog", images=1)
    name = data.draw(st.sampled_from(sorted(SAMPLES)))
    content = bytearray(SAMPLES[name])
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, min(len(content), 400) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path = root / "cat" / name
    path.write_bytes(content[: data.draw(st.sampled_from([None, *range(0, len(content), 211)]))])
    wanted = Preparation(size=(16, 16))
    message, told = "", list[str]()
    try:
        load_data(f"folder:{root}", wanted)
    except RelookError as error:
        message = str(error)
    kept = load_data(f"folder:{root}", replace(wanted, skip_bad=True, log=told.append))
    path.unlink()
    assert "\n" not in message
    assert len(kept) == (2 if message else 3)
    assert (name in message) == (name in "".join(told)) == bool(message)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for i in range(4):
        photo(seed=i).save(tmp_path / "images" / f"{i}.png")
    path = tmp_path / "table.csv"
    path.write_text(
        "path,label,group,age\n"
        "images/0.png,dog,p1,30\n"
        f"{tmp_path}/images/1.png,cat,p1,40\n"
        '"images/2.png","dog","p 2",50\n'
        "\n"
        "images/3.png, cat ,p3,60\n"
    )
    return path


def test_a_table_names_images_labels_and_more(table: Path) -> None:
    loaded = load_data(f"csv:{table}")
    assert loaded.classes == ("cat", "dog")
    assert loaded.labels.tolist() == [1, 0, 1, 0]
    assert read_groups("group", loaded).tolist() == ["p1", "p1", "p 2", "p3"]
    assert loaded.columns["age"].tolist() == ["30", "40", "50", "60"]
    for i in range(4):
        want = np.asarray(photo(seed=i)).transpose(2, 0, 1)
        np.testing.assert_array_equal(loaded.plain[i].numpy(), want)


def test_numbers_are_the_models_own_labels(table: Path) -> None:
    table.write_text("label,path\n10,images/0.png\n2,images/1.png\n")
    loaded = load_data(f"csv:{table}")
    assert loaded.labels.tolist() == [10, 2]
    assert loaded.classes == tuple(map(str, range(11)))


def test_columns_follow_the_images_that_are_kept(table: Path) -> None:
    (table.parent / "images" / "1.png").write_bytes(b"")
    with pytest.warns(UserWarning, match="1 of 4 files skipped"):
        loaded = load_data(f"csv:{table}", Preparation(skip_bad=True))
    assert loaded.columns["age"].tolist() == ["30", "50", "60"]
    assert loaded.labels.tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "first line with path,label.*got nothing"),
        ("images/0.png,dog\n", "got images/0.png,dog"),
        ("path,label,path\na,b,c\n", "each once"),
        ("path,label\n", "only the heading"),
        ("path,label\nimages/0.png\n", "line 2: expected 2 cells, got 1"),
        ("path,label\nimages/0.png,cat\nimages/1.png,dog,x\n", "line 3: expected 2 cells, got 3"),
        ("path,label\nimages/0.png,\n", "image 1 has none"),
        ("path,label\nimages/0.png,cat\nimages/none.png,dog\n", "none.png: there is no such file"),
        ("path,label\nimages/0.png,cat\nimages,dog\n", "images: it is not a file"),
        ("path,label\nimages/0.png,cat\n,dog\n", "it is not a file"),
        ("path,label\nimages/0.png,0\nimages/1.png,999999999\n", "labels below 1000000"),
        ('path,label\n"images/0.png,cat\n', "expected a CSV table"),
        ("path,label\nimages/0.png,cat\nimages/1.png,cat\n", "at least two classes"),
        ("path,label\n" + "a" * 5000 + ",cat\nimages/1.png,dog\n", "File name too long"),
        ("path,label\na\0b,cat\nimages/1.png,dog\n", "there is no such file"),
    ],
)
def test_a_table_that_does_not_fit_gets_one_line(table: Path, content: str, message: str) -> None:
    table.write_text(content)
    refused(message, load_data, f"csv:{table}")
