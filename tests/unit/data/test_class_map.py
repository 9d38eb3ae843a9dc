import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support import refused

from relook.data import Dataset, check_class_count, read_classes, with_classes
from relook.errors import RelookError


def dataset(*classes: str, labels: tuple[int, ...] = (0, 1, 1, 0)) -> Dataset:
    images = torch.zeros(len(labels), 1, 8, 8, dtype=torch.uint8)
    return Dataset(images, np.array(labels), classes, "pets")


def test_a_text_file_names_a_class_a_line(tmp_path: Path) -> None:
    path = tmp_path / "classes.txt"
    path.write_bytes("\ufeffowl\r\n dog \r\ncat\r\n\r\n".encode())
    assert read_classes(path) == ("owl", "dog", "cat")


def test_a_json_file_gives_each_class_its_index(tmp_path: Path) -> None:
    path = tmp_path / "classes.json"
    path.write_text('{"dog": 2, "cat": 0}')
    assert read_classes(path) == ("cat", "class 1", "dog")
    assert read_classes(path, outputs=5)[3:] == ("class 3", "class 4")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", "at least two classes, got 0"),
        ("a.txt", "cat\n\ndog\n", "line 2 is empty"),
        ("a.txt", "cat\ndog\ncat\n", "'cat' is there twice"),
        ("a.txt", "\udcff", "UTF-8"),
        ("a.json", "[]", "a list of 0"),
        ("a.json", "{}", "got an object"),
        ("a.json", '{"cat": 0, "dog": 0}', 'of its own from 0 for "dog", got 0'),
        ("a.json", '{"cat": -1}', "got -1"),
        ("a.json", '{"cat": true, "dog": 1}', "got true"),
        ("a.json", '{"cat": "0"}', 'got "0"'),
        ("a.json", '{"cat": 99999999999}', "got 99999999999"),
        ("a.json", '{"cat": 0, "class 1": 2}', "'class 1' is there twice"),
        ("a.json", "{", "unusable JSON"),
    ],
)
def test_a_file_that_does_not_fit_gets_one_line(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    refused(message, read_classes, path)
    refused("no such file", read_classes, tmp_path / "none.txt")


def test_labels_are_found_by_name() -> None:
    mapped = with_classes(dataset("cat", "dog"), ("dog", "owl", "cat"), "classes.txt")
    assert mapped.labels.tolist() == [2, 0, 0, 2]
    assert mapped.classes == ("dog", "owl", "cat")


def test_a_class_that_the_file_lacks_is_named() -> None:
    with pytest.raises(RelookError, match=r"classes.txt: .* 1 of 2 are not in it: dog"):
        with_classes(dataset("cat", "dog"), ("cat", "owl"), "classes.txt")
    unused = with_classes(dataset("cat", "dog", "emu"), ("dog", "cat"), "classes.txt")
    assert unused.labels.tolist() == [1, 0, 0, 1]


def test_numbers_keep_their_value_and_get_a_name() -> None:
    mapped = with_classes(dataset("0", "1"), ("cat", "dog", "owl"), "classes.txt")
    assert mapped.labels.tolist() == [0, 1, 1, 0]
    assert mapped.classes == ("cat", "dog", "owl")
    swapped = with_classes(dataset("0", "1"), ("1", "0"), "classes.txt")
    assert swapped.labels.tolist() == [1, 0, 0, 1]
    with pytest.raises(RelookError, match="got 2, but pets has the label 3"):
        with_classes(dataset("0", "1", "2", "3", labels=(0, 3)), ("cat", "dog"), "x")


def test_the_model_must_have_as_many_classes() -> None:
    pets = dataset("cat", "dog")
    check_class_count(pets, 2)
    check_class_count(pets, None)
    for outputs in (1, 3, 1000):
        refused(
            f"got 2 in pets and {outputs} from the model: .*--cl", check_class_count, pets, outputs
        )
    check_class_count(dataset("0", "1"), 10)
    refused("got 3 in pets and 2 from", check_class_count, dataset("0", "1", "2"), 2)


def test_json_names_are_made_printable(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"a\nb": 0, "dog": 1}))
    assert read_classes(path) == ("'a\\nb'", "dog")
