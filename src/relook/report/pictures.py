"""Pictures of transforms and policies: grids of views with captions, drawn with Pillow."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from PIL.ImageFont import FreeTypeFont
from torch import Tensor

from relook.data.decode import Unreadable, decode_image
from relook.errors import FileFormatError, RelookError, unknown_name
from relook.io.files import one_line
from relook.policy import Policy, Step, SubPolicy
from relook.policy.recipes import RECIPES
from relook.policy.views import apply_subpolicy, make_views
from relook.transforms import TRANSFORMS, Transform
from relook.transforms.full_images import FullImages, plain_views

MAGNITUDES = tuple(float(m) for m in range(0, 50, 5))
"""The columns of the transforms' picture: 0, 5, …, 45."""

_PAPER = (255, 255, 255)
_INK = (28, 32, 38)
_FAINT = (110, 117, 128)
_GAP = 4
_MARGIN = 20
_SHOWN_SIDE = 96
# Pillow's built-in font has little more than ASCII.
_NOT_IN_FONT = str.maketrans({"−": "-", "×": "x"})
# One draw of each kind, so that the picture is always the same.
_SHOWN_DRAWS = {"sign": 1, "edge": 1, "flip": 0, "x": 0.5, "y": 0.5, "area": 0.5, "aspect": 0.5}


def builtin_picture(size: int = 96) -> Tensor:
    """Return a photograph that comes with scikit-learn, uint8 `[3, size, size]`."""
    from sklearn.datasets import load_sample_image

    photograph = Image.fromarray(load_sample_image("china.jpg")[:360, 30:390])
    return to_tensor(photograph.resize((size, size), Image.Resampling.LANCZOS))


def read_picture(path: Path, largest_side: int | None = None) -> Tensor:
    """Read an image file as uint8 `[3, h, w]`, upright, shrunk to `largest_side` if larger."""

    def shrunk(picture: Image.Image) -> Tensor:
        picture = picture.convert("RGB")
        if largest_side is not None:
            picture.thumbnail((largest_side, largest_side), Image.Resampling.LANCZOS)
        return to_tensor(picture)

    found = decode_image(path, shrunk)
    if isinstance(found, Unreadable):
        raise FileFormatError(f"{one_line(str(path))}: expected an image file, but {found.reason}")
    return found


def to_tensor(picture: Image.Image) -> Tensor:
    """Turn an RGB picture into uint8 `[3, h, w]`."""
    return torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1).contiguous()


def to_picture(image: Tensor) -> Image.Image:
    """Turn a uint8 image `[c, h, w]`, grey or colour, into an RGB picture."""
    array = image.cpu().expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(array)


