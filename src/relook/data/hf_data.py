"""`hf:DIR_OR_NAME`: image data sets of Hugging Face; only this file imports `datasets`."""

from __future__ import annotations

import re
import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.data.base import Dataset, named_labels, numbered_classes
from relook.data.decode import EncodedImage
from relook.data.image_files import read_images
from relook.data.prepare import Preparation
from relook.errors import MissingExtraError, RelookError
from relook.foundation.registry import check_names, split_query
from relook.foundation.wording import first_line
from relook.io.files import one_line, read_bytes

FORM = "hf:DIR_OR_NAME[?part=NAME&image=COLUMN&label=COLUMN]"
_OPTIONS = {"part": (), "image": (), "label": ()}
_LARGEST_FILE = 1 << 29
_CONTENT = {"image": "images", "label": "class labels"}
_LABEL_TYPES = ("string", "large_string", "int8", "int16", "int32", "int64", "uint8")
_USUAL_PARTS = ("test", "validation", "val")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def load_hf_data(rest: str, wanted: Preparation) -> Dataset:
    """Return the images of a data set on the hub, or of a directory with one.

    The directory was written by `save_to_disk`, or has Parquet files or image folders. Unless
    chosen, the part is the only one, `test` or `validation`, and the columns are those with images
    and with class labels. Code that comes with a data set is never run.
    """
    name, options = split_query(rest, "hf", _OPTIONS)
    if not name:
        raise RelookError(f"expected a data set as {FORM}, got hf:{rest}")
    where = f"hf:{one_line(rest)}"
    datasets = import_datasets()
    with _quiet(datasets, where):
        found = _load(datasets, name)
    return from_hf(found, wanted, options, where)


def is_hf_data(source: object) -> bool:
    """Whether this is a data set of the package `datasets`, or a dictionary of its parts."""
    return type(source).__module__.partition(".")[0] == "datasets"


def from_hf(
    found: Any,
    wanted: Preparation,
    options: Mapping[str, str] = MappingProxyType({}),
    where: str = "Hugging Face data set",
) -> Dataset:
    """Return the images of a loaded data set; `options` may choose `part`, `image` and `label`."""
    datasets = import_datasets()
    with _quiet(datasets, where):
        table = _part(found, options.get("part"), where).with_format(None)
        features = table.features
        with_images = [name for name, kind in features.items() if isinstance(kind, datasets.Image)]
        with_labels = [name for name, kind in features.items() if _is_label(kind, datasets)]
        image = _column("image", options, with_images, features, where)
        label = _column("label", options, with_labels, features, where)
        labels, classes = _labels(features[label], table[label], where)
        files = _files(table.select_columns([image]), image, datasets, where)
    images, kept, identities = read_images(files, classes, wanted, where)
    return Dataset(
        images, labels[kept], classes, where, columns={"row": kept}, identities=identities
    )


def import_datasets() -> Any:
    """Return the package, or say how to install it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import datasets
    except ImportError:
        raise MissingExtraError("datasets", "hf-data", "hf: data") from None
    return datasets


def _load(datasets: Any, name: str) -> Any:
    directory = Path(name).expanduser()
    if directory.is_dir():
        saved = ("state.json", "dataset_dict.json")
        if any((directory / file).is_file() for file in saved):
            return datasets.load_from_disk(str(directory))
        return datasets.load_dataset(str(directory))
    if not _HUB_NAME.fullmatch(name):
        raise RelookError(
            f"hf:{one_line(name)}: expected a directory or a name on the hub such as beans or "
            "owner/name; there is no such directory"
        )
    return datasets.load_dataset(name)


def _part(found: Any, chosen: str | None, where: str) -> Any:
    if not isinstance(found, dict):
        if chosen is not None:
            raise RelookError(f"{where}: expected no part, as there is only one, got {chosen!r}")
        return found
    if chosen is not None:
        check_names(f"part of {where}", [chosen], found)
        return found[chosen]
    usual = [name for name in _USUAL_PARTS if name in found]
    if not usual and len(found) > 1:
        raise RelookError(f"{where}: expected one of its parts, say ?part={'|'.join(found)}")
    return found[usual[0] if usual else next(iter(found))]


def _column(
    key: str,
    options: Mapping[str, str],
    fitting: list[str],
    features: Mapping[str, Any],
    where: str,
) -> str:
    """Return the chosen column of images or labels (`key`), or else the one that fits."""
    if key in options:
        check_names(f"column of {where}", [options[key]], features)
        return options[key]
    usual = [name for name in ("image", "img", "label", "labels") if name in fitting]
    if not fitting or (len(fitting) > 1 and not usual):
        raise RelookError(
            f"{where}: expected one column with {_CONTENT[key]}, got {len(fitting)} among "
            f"{', '.join(map(one_line, features))}: say ?{key}=COLUMN"
        )
    return usual[0] if usual else fitting[0]


def _is_label(kind: Any, datasets: Any) -> bool:
    if isinstance(kind, datasets.ClassLabel):
        return True
    return isinstance(kind, datasets.Value) and kind.dtype in _LABEL_TYPES


def _labels(
    feature: Any, column: Sequence[Any], where: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    values = list(column)
    if None in values:
        raise RelookError(
            f"{where}: expected a label for each image, but row {values.index(None)} has none"
        )
    if all(isinstance(value, str) for value in values):
        return named_labels(values)
    if not all(isinstance(value, int) for value in values):
        raise RelookError(
            f"{where}: expected labels as names or whole numbers, got {values[0]!r:.60}"
        )
    labels = np.array(values)
    known = getattr(feature, "names", None) or numbered_classes(labels, where)
    return labels, tuple(one_line(str(name)) for name in known)


def _files(table: Any, column: str, datasets: Any, where: str) -> list[EncodedImage]:
    """Return the rows' images as files, not decoded."""
    if not isinstance(table.features[column], datasets.Image):
        raise RelookError(f"{where}: expected images in the column {one_line(column)!r}")
    # There is no public fingerprint; without one, nothing decoded earlier is reused.
    identity = getattr(table, "_fingerprint", None) or secrets.token_hex(16)
    encoded = table.cast_column(column, datasets.Image(decode=False))
    return [
        EncodedImage(
            f"{where} row {row}", partial(_content, encoded, row, column), f"{identity} {row}"
        )
        for row in range(len(encoded))
    ]


def _content(table: Any, row: int, column: str) -> bytes:
    cell = table[row][column]
    if not cell:
        return b""
    content: bytes | None = cell["bytes"]
    if content is not None:
        return content
    return read_bytes(cell["path"], what="an image file", max_bytes=_LARGEST_FILE)


@contextmanager
def _quiet(datasets: Any, where: str) -> Iterator[None]:
    """Hide progress bars and warnings; turn any error into one line."""
    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except RelookError:
        raise
    except Exception as error:  # its readers and the hub's client fail in many ways
        raise RelookError(f"{where}: cannot be loaded: {one_line(first_line(error))}") from None
    finally:
        if shown:
            datasets.enable_progress_bars()
