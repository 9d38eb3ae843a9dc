"""Data sets that Hugging Face's `datasets` itself has written, for the tests."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from tests.unit.data.image_files import photo

from relook.data.hf_data import import_datasets


def hf_table(pictures: list[Image.Image], labels: list[Any], names: list[str] | None = None) -> Any:
    """A table of `image` and `label`; the labels have names, or are what they are."""
    datasets = import_datasets()
    columns = {"image": pictures, "label": labels}
    if names is None:
        return datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=names)}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))


def save_hf_data(directory: Path, images: int = 6, **parts: int) -> None:
    """Six photos of 40×60 of cats and dogs, or a directory of several parts."""
    datasets = import_datasets()
    datasets.disable_progress_bars()

    def table(count: int) -> Any:
        pictures = [photo(seed=i) for i in range(count)]
        return hf_table(pictures, [i % 2 for i in range(count)], ["cat", "dog"])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _save(directory, table, images, parts)


def _save(directory: Path, table: Callable[[int], Any], images: int, parts: dict[str, int]) -> None:
    if parts:
        tables = {name: table(count) for name, count in parts.items()}
        import_datasets().DatasetDict(tables).save_to_disk(str(directory))
    else:
        table(images).save_to_disk(str(directory))
