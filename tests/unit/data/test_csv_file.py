from pathlib import Path

import numpy as np
import pytest
from tests.support import refused
from tests.unit.data.image_files import photo

from relook.data import Preparation, load_data, read_groups


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
        ("path,label\n", "heading alone"),
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
