"""Images listed in a CSV table: one path and label per row, and what else is known of each."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relook.data.base import Dataset, named_labels, numbered_classes
from relook.data.image_files import read_images
from relook.data.prepare import Preparation
from relook.errors import FileFormatError
from relook.io.files import one_line, read_bytes

LARGEST_CSV = 512_000_000
_NEEDED = ("path", "label")


def load_csv(rest: str, wanted: Preparation) -> Dataset:
    """Return the images that a table names, with a heading `path,label` and further columns.

    A relative path counts from the table. Labels are the names of classes, which are sorted;
    labels that are all whole numbers are the model's own. The other columns are kept.
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
    """Return the cells of each column, by its heading."""
    content = read_bytes(file, what="a table of path,label", max_bytes=LARGEST_CSV)
    try:
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        reader = csv.reader(text, strict=True)
        table = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{file}: expected a CSV table in UTF-8: {error}") from None
    heading = [cell.strip() for cell in table[0][1]] if table else []
    if not set(_NEEDED) <= set(heading) or len(set(heading)) < len(heading):
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
        raise FileFormatError(f"{file}: expected a row for each image, got the heading alone")
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
