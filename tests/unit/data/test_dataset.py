from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import refused
from torch import Tensor

from relook.data import Dataset
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
        ({"labels": np.zeros((16, 3), dtype=int)}, r"got shape \[16, 3\]"),
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
