"""The fifteen common corruptions of images, at five severities, and the table of them."""

from relook.corruptions.apply import check_corruptions, check_severities, corrupt_images
from relook.corruptions.table import CORRUPTIONS, SEVERITIES, Corruption

__all__ = [
    "CORRUPTIONS",
    "SEVERITIES",
    "Corruption",
    "check_corruptions",
    "check_severities",
    "corrupt_images",
]
