"""Corrupted data sets in their published layouts: CIFAR-10-C's arrays and ImageNet-C's folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.data.base import Dataset
from relook.data.folder import load_folder
from relook.data.image_files import read_images
from relook.data.prepare import Preparation
from relook.errors import FileFormatError, RelookError
from relook.foundation.registry import check_names, split_query
from relook.io.arrays import map_npy, read_npy, read_npz
from relook.io.files import one_line
from relook.io.identities import Identities
from relook.io.records import Kind
from relook.transforms.full_images import plain_views

FAMILIES: Mapping[str, str] = {
    name: family
    for family, names in {
        "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
        "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
        "weather": ("snow", "frost", "fog", "brightness"),
        "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    }.items()
    for name in names
}
"""The fifteen corruptions of the published sets, in their order, and their families."""
SEVERITIES = (1, 2, 3, 4, 5)

LABELS = "labels.npy"
RECORD = "corruptions.json"
SOURCES = "sources.npz"
"""In a set written by relook: the identities of the clean images, and their names."""


@dataclass(frozen=True)
class CorruptionsRecord:
    """How relook made a corrupted set, and from which data."""

    data: str
    images: int
    severities: tuple[int, ...]
    seed: int
    kind: str

    def __post_init__(self) -> None:
        check_severities(self.severities)


CORRUPTIONS = Kind(
    CorruptionsRecord, "relook-corruptions", None, "the record of a corrupted set", "study corrupt"
)

Source = Callable[[str, int], Tensor]
"""Returns the images under a corruption at a severity, uint8 `[n, c, h, w]`."""


@dataclass(frozen=True)
class CorruptedArrays:
    """A folder with one `.npy` file per corruption: all images at one severity, then the next.

    The published sets hold severities 1 to 5; the record of one written by relook lists its own.
    `labels` is int64 `[n]`, of one severity.
    """

    root: Path
    severities: tuple[int, ...]
    labels: NDArray[np.int64]

    def images(self, corruption: str, severity: int) -> NDArray[np.uint8]:
        """Return the images under a corruption at a severity, uint8 `[n, h, w, c]`."""
        path = self.root / f"{corruption}.npy"
        count, blocks = len(self.labels), len(self.severities)
        if severity not in self.severities:
            raise RelookError(
                f"{one_line(str(self.root))}: expected severity {severity}, but it holds only "
                f"{', '.join(map(str, self.severities))}"
            )
        if not path.is_file():
            raise RelookError(
                f"{one_line(str(self.root))}: expected the file {path.name} with {blocks} × "
                f"{count:,} images, got none"
            )
        stacked = map_npy(path)
        if stacked.dtype != np.uint8 or stacked.ndim not in (3, 4):
            raise FileFormatError(
                f"{path}: expected images uint8 [n, h, w, c], got {stacked.dtype} "
                f"{list(stacked.shape)}"
            )
        if len(stacked) != blocks * count:
            raise FileFormatError(
                f"{path}: expected {blocks * count:,} images ({blocks} severities of {count:,}), "
                f"got {len(stacked):,}"
            )
        begin = self.severities.index(severity) * count
        images = stacked[begin : begin + count]
        return images[..., None] if images.ndim == 3 else images


def check_corruptions(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the named corruptions in their published order; None: all."""
    check_names("corruption", names or (), FAMILIES)
    chosen = FAMILIES if names is None else names
    if not chosen:
        raise RelookError(f"expected at least one corruption of {', '.join(FAMILIES)}, got none")
    return tuple(name for name in FAMILIES if name in chosen)


def check_severities(severities: Sequence[int] | None) -> tuple[int, ...]:
    """Return the given severities in ascending order; None: all five."""
    chosen = SEVERITIES if severities is None else tuple(severities)
    if not chosen or any(isinstance(s, bool) or s not in SEVERITIES for s in chosen):
        raise RelookError(f"expected severities from 1 to 5, got {list(chosen)}")
    return tuple(sorted({int(severity) for severity in chosen}))


