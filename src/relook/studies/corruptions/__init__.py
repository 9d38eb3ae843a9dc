"""The fifteen common corruptions of images, at five severities, and the table of them."""

from relook.data.corrupted import SEVERITIES, check_corruptions, check_severities
from relook.studies.corruptions.table import (
    CORRUPTIONS,
    Corruption,
    corrupt_images,
    corrupt_photos,
    resized_photos,
)

__all__ = [
    "CORRUPTIONS",
    "SEVERITIES",
    "Corruption",
    "check_corruptions",
    "check_severities",
    "corrupt_images",
    "corrupt_photos",
    "resized_photos",
]
