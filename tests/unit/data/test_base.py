import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import refused
from torch import Tensor

from relook.data import Dataset, check_class_count, read_classes, with_classes
from relook.errors import RelookError


def dataset(images: Tensor, **changes: Any) -> Dataset:
    n = len(images)
    fields: dict[str, Any] = {
        "images": images,
        "labels": np.arange(n) % 3,
        "classes": ("cat", "dog", "owl"),
        "name": "pets",
    }
    return Dataset(**{**fields, **changes})


def test_labels_become_int64(images: Tensor) -> None:
    made = dataset(images, labels=(np.arange(len(images)) % 3).astype(np.uint8))
    assert made.labels.dtype == np.int64
    assert len(made) == len(images)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.zeros(16)}, "labels as whole numbers, got float64"),
        ({"labels": np.zeros(16, dtype=bool)}, "got bool"),
        ({"labels": np.full(16, -1)}, r"from 0 to 2 \(3 classes\), got -1"),
        ({"labels": np.full(16, 3)}, "got 3"),
        ({"labels": np.full(16, 2**63, dtype=np.uint64)}, "got 9223372036854775808"),
        ({"labels": np.zeros(15, dtype=int)}, "expected 16 labels, one per image, got 15"),
        ({"labels": np.zeros((16, 3), dtype=int)}, r"got shape \[16, 3\]: .*argmax\(axis=1\)"),
        ({"labels": np.zeros((16, 3))}, r"float64 of shape \[16, 3\]: for one-hot .*argmax"),
        ({"classes": ("cat",)}, "at least two classes"),
        ({"classes": ()}, "at least two classes"),
        ({"classes": "cat"}, "at least two classes"),
        ({"classes": (0, 1, 2)}, "at least two classes"),
        ({"classes": ("cat", "dog", "cat")}, "'cat' is there twice"),
        ({"groups": np.arange(15)}, "expected 16 ids, one per image, got 15"),
        ({"groups": np.linspace(0, 1, 16)}, "whole numbers or text"),
        ({"images": torch.zeros(0, 3, 8, 8, dtype=torch.uint8)}, "at least one image"),
        ({"images": torch.zeros(16, 3, 8, 8)}, "uint8"),
        ({"images": torch.zeros(16, 8, 8, 3, dtype=torch.uint8)}, "c = 1 or 3"),
    ],
)
def test_what_is_no_data_set_is_refused(
    images: Tensor, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RelookError, match=message) as caught:
        dataset(**{"images": images, **changes})
    assert str(caught.value).startswith("pets: ")
    assert "\n" not in str(caught.value)


def test_a_subset_takes_everything_along(images: Tensor) -> None:
    n = len(images)
    whole = dataset(
        images,
        groups=np.array([f"g{i // 4}" for i in range(n)]),
        columns={"age": np.arange(n)},
    )
    part = whole.subset([5, 0, 5])
    assert torch.equal(part.plain, images[[5, 0, 5]])
    assert part.labels.tolist() == [2, 0, 2]
    assert part.groups is not None
    assert part.groups.tolist() == ["g1", "g0", "g1"]
    assert part.columns["age"].tolist() == [5, 0, 5]
    assert (part.classes, part.name) == (whole.classes, whole.name)


@pytest.mark.parametrize("indices", [[16], [-1], [0.5], [[0, 1]], np.ones(16, dtype=bool)])
def test_a_subset_of_what_is_not_there_is_refused(images: Tensor, indices: Any) -> None:
    refused("pets: expected indices", dataset(images).subset, indices)


def test_an_empty_subset_is_refused(images: Tensor) -> None:
    refused("at least one image", dataset(images).subset, np.arange(0))


def test_the_fingerprint_is_of_the_content_and_not_of_the_name(images: Tensor) -> None:
    base = dataset(images)
    assert replace(base, name="other").fingerprint == base.fingerprint
    changed = images.clone()
    changed[3, 0, 0, 0] ^= 1
    others = [
        dataset(changed),
        dataset(images, labels=(np.arange(16) + 1) % 3),
        dataset(images, classes=("cat", "dog", "owls")),
        dataset(images, groups=np.arange(16)),
        base.subset(np.arange(15)),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 6


def test_copies_of_an_image_count_as_one_and_join_groups() -> None:
    images = torch.arange(6, dtype=torch.uint8)[:, None, None, None].expand(6, 1, 8, 8).clone()
    labels = np.array([0, 1, 0, 1, 0, 1])
    assert Dataset(images, labels, ("a", "b"), "six").units is None
    images[4] = images[1]
    copied = Dataset(images, labels, ("a", "b"), "six")
    assert copied.units is not None
    assert copied.units.tolist() == [0, 1, 2, 3, 1, 5]
    grouped = replace(copied, groups=np.array(["x", "x", "y", "y", "y", "z"]))
    assert grouped.units is not None
    assert grouped.units.tolist() == [0, 0, 0, 0, 0, 5]
    assert grouped.fingerprint != copied.fingerprint
    nobody_knows = replace(copied, identities=np.zeros(6, np.uint64))
    assert nobody_knows.units is None


def pets(*classes: str, labels: tuple[int, ...] = (0, 1, 1, 0)) -> Dataset:
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
        (
            "a.json",
            '{"cat": 0, "dog": 0}',
            'different index from 0 on for each class, got 0 for "dog"',
        ),
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
    mapped = with_classes(pets("cat", "dog"), ("dog", "owl", "cat"), "classes.txt")
    assert mapped.labels.tolist() == [2, 0, 0, 2]
    assert mapped.classes == ("dog", "owl", "cat")


def test_a_class_that_the_file_lacks_is_named() -> None:
    with pytest.raises(RelookError, match=r"classes.txt: .* 1 of 2 are not in it: dog"):
        with_classes(pets("cat", "dog"), ("cat", "owl"), "classes.txt")
    unused = with_classes(pets("cat", "dog", "emu"), ("dog", "cat"), "classes.txt")
    assert unused.labels.tolist() == [1, 0, 0, 1]


def test_numbers_keep_their_value_and_get_a_name() -> None:
    mapped = with_classes(pets("0", "1"), ("cat", "dog", "owl"), "classes.txt")
    assert mapped.labels.tolist() == [0, 1, 1, 0]
    assert mapped.classes == ("cat", "dog", "owl")
    swapped = with_classes(pets("0", "1"), ("1", "0"), "classes.txt")
    assert swapped.labels.tolist() == [1, 0, 0, 1]
    with pytest.raises(RelookError, match="got 2, but pets has the label 3"):
        with_classes(pets("0", "1", "2", "3", labels=(0, 3)), ("cat", "dog"), "x")


def test_the_model_must_have_as_many_classes() -> None:
    two = pets("cat", "dog")
    check_class_count(two, 2)
    check_class_count(two, None)
    for outputs in (1, 3, 1000):
        refused(
            f"got 2 in pets and {outputs} from the model: .*--cl", check_class_count, two, outputs
        )
    check_class_count(pets("0", "1"), 10)
    refused("got 3 in pets and 2 from", check_class_count, pets("0", "1", "2"), 2)


def test_json_names_are_made_printable(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"a\nb": 0, "dog": 1}))
    assert read_classes(path) == ("'a\\nb'", "dog")
