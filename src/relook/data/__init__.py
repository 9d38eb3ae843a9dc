"""Data sets: images with labels, and the table of data sources."""

from relook.data.adapt import as_dataset, as_images, read_groups
from relook.data.base import Dataset, check_class_count, read_classes, with_classes
from relook.data.prepare import Preparation
from relook.data.specs import DATA_SOURCES, load_data
from relook.data.torch_pairs import from_torch

__all__ = [
    "DATA_SOURCES",
    "Dataset",
    "Preparation",
    "as_dataset",
    "as_images",
    "check_class_count",
    "from_torch",
    "load_data",
    "read_classes",
    "read_groups",
    "with_classes",
]
