"""Data sets: images with labels, and the table of data sources."""

from relook.data.base import Dataset
from relook.data.specs import DATA_SOURCES, load_data, read_groups

__all__ = ["DATA_SOURCES", "Dataset", "load_data", "read_groups"]
