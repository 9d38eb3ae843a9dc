"""Idx files as their page defines them."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 12, 10), dtype=np.uint8)
LABELS = np.array([3, 0, 1, 3, 2], dtype=np.uint8)


def idx_bytes(array: Any) -> bytes:
    """An idx file as Yann LeCun's page defines it."""
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + bytes(array.tobytes())


def write(root: Path, prefix: str, images: Any = IMAGES, packed: bool = False) -> None:
    for name, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", LABELS)):
        content = idx_bytes(array)
        end, content = (".gz", gzip.compress(content)) if packed else ("", content)
        (root / f"{prefix}-{name}{end}").write_bytes(content)
