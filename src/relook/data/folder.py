"""Images in files: in folders, one per class, or listed in a CSV table."""

from __future__ import annotations

import csv
import io
import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relook.data.base import Dataset, named_labels, numbered_classes
from relook.data.decode import image_files
from relook.data.image_files import read_images
from relook.data.prepare import Preparation
from relook.errors import FileFormatError, RelookError
from relook.foundation.wording import first_few
from relook.io.files import one_line, read_bytes, reason_of

LARGEST_CSV = 512_000_000
_REQUIRED = ("path", "label")


def load_folder(rest: str, wanted: Preparation) -> Dataset:
    """Return the images of `DIR/CLASS/…`; the classes are the folders, sorted by name.

    Hidden files, files next to the class folders and files that are no images are ignored. A class
    folder may be a link, but links to folders inside it are not followed. The column `path`
    holds the images' files.
    """
    root = Path(rest).expanduser()
    where = f"folder:{one_line(rest)}"
    folders = {folder: _files(folder) for folder in _class_folders(root)}
    every = [path for found in folders.values() for path in found]
    images_only = set(image_files(every, wanted, where))
    files = {
        folder: [path for path in found if path in images_only] for folder, found in folders.items()
    }
    empty = [one_line(folder.name) for folder, paths in files.items() if not paths]
    if empty:
        raise RelookError(
            f"{root}: expected images in each class folder, but {len(empty)} of {len(files)} hold "
            f"none ({first_few(empty)}): remove them or fill them"
        )
    paths = [path for found in files.values() for path in found]
    labels = np.repeat(np.arange(len(files)), [len(found) for found in files.values()])
    classes = tuple(one_line(folder.name) for folder in files)
    images, kept, identities = read_images(paths, classes, wanted, where)
    names = [one_line(paths[i].relative_to(root).as_posix()) for i in kept]
    columns = {"path": np.array(names)}
    return Dataset(images, labels[kept], classes, where, columns=columns, identities=identities)


def _class_folders(root: Path) -> list[Path]:
    try:
        entries = sorted(root.iterdir(), key=lambda path: path.name)
    except (OSError, ValueError) as error:
        raise RelookError(
            f"{one_line(str(root))}: expected a folder with a folder of images for each class: "
            f"{reason_of(error)}"
        ) from None
    folders = [path for path in entries if not path.name.startswith(".") and _is_folder(path)]
    if len(folders) < 2:
        raise RelookError(
            f"{root}: expected a folder of images for each class, at least two, got "
            f"{len(folders)} folders and {len(entries) - len(folders)} other entries"
        )
    for folder in folders:
        _check_link(folder, root)
    return folders


def _check_link(folder: Path, root: Path) -> None:
    """Refuse a class that links to a place with other classes, as its images would count twice."""
    if folder.is_symlink() and not leads_elsewhere(folder, root):
        raise RelookError(
            f"{one_line(str(folder))}: expected a class of its own, got a link into {root} or "
            "above it: remove the link"
        )


def leads_elsewhere(link: Path, root: Path) -> bool:
    """Whether a link's target is neither in a folder nor above it."""
    target, home = link.resolve(), root.resolve()
    return not (target.is_relative_to(home) or home.is_relative_to(target))


def _files(folder: Path) -> list[Path]:
    """Return the files in a class folder, at any depth, sorted by name."""
    found = []
    for directory, folders, names in os.walk(folder, followlinks=False):
        here = Path(directory)
        linked = [name for name in folders if (here / name).is_symlink()]
        found += [here / name for name in (*names, *linked) if not name.startswith(".")]
        folders[:] = [name for name in folders if not name.startswith(".")]
    return sorted(found, key=lambda path: path.relative_to(folder).parts)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a link to itself, a folder without permission
        return False


def load_csv(rest: str, wanted: Preparation) -> Dataset:
    """Return the images listed in a table with a heading `path,label` and further columns.

    Relative paths start at the table's folder. Labels are class names, which are sorted; if all are
    whole numbers, they are the model's labels. The other columns are kept.
    """
    file = Path(rest).expanduser()
    rows = _rows(file)
    paths = [file.parent / path for path in rows["path"]]
    labels, classes = _labels(rows["label"], file)
    where = f"csv:{one_line(rest)}"
    images, kept, identities = read_images(paths, classes, wanted, where)
    columns = {
        name: np.array([cells[i] for i in kept]) for name, cells in rows.items() if name != "label"
    }
    return Dataset(images, labels[kept], classes, where, columns=columns, identities=identities)


def _rows(file: Path) -> dict[str, list[str]]:
    """Return the cells of each column by its heading."""
    content = read_bytes(file, what="a table of path,label", max_bytes=LARGEST_CSV)
    try:
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        reader = csv.reader(text, strict=True)
        table = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{file}: expected a CSV table in UTF-8: {error}") from None
    heading = [cell.strip() for cell in table[0][1]] if table else []
    if not set(_REQUIRED) <= set(heading) or len(set(heading)) < len(heading):
        shown = one_line(",".join(heading))[:80] or "nothing"
        raise FileFormatError(
            f"{file}: expected a first line with path,label and other columns, each once; "
            f"got {shown}"
        )
    for line, row in table[1:]:
        if len(row) != len(heading):
            raise FileFormatError(
                f"{file}: line {line}: expected {len(heading)} cells, got {len(row)}"
            )
    if len(table) < 2:
        raise FileFormatError(f"{file}: expected a row for each image, got only the heading")
    cells = zip(*(row for _, row in table[1:]), strict=True)
    return {
        name: [cell.strip() for cell in column] for name, column in zip(heading, cells, strict=True)
    }


def _labels(labels: list[str], file: Path) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if "" in labels:
        raise FileFormatError(
            f"{file}: expected a label for each image, but image {labels.index('') + 1} has none"
        )
    if all(re.fullmatch("[0-9]{1,9}", label) for label in labels):
        numbers = np.array([int(label) for label in labels])
        return numbers, numbered_classes(numbers, str(file))
    return named_labels(labels)
