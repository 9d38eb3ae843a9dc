"""Image files → a data set's images: all of one size in memory, or kept at full size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from relook.data.decode import ImageFile, decode_all, look_at, report_faults
from relook.data.full_size import kept_images, read_full_images
from relook.data.prepare import Preparation, make_plan
from relook.transforms.full_images import FullImages


def read_images(
    files: Sequence[ImageFile], wanted: Preparation, where: str
) -> tuple[Tensor | FullImages, NDArray[np.int64]]:
    """Return the images of files, and which of the files they are.

    They are uint8 `[n, c, h, w]`, or kept at full size where that is wanted and they are not
    of the input's size already. Files that cannot be read raise one error that names the first
    and counts them, or are left out and told of with `skip_bad`.
    """
    if wanted.full_size:
        kept = kept_images(files, wanted, where)
        if kept is not None:
            return kept
    heads, faults = look_at(files, wanted)
    report_faults(faults, files, wanted, where)
    grey = all(head.grey for head in heads.values())
    plan = make_plan((head.size for head in heads.values()), grey, wanted, where)
    if wanted.full_size and plan.crop is not None:
        return read_full_images(files, heads, faults, plan, wanted, where)
    return decode_all(files, heads, plan, wanted, where)
