"""Folders of photos of many shapes, and how to read them at full size, for the tests."""

from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.data.image_files import photo

from relook.data import Dataset, Preparation, load_data
from relook.transforms.centre_crop import CentreCrop
from relook.transforms.full_images import FullImages

SHAPES = ((40, 60), (90, 41), (33, 300), (200, 210), (24, 24), (57, 12))
SIZE = (24, 24)


def write_photos(root: Path, shapes: tuple[tuple[int, int], ...] = SHAPES) -> Path:
    """A folder with two classes, half of the photos in each."""
    for i, (height, width) in enumerate(shapes):
        folder = root / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        photo(height, width, seed=i).save(folder / f"{i}.png")
    return root


def read_full(root: Path, **wanted: Any) -> Dataset:
    return load_data(f"folder:{root}", Preparation(SIZE, full_size=True, **wanted))


def full(dataset: Dataset) -> FullImages:
    assert isinstance(dataset.images, FullImages)
    return dataset.images


def in_memory(arrays: list[np.ndarray[Any, np.dtype[np.uint8]]], plan: CentreCrop) -> FullImages:
    """Images `[h, w, c]` as full-size images."""
    sizes = np.array([array.size for array in arrays], dtype=np.int64)
    return FullImages(
        np.concatenate([array.reshape(-1) for array in arrays]),
        np.cumsum(sizes) - sizes,
        np.array([array.shape[:2] for array in arrays], dtype=np.int64),
        np.array([str(i) for i in range(len(arrays))]),
        plan,
    )