def open_arrays(folder: str | Path) -> CorruptedArrays:
    """Open a folder of `.npy` files; check its record and its labels."""
    root = Path(folder).expanduser()
    path = root / LABELS
    if not path.is_file():
        raise RelookError(
            f"{one_line(str(root))}: expected a corrupted set with {LABELS} and an .npy file for "
            "each corruption, got no such file"
        )
    record = root / RECORD
    severities = CORRUPTIONS.read(record).severities if record.is_file() else SEVERITIES
    labels = read_npy(path)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        raise FileFormatError(
            f"{path}: expected labels as whole numbers [n], got {labels.dtype} {list(labels.shape)}"
        )
    blocks = labels.astype(np.int64)
    if len(blocks) % len(severities):
        raise FileFormatError(
            f"{path}: expected the labels of {len(severities)} severities one after another, got "
            f"{len(labels):,}, which {len(severities)} does not divide"
        )
    table = blocks.reshape(len(severities), -1)
    if (table != table[0]).any():
        raise FileFormatError(f"{path}: expected the same labels for every severity")
    return CorruptedArrays(root, severities, table[0])


def corrupted_source(folder: str | Path, dataset: Dataset, indices: NDArray[np.int64]) -> Source:
    """Return a function that reads the corrupted versions of a data set's images from a folder.

    `indices` are the images' places in the data set that was corrupted; in folders, images are
    found by their class and file name.
    """
    root = Path(folder).expanduser()
    if (root / LABELS).is_file():
        return _array_source(open_arrays(root), dataset, indices)
    if not root.is_dir() or not any(_family_folder(root, name).is_dir() for name in FAMILIES):
        raise RelookError(
            f"{one_line(str(root))}: expected a corrupted set: {LABELS} with an .npy file for each "
            "corruption, or folders CORRUPTION/SEVERITY/CLASS"
        )
    return _folder_source(root, dataset)


def load_cifarc(classes: int, rest: str) -> Dataset:
    """Return a part of CIFAR-10-C or CIFAR-100-C: `DIR?corruption=NAME&severity=1…5`."""
    source = f"cifar{classes}c"
    folder, corruption, severity = _parse_spec(rest, source)
    arrays = open_arrays(folder)
    images = _to_tensor(arrays.images(corruption, severity))
    names = tuple(map(str, range(classes)))
    where = f"{source}:{one_line(rest)}"
    identities = _clean_identities(arrays.root, np.arange(len(images)).astype(str))
    return Dataset(images, arrays.labels, names, where, identities=identities)


def load_imagenetc(rest: str, wanted: Preparation) -> Dataset:
    """Return a part of ImageNet-C, or of folders like it: `DIR?corruption=NAME&severity=1…5`."""
    folder, corruption, severity = _parse_spec(rest, "imagenetc")
    root = Path(folder).expanduser()
    loaded = load_folder(str(_severity_folder(root, corruption, severity)), wanted)
    identities = _clean_identities(root, without_endings(loaded.columns["path"]))
    return replace(loaded, name=f"imagenetc:{one_line(rest)}", identities=identities)


def without_endings(paths: Iterable[object]) -> NDArray[np.str_]:
    """Return the paths of images without file endings, which corrupting can change."""
    return np.array([Path(str(path)).with_suffix("").as_posix() for path in paths])


def _clean_identities(root: Path, names: NDArray[np.str_]) -> Identities:
    """Return the identities of the clean images by name; 0 if unknown."""
    known: dict[str, int] = {}
    if (root / SOURCES).is_file():
        arrays = read_npz(root / SOURCES, list)
        try:
            known = dict(zip(arrays["names"].tolist(), arrays["identities"].tolist(), strict=True))
        except (KeyError, ValueError):
            raise FileFormatError(
                f"{root / SOURCES}: expected names and identities, one per image: run  relook "
                "study corrupt  again"
            ) from None
    return np.array([known.get(str(name), 0) for name in names], dtype=np.uint64)


