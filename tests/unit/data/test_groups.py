import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support import refused

from relook.data import Dataset, read_groups

IDS = ["a", "a", "b", "c"]


@pytest.fixture
def dataset() -> Dataset:
    return Dataset(
        torch.zeros(4, 1, 8, 8, dtype=torch.uint8),
        np.array([0, 1, 0, 1]),
        ("no", "yes"),
        "scans",
        groups=np.array([7, 7, 8, 9]),
        columns={"patient": np.array(IDS), "age": np.linspace(20, 50, 4)},
    )


def test_groups_come_from_a_column(dataset: Dataset) -> None:
    assert read_groups("groups", dataset).tolist() == [7, 7, 8, 9]
    assert read_groups("patient", dataset).tolist() == IDS


@pytest.mark.parametrize("content", ["a\na\nb\nc\n", "a\na\nb\nc", "\ufeffa\r\na\r\n b \r\nc\r\n"])
def test_groups_come_from_a_text_file(dataset: Dataset, tmp_path: Path, content: str) -> None:
    path = tmp_path / "ids.txt"
    path.write_bytes(content.encode())
    assert read_groups(str(path), dataset).tolist() == IDS


def test_groups_come_from_a_column_of_a_table(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "scans.csv"
    path.write_text('file,patient\n"one, two",a\n2,a\n3,b\n4,c\n')
    assert read_groups(f"{path}?column=patient", dataset).tolist() == IDS


def test_groups_come_from_an_npy_file(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "ids.npy"
    np.save(path, np.array([3, 3, 4, 5]))
    assert read_groups(str(path), dataset).tolist() == [3, 3, 4, 5]


@pytest.mark.parametrize(
    ("content", "option", "message"),
    [
        ("a\nb\nc\n", "", "expected 4 ids, one per image, got 3"),
        ("", "", "got 0"),
        ("patient\na\na\nb\nc\n", "", "got 5"),
        ("1,a\n2,a\n3,b\n4,c\n", "", "got 2 values in line 1: for a table with a heading say"),
        ("file,patient\n1,a\n", "?column=patents", "did you mean 'patient'"),
        ("file,patient\n1,a\n2\n3,b\n4,c\n", "?column=patient", "expected an id in row 2"),
        ("a\n \nb\nc\n", "", "expected an id in row 2"),
        ('a\n"b', "", "expected text with one id per line"),
        ("a\n", "?colum=x", "?column=NAME"),
        ("a\n", "?column=", "?column=NAME"),
    ],
)
def test_files_that_do_not_fit_get_one_line(
    dataset: Dataset, tmp_path: Path, content: str, option: str, message: str
) -> None:
    path = tmp_path / "ids.csv"
    path.write_text(content)
    refused(re.escape(message), read_groups, f"{path}{option}", dataset)


def test_what_is_neither_column_nor_file_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    refused("no such file; columns: age, groups, patient", read_groups, "pateint", dataset)
    refused("scans: age: expected whole numbers or text", read_groups, "age", dataset)
    path = tmp_path / "ids.txt"
    path.write_bytes(b"\xff\xfe\x00")
    refused("expected text", read_groups, str(path), dataset)
