"""The table of data sources: `digits:test`, `npz:FILE` …"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from relook.data.arrays import load_digits, load_idx, load_npz
from relook.data.base import Dataset, numbered_classes
from relook.data.cifar import CIFAR10, CIFAR100, load_cifar
from relook.data.corrupted import load_cifarc, load_imagenetc
from relook.data.folder import load_csv, load_folder
from relook.data.hf_data import FORM as HF_FORM
from relook.data.hf_data import load_hf_data
from relook.data.prepare import Preparation, fitted
from relook.errors import RelookError, unknown_name
from relook.foundation.registry import Table


@dataclass(frozen=True)
class DataSource:
    """One row: `load` gets the text after `prefix:` and the wanted preparation.

    `form` shows how a spec looks.
    """

    prefix: str
    form: str
    load: Callable[[str, Preparation], Dataset]
    bare: bool = False
    """Whether the prefix alone is a spec."""
    prepares: bool = False
    """Whether `load` brings the images to their size and channels."""
    load_unlabelled: Callable[[str, Preparation], Dataset] | None = None
    """As `load`, of images that need no labels; None if they always have some."""


def full_spec(spec: str) -> str:
    """Return a spec; a path alone gets the prefix of the source that its content fits."""
    path = Path(spec).expanduser()
    if ":" in spec or spec in DATA_SOURCES:
        return spec
    if path.is_dir() and any(entry.is_dir() for entry in path.iterdir()):
        return f"folder:{spec}"
    known = path.is_file() and path.suffix in (".csv", ".npz")
    return f"{path.suffix[1:]}:{spec}" if known else spec


def load_data(
    spec: str, preparation: Preparation | None = None, *, labelled: bool = True
) -> Dataset:
    """Return the data set that a spec names, its images prepared as wanted.

    Unless it must be `labelled`, labels may be missing and mean nothing.
    """
    wanted = preparation or Preparation()
    if not spec.isprintable():
        raise RelookError(f"expected a data spec of printable characters, got {spec!r}")
    prefix, _, rest = spec.partition(":")
    source = DATA_SOURCES.get(prefix)
    if source is None and Path(spec).expanduser().exists():
        raise RelookError(
            f"expected a source before the path, such as folder:{spec} for a directory with one "
            f"of images per class, got {spec!r}: the sources are {', '.join(DATA_SOURCES)}"
        )
    if source is None:
        raise unknown_name("data source", prefix, DATA_SOURCES)
    if not rest and not (source.bare and spec == prefix):
        raise RelookError(f"expected a data set as {source.form}, got {spec!r}")
    dataset = (source.load if labelled else source.load_unlabelled or source.load)(rest, wanted)
    if labelled and (dataset.labels == dataset.labels[0]).all():
        only = dataset.classes[dataset.labels[0]]
        raise RelookError(
            f"{spec}: expected images of at least two classes, but all {len(dataset)} "
            f"are labelled {only!r}"
        )
    dataset = dataset if source.prepares else fitted(dataset, wanted)
    _, channels, height, width = dataset.images.shape
    return replace(dataset, prepared=wanted.plan((height, width), channels))


def _unprepared(load: Callable[[str], Dataset]) -> Callable[[str, Preparation], Dataset]:
    """Adapt a loader of images that all have one size, which `load_data` prepares."""
    return lambda rest, _: load(rest)


_CORRUPTED = "?corruption=NAME&severity=1…5"
_ROWS = (
    DataSource(
        "digits", "digits, digits:train or digits:test", _unprepared(load_digits), bare=True
    ),
    DataSource(
        "npz",
        "npz:FILE[?layout=nchw|nhwc|nhw]",
        _unprepared(load_npz),
        load_unlabelled=_unprepared(partial(load_npz, labelled=False)),
    ),
    DataSource("folder", "folder:DIR", load_folder, prepares=True),
    DataSource("csv", "csv:FILE", load_csv, prepares=True),
    DataSource(
        "cifar10", "cifar10:DIR[?part=test|train|all]", _unprepared(partial(load_cifar, CIFAR10))
    ),
    DataSource(
        "cifar100", "cifar100:DIR[?part=test|train|all]", _unprepared(partial(load_cifar, CIFAR100))
    ),
    DataSource("idx", "idx:DIR[?part=test|train]", _unprepared(load_idx)),
    DataSource("hf", HF_FORM, load_hf_data, prepares=True),
    DataSource("cifar10c", f"cifar10c:DIR{_CORRUPTED}", _unprepared(partial(load_cifarc, 10))),
    DataSource("cifar100c", f"cifar100c:DIR{_CORRUPTED}", _unprepared(partial(load_cifarc, 100))),
    DataSource("imagenetc", f"imagenetc:DIR{_CORRUPTED}", load_imagenetc, prepares=True),
)


DATA_SOURCES = Table("data source", _ROWS, key="prefix")
"""All data sources by the prefix of their specs."""


def register_data_source(
    scheme: str, load: Callable[[str], object], *, form: str | None = None
) -> Callable[[str], object]:
    """Add a data source, so that the spec `scheme:REST` names labelled images.

    `load(REST)` returns uint8 images `[n, c, h, w]` and their labels `[n]`, or a `Dataset`, which
    can name its classes and groups. Images are brought to a model's size as those of any other
    source. `form` shows how such a spec looks. Returns the function.
    """
    shown = form or f"{scheme}:NAME"

    def adapted(rest: str) -> Dataset:
        found = load(rest)
        if isinstance(found, Dataset):
            return found
        if not isinstance(found, tuple) or len(found) != 2:
            raise RelookError(
                f"{scheme}:{rest}: expected images and labels, or a Dataset, from the data "
                f"source, got {type(found).__name__}"
            )
        images, labels = torch.as_tensor(found[0]), np.asarray(found[1])
        name = f"{scheme}:{rest}"
        return Dataset(images, labels, numbered_classes(labels, name), name)

    DATA_SOURCES.add(DataSource(scheme, shown, _unprepared(adapted)))
    return load