def png_bytes(picture: Image.Image) -> bytes:
    """Return the picture as a PNG file."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def transforms_picture(
    image: Tensor, names: Sequence[str] | None = None, magnitudes: Sequence[float] = MAGNITUDES
) -> Image.Image:
    """Draw transforms × magnitudes on one image `[c, h, w]` (the paper's figure of samples).

    Each row is a transform, each column a magnitude; below each view is the value in the
    transform's own units. The four signed transforms have a row for each direction.
    """
    rows = []
    usual = (*RECIPES["imagenet"].transforms, "scale_crop_flip")
    for name in usual if names is None else names:
        row = TRANSFORMS.get(name)
        if row is None:
            raise unknown_name("transform", name, TRANSFORMS)
        ways: tuple[int | None, ...] = (1, -1) if row.signed else (None,)
        rows += [_transform_row(row, way, image, magnitudes) for way in ways]
    return draw_grid(rows, heads=[f"{m:g}" for m in magnitudes], corner="magnitude")


def policy_picture(policy: Policy, images: Tensor | FullImages) -> Image.Image:
    """Draw each distinct view of a policy, a row each, on the images `[n, c, h, w]`."""
    rows = [GridRow("image", cells=[to_picture(image) for image in plain_views(images)])]
    for subpolicy, count, views in policy_views(policy, images):
        cells = [to_picture(view) for view in views]
        rows.append(GridRow(f"{count} x", _lines(subpolicy), cells))
    return _in_columns(rows)


def policy_views(
    policy: Policy, images: Tensor | FullImages, indices: Sequence[int] | None = None
) -> Iterator[tuple[SubPolicy, int, Tensor]]:
    """Yield each distinct sub-policy with its count and its view of every image.

    A sub-policy with fresh draws is drawn as at its first place in the policy.
    """
    places = {sub: place for place, sub in reversed(list(enumerate(policy)))}
    numbers = np.asarray(range(len(images)) if indices is None else indices, dtype=np.int64)
    for sub, count in policy.counts():
        yield sub, count, apply_subpolicy(sub, images, numbers, policy.seed, places[sub])


def _lines(subpolicy: SubPolicy) -> list[str]:
    """Return the sub-policy's text, a line for each step, in characters that the font has."""
    return str(subpolicy).translate(_NOT_IN_FONT).split(" · ")


@dataclass(frozen=True)
class GridRow:
    """A row of a grid: its title, smaller lines below it, pictures, a caption for each."""

    title: str
    lines: Sequence[str] = ()
    cells: Sequence[Image.Image | None] = ()
    captions: Sequence[str] = ()

    @property
    def cell_width(self) -> int:
        """The width of the widest picture."""
        return max((cell.width for cell in self.cells if cell is not None), default=0)

    @property
    def height(self) -> int:
        """The height of the pictures with their captions, or of the text, and a gap."""
        pictures = max((cell.height for cell in self.cells if cell is not None), default=0)
        captions = 18 if any(self.captions) else 0
        return max(pictures + captions, 24 + 16 * len(self.lines)) + 2 * _GAP

    @property
    def text_width(self) -> float:
        """The width of title and lines."""
        lines = (_font(12).getlength(line) for line in self.lines)
        return max([_font(15).getlength(self.title), *lines])


def draw_grid(rows: Sequence[GridRow], heads: Sequence[str] = (), corner: str = "") -> Image.Image:
    """Draw rows of pictures with their titles at the left and column heads at the top."""
    if not rows:
        raise RelookError("expected at least one row of pictures to draw, got none")
    rows = [_enlarged(row) for row in rows]
    left = _MARGIN + 16 + round(max(row.text_width for row in rows))
    cell_width = max(row.cell_width for row in rows)
    columns = max(len(row.cells) for row in rows)
    top = _MARGIN + (26 if heads else 0)
    width = left + columns * (cell_width + _GAP) - _GAP + _MARGIN
    height = top + sum(row.height for row in rows) + _MARGIN - _GAP
    sheet = Image.new("RGB", (width, height), _PAPER)
    pen = ImageDraw.Draw(sheet)
    if heads:
        pen.text((_MARGIN, top - 8), corner, _FAINT, _font(12), anchor="ls")
    for column, head in enumerate(heads):
        centre = left + column * (cell_width + _GAP) + cell_width / 2
        pen.text((centre, top - 8), head, _INK, _font(12), anchor="ms")
    for row in rows:
        pen.text((_MARGIN, top + 2), row.title, _INK, _font(15), anchor="la")
        for number, line in enumerate(row.lines):
            pen.text((_MARGIN, top + 23 + 16 * number), line, _FAINT, _font(12), anchor="la")
        for column, cell in enumerate(row.cells):
            if cell is None:
                continue
            x = left + column * (cell_width + _GAP)
            sheet.paste(cell, (x, top))
            if column < len(row.captions):
                place = (x + cell.width / 2, top + cell.height + 13)
                pen.text(place, row.captions[column], _FAINT, _font(11), anchor="ms")
        top += row.height
    return sheet


def _in_columns(rows: Sequence[GridRow]) -> Image.Image:
    """Draw a long, narrow grid in columns side by side, about as wide as high."""
    whole = draw_grid(rows)
    columns = max(1, min(6, len(rows), round((whole.height / whole.width) ** 0.5)))
    if columns == 1:
        return whole
    length = -(-len(rows) // columns)
    parts = [draw_grid(rows[i : i + length]) for i in range(0, len(rows), length)]
    size = (sum(part.width for part in parts), max(part.height for part in parts))
    sheet = Image.new("RGB", size, _PAPER)
    left = 0
    for part in parts:
        sheet.paste(part, (left, 0))
        left += part.width
    return sheet


def _enlarged(row: GridRow) -> GridRow:
    """Enlarge small views by a whole factor, so that their pixels can be seen."""
    factor = max(1, _SHOWN_SIDE // max(1, row.cell_width))
    cells = [
        cell and cell.resize((cell.width * factor, cell.height * factor), Image.Resampling.NEAREST)
        for cell in row.cells
    ]
    return replace(row, cells=cells)


def _transform_row(
    row: Transform, direction: int | None, image: Tensor, magnitudes: Sequence[float]
) -> GridRow:
    draws = {name: _SHOWN_DRAWS[name] for name in row.draws} or None
    steps = [Step(row.name, magnitude, direction, draws) for magnitude in magnitudes]
    if row.trend == 0:  # the same at every magnitude: once is enough
        steps = steps[:1]
    views = [make_views(SubPolicy((step,)), image[None], seed=0)[0] for step in steps]
    sign = {None: "", 1: " +", -1: " -"}[direction]
    unit = "" if row.trend == 0 else row.unit
    captions = [] if row.trend == 0 else [_number(step.value) for step in steps]
    return GridRow(row.name + sign, [unit], [to_picture(view) for view in views], captions)


def _number(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{round(value, digits) + 0.0:g}"


@cache
def _font(size: int) -> FreeTypeFont:
    font = ImageFont.load_default(size)
    if not isinstance(font, FreeTypeFont):
        raise RelookError(
            "pictures need Pillow with FreeType: run  pip install --force-reinstall pillow"
        )
    return font
