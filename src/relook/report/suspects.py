"""One self-contained HTML page of suspect labels: pictures, and what the views say of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from relook.evaluation.suspects import Suspects
from relook.io.files import write_text_atomic
from relook.report.gallery import picture_of
from relook.report.html import render
from relook.report.style import shorten

MOST = 60
_SIDE = 96


def save_suspects(
    suspects: Suspects, csv: str | Path | None = None, gallery: str | Path | None = None
) -> None:
    """Write the files that are asked for."""
    if csv is not None:
        suspects.to_csv(csv)
    if gallery is not None:
        write_gallery(suspects, gallery)


def write_gallery(suspects: Suspects, path: str | Path, most: int = MOST) -> None:
    """Write the page with the `most` suspect images, whole or not at all."""
    shown = suspects.found[:most]
    places = np.array([one.index for one in shown], dtype=np.int64)
    plain = suspects.dataset.subset(places).plain if shown else ()
    pictures = [picture_of(image, _SIDE) for image in plain]
    page = render(
        "suspects.html",
        suspects=suspects,
        cards=list(zip(shown, pictures, strict=True)),
        shorten=shorten,
        sections={},
    )
    write_text_atomic(Path(path), str(page))
