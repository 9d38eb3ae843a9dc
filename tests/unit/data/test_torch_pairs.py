from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support import refused
from tests.unit.data.image_files import photo
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from relook.data import Dataset, Preparation, as_dataset, from_torch

PHOTOS = [photo(seed=i) for i in range(4)]
ARRAYS = [np.asarray(image) for image in PHOTOS]
TENSORS = [torch.from_numpy(array.transpose(2, 0, 1).copy()) for array in ARRAYS]
LABELS = [1, 0, 1, 0]


class Pairs(torch.utils.data.Dataset[Any]):
    """A map-style data set, as torchvision's are."""

    def __init__(self, images: list[Any], classes: list[str] | None = None) -> None:
        self.images = images
        if classes:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.images[index], LABELS[index % 4]


class Bare(torch.utils.data.Dataset[Any]):
    """Images without labels."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return TENSORS[index]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(zip(TENSORS, LABELS, strict=True))


def check(loaded: Dataset) -> None:
    assert torch.equal(loaded.plain, torch.stack(TENSORS))
    assert loaded.labels.tolist() == LABELS


@pytest.mark.parametrize("images", [PHOTOS, ARRAYS, TENSORS], ids=["PIL", "arrays", "tensors"])
def test_pairs_of_every_kind_become_a_data_set(images: list[Any]) -> None:
    check(from_torch(Pairs(images)))
    check(from_torch(list(zip(images, LABELS, strict=True))))


@pytest.mark.parametrize("batch", [1, 3, 4])
def test_a_loader_is_read_batch_by_batch(batch: int) -> None:
    check(from_torch(DataLoader(Pairs(TENSORS), batch_size=batch)))
    check(from_torch(DataLoader(Stream(), batch_size=batch)))
    check(from_torch(Stream()))
    whole = TensorDataset(torch.stack(TENSORS), torch.tensor(LABELS))
    check(from_torch(whole))
    check(from_torch(DataLoader(whole, batch_size=batch)))


def test_floats_of_to_tensor_become_the_levels_that_they_were() -> None:
    floats = Pairs([tensor / 255 for tensor in TENSORS])
    check(from_torch(floats))
    check(from_torch(DataLoader(floats, batch_size=3)))


def test_dictionaries_are_pairs_too() -> None:
    rows: Any = [{"pixel_values": i, "labels": y} for i, y in zip(TENSORS, LABELS, strict=True)]
    check(from_torch(rows))
    check(from_torch(DataLoader(rows, batch_size=2)))
    refused("expected a pair", from_torch, [{"image": TENSORS[0]}])


def test_the_classes_are_those_of_the_source_or_given() -> None:
    named = Pairs(TENSORS, ["cat", "dog"])
    assert from_torch(named).classes == ("cat", "dog")
    assert from_torch(DataLoader(named)).classes == ("cat", "dog")
    part = Subset(named, [0, 1])
    assert as_dataset(part, classes=["a", "b", "c"]).classes == ("a", "b", "c")
    assert from_torch(part).classes == ("0", "1")


def test_sizes_and_modes_are_brought_together() -> None:
    mixed = [photo(30, 40), photo().convert("L"), np.zeros((20, 20), np.uint8), TENSORS[0]]
    refused("give a size", from_torch, Pairs(mixed))
    loaded = from_torch(Pairs(mixed), preparation=Preparation((16, 16)))
    assert loaded.images.shape == (4, 3, 16, 16)
    grey = from_torch(Pairs([Image.new("L", (8, 9), i) for i in range(4)]))
    assert grey.images.shape == (4, 1, 9, 8)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Pairs([tensor / 127.5 - 1 for tensor in TENSORS]), "undo the normalisation: mean and std"),
        (Pairs([array * 1.0 for array in ARRAYS]), "look like grey levels: convert them to uint8"),
        (Pairs([tensor.int() for tensor in TENSORS]), "or floats in 0…1, got int32"),
        (Pairs([array.transpose(2, 0, 1) for array in ARRAYS]), r"\[h, w, c\] with 1 or 3"),
        (Pairs([tensor[None] for tensor in TENSORS]), r"\[c, h, w\] with 1 or 3 channels"),
        (Pairs(["a.jpg"]), "expected a PIL image, a uint8 tensor or a uint8 array, got str"),
        (TENSORS, r"expected a pair \(image, label\)"),
        ([(PHOTOS[0], 0.5)], "expected a label as a whole number, got 0.5"),
        ([(PHOTOS[0], torch.tensor([0.0, 1.0]))], "expected a label as a whole number"),
        ([(PHOTOS[0], -1), (PHOTOS[0], 1)], "got -1"),
        ([], "at least one image, got none"),
        (3, "expected a torch Dataset or DataLoader, got int"),
        (DataLoader(Pairs(TENSORS), shuffle=True), "give shuffle=False"),
        (DataLoader(Bare()), r"expected batches \(images, labels\)"),
        ([(Image.fromarray(np.zeros((9, 9), np.float32)), 0)], "image 0 cannot be used"),
    ],
)
def test_what_cannot_be_used_gets_one_line(source: Any, message: str) -> None:
    refused(message, from_torch, source)


def test_more_than_half_of_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relook.data.torch_pairs.half_of_memory", lambda: 3 * 40 * 60 * 2)
    refused("image 2: expected images that fit half", from_torch, Pairs(PHOTOS))