def _parse_spec(rest: str, source: str) -> tuple[str, str, int]:
    """Read `DIR?corruption=NAME&severity=1…5`."""
    folder, options = split_query(rest, source, {"corruption": (), "severity": ()})
    if len(options) < 2 or options["severity"] not in map(str, SEVERITIES):
        raise RelookError(
            f"expected {source}:DIR?corruption=NAME&severity=1…5, got {source}:{one_line(rest)}"
        )
    (corruption,) = check_corruptions([options["corruption"]])
    return folder, corruption, int(options["severity"])


def _array_source(arrays: CorruptedArrays, dataset: Dataset, indices: NDArray[np.int64]) -> Source:
    count = len(arrays.labels)
    where = one_line(str(arrays.root))
    if len(indices) and int(indices.max()) >= count:
        raise RelookError(
            f"{where}: expected the corrupted versions of all images, at least "
            f"{int(indices.max()) + 1:,}, got {count:,}: was it made of the same data set?"
        )
    different = np.flatnonzero(arrays.labels[indices] != dataset.labels)
    if len(different):
        first = int(indices[different[0]])
        raise RelookError(
            f"{where}: expected the labels of {dataset.name}, but {len(different):,} of "
            f"{len(dataset):,} differ (image {first} first): it was made of other images"
        )

    def read(corruption: str, severity: int) -> Tensor:
        found = _to_tensor(arrays.images(corruption, severity)[indices])
        wanted = tuple(dataset.images.shape[1:])
        if tuple(found.shape[1:]) != wanted:
            raise RelookError(
                f"{where}/{corruption}.npy: expected images of shape {list(wanted)} "
                f"(channels, height, width), as in {dataset.name}, got {list(found.shape[1:])}"
            )
        return found

    return read


def _folder_source(root: Path, dataset: Dataset) -> Source:
    if "path" not in dataset.columns:
        raise RelookError(
            f"{one_line(str(root))}: expected clean images from folder:DIR, to find their "
            f"corrupted versions by class and name, got {dataset.name}"
        )
    names = [Path(str(name)) for name in dataset.columns["path"]]
    channels, height, width = dataset.images.shape[1:]
    # Published images are cropped already, so the whole image is resized.
    wanted = Preparation((int(height), int(width)), 1.0, channels=int(channels))

    def read(corruption: str, severity: int) -> Tensor:
        folder = _severity_folder(root, corruption, severity)
        files, where = _match_files(folder, names), one_line(str(folder))
        images, *_ = read_images(files, dataset.classes, wanted, where)
        return plain_views(images)

    return read


def _match_files(folder: Path, names: list[Path]) -> list[Path]:
    """Return the file for each image: of the same class and name, with any ending."""
    listed: dict[Path, dict[str, Path]] = {}
    found = []
    for name in names:
        if name.parent not in listed:
            here = folder / name.parent
            files = sorted(here.iterdir()) if here.is_dir() else []
            listed[name.parent] = {file.stem: file for file in files}
        file = listed[name.parent].get(name.stem)
        if file is None:
            missing = one_line(str(folder / name.with_suffix("")))
            raise RelookError(
                f"expected a corrupted version of every image, but there is no {missing}.*"
            )
        found.append(file)
    return found


def _severity_folder(root: Path, corruption: str, severity: int) -> Path:
    folder = _family_folder(root, corruption) / str(severity)
    if not folder.is_dir():
        raise RelookError(
            f"{one_line(str(root))}: expected the folder {corruption}/{severity} (or "
            f"{FAMILIES[corruption]}/{corruption}/{severity}) with one folder per class, "
            "got none"
        )
    return folder


def _family_folder(root: Path, corruption: str) -> Path:
    """Return a corruption's folder, which may be in its family's, as in the archives."""
    grouped = root / FAMILIES[corruption] / corruption
    return grouped if grouped.is_dir() else root / corruption


def _to_tensor(images: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(np.array(images.transpose(0, 3, 1, 2), order="C"))
