"""Policies in the files of the GPS authors."""

from pathlib import Path
from typing import Any

import numpy as np

ORDER = [
    *("identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate"),
    *("autocontrast", "solarize", "solarize_add", "posterize", "contrast", "color"),
    *("brightness", "sharpness", "cutout", "scale_crop_flip", "invert", "equalize"),
]
Entry = list[tuple[int, float]] | None
CIFAR: list[Entry] = [
    [(5, -13.2), (11, -7.1), (14, 30.0)],
    None,
    [(11, 7.1), (0, 44.0), (9, -0.4999)],
    [(1, 0.1), (5, -0.2), (0, 0.0)],
    [(5, -13.2), (11, -7.1), (14, 30.0)],
]
IMAGENET = ["[(15,-7.72),(0,8.7)]", "[(15,12.5)]", "[(15,1e-05),(10,-3.5),(17,4.),(16,0.1)]"]


def objects(entries: list[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(entries), dtype=object)
    for i, entry in enumerate(entries):
        array[i] = entry
    return array


def npz(path: Path, array: object) -> Path:
    np.savez(path, np.asarray(array))
    return path


def npy(path: Path, texts: list[str]) -> Path:
    np.save(path, np.array(texts))
    return path
