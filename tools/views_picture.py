"""Draw the picture of the page on which views to average: the usual ones, side by side.

python tools/views_picture.py docs/images/which-views.png
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch import Tensor

from relook import Policy, Step, SubPolicy, make_views
from relook.data import load_data
from relook.policy.pool import quasi_random_views
from relook.policy.presets import five_crops, mirror_image
from relook.report.pictures import GridRow, builtin_picture, draw_grid, to_picture

LEARNED = tuple(
    SubPolicy((step,), Step("reflect_crop", 4, draws={"x": x, "y": 0.5}))
    for x, step in (
        (0.5, Step("rotate", 8.0, draws={"sign": 1})),
        (0.2, Step("shear_x", 10.0, draws={"sign": -1, "edge": 0})),
        (0.8, Step("brightness", 12.0)),
        (0.4, Step("autocontrast", 12.0)),
        (0.6, Step("cutout", 15.0, draws={"x": 0.25, "y": 0.75})),
    )
)
"""What learned views look like, not those of any one search."""


def row(title: str, line: str, image: Tensor, views: tuple[SubPolicy, ...]) -> GridRow:
    """Return a row with views of an image `[c, h, w]`."""
    drawn = [make_views(view, image[None], seed=0)[0] for view in Policy(views).subpolicies]
    return GridRow(title, [line], [to_picture(view) for view in drawn])


def main() -> None:
    """Write the picture to the path given."""
    photo, small = builtin_picture(112), builtin_picture(32)
    digit = load_data("digits").plain[12].expand(3, -1, -1)
    border = {"x": 0.0, "y": 0.0}
    edges = tuple(SubPolicy((), Step(name, 8, draws=border)) for name in ("crop", "reflect_crop"))
    rows = [
        row("mirror image", "the first two views", photo, mirror_image()),
        row("five crops", "corners and centre", photo, five_crops()),
        row("crops, photo", "all scales, even spread", photo, quasi_random_views("imagenet", 5)),
        row("crops, 32 pixels", "shifts, even spread", small, quasi_random_views("cifar", 5)),
        row("learned", "changed slightly", small, LEARNED),
        row("border", "black, or mirrored", small, edges),
        row("mirrored digit", "no digit any more", digit, mirror_image()),
    ]
    Path(sys.argv[1]).parent.mkdir(parents=True, exist_ok=True)
    draw_grid(rows).quantize(128).save(sys.argv[1], optimize=True)


if __name__ == "__main__":
    main()
