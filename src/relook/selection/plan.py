"""Plan a selection's memory before it starts, and whether predictions are held or mapped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from relook.errors import RelookError
from relook.foundation.memory import check_limit, default_limit, size_text
from relook.selection import greedy
from relook.selection.conservative import MOST_CLASSES, MOST_VALUES
from relook.selection.greedy import COMPACT_FROM
from relook.selection.objectives import OBJECTIVES, UserObjective, resolve_objective

_LANES = 64  # images are padded to whole blocks
_KEPT = 31  # classes of an image in the compact form
_MIN_KEPT = 8
_FLOAT32, _UINT16 = 4, 2  # bytes
_SLOT_BYTES = 256 << 20  # for the candidates evaluated last
_MIN_SLOTS = 64
_AVERAGES = 8  # float64 arrays [image, class] that NumPy's scoring holds


@dataclass(frozen=True)
class SelectionPlan:
    """The memory of a selection, in bytes: `predictions`, and `working` memory besides.

    `mapped` predictions stay on disk and take no memory. `compact`: there are so many classes
    that the limit may decide how many of them propose candidates.
    """

    limit: int
    predictions: int
    working: int
    mapped: bool
    compact: bool

    @property
    def memory(self) -> int:
        """The memory that the selection takes."""
        return self.working + (0 if self.mapped else self.predictions)

    @property
    def beside(self) -> int:
        """The memory available besides the predictions."""
        return self.limit - (0 if self.mapped else self.predictions)

    def __str__(self) -> str:
        where = "mapped from disk" if self.mapped else "in memory"
        return (
            f"about {size_text(self.memory)} of memory, of {size_text(self.limit)} allowed; "
            f"{size_text(self.predictions)} of predictions, {where}"
        )


def selection_limit(memory: int | None, earlier: int | None = None) -> int:
    """Return the limit in bytes: as given, as in an `earlier` part, or a share of free memory."""
    if memory is not None:
        return check_limit(memory)
    return default_limit() if earlier is None else earlier


def plan_selection(
    shape: tuple[int, int, int],
    dtype: np.dtype[Any],
    objective: str | UserObjective,
    limit: int,
    *,
    on_disk: bool,
    conservative: bool = False,
    view_temperature: float | None = None,
) -> SelectionPlan:
    """Plan a selection from predictions `[k, n, c]` within a limit, or raise if it does not fit.

    Predictions that do not fit into memory are mapped, if they are `on_disk`. A `conservative`
    selection repeats images, once per possible class. A `view_temperature` other than 1, given or
    to be learned by a conservative selection, takes a copy of predictions in memory.
    """
    predictions = math.prod(shape) * dtype.itemsize
    compiled = is_compiled(shape, objective, conservative=conservative)
    compact = is_compact(shape, objective, conservative=conservative)
    needs = selection_needs if compiled else _plain_needs
    working = needs(shape)
    rows = repeated_images(shape) if conservative else 0
    if rows:
        larger = (shape[0], rows, shape[2])
        working = max(working, needs(larger) + 4 * math.prod(larger))
    has_copy = conservative if view_temperature is None else view_temperature != 1
    tempered = predictions if has_copy else 0
    mapped = on_disk and predictions + tempered + working > limit
    working += 0 if mapped else tempered
    room = limit - (0 if mapped else predictions)
    if room < (0 if compact else working):
        advice = "" if on_disk else ", or keep predictions on disk (a run, an .npy of log_probs)"
        raise _too_large(shape, limit - room + working, limit, advice)
    if compact:
        classes_to_keep(shape, room)
    return SelectionPlan(limit, predictions, min(working, room), mapped, compact)


def repeated_images(shape: tuple[int, int, int]) -> int:
    """Return the most rows that a conservative selection makes of the images; 0 if it cannot."""
    candidates, images, classes = shape
    most = MOST_VALUES // (candidates * classes)
    return min(MOST_CLASSES * images, most) if most >= images and classes < COMPACT_FROM else 0


def is_compiled(
    shape: tuple[int, int, int], objective: str | UserObjective, *, conservative: bool = False
) -> bool:
    """Whether predictions of this shape are searched by compiled kernels."""
    large = greedy.is_large(math.prod(shape), conservative=conservative)
    return large and resolve_objective(objective) is OBJECTIVES["cll"]


def is_compact(
    shape: tuple[int, int, int], objective: str | UserObjective, *, conservative: bool = False
) -> bool:
    """Whether a compact form, whose size depends on the memory limit, proposes candidates."""
    return is_compiled(shape, objective, conservative=conservative) and shape[2] >= COMPACT_FROM


def _plain_needs(shape: tuple[int, int, int]) -> int:
    averages = 8 * shape[1] * shape[2]
    return max(
        _AVERAGES * averages,
        min(greedy.BLOCK_BYTES, greedy.ARRAYS_IN_FLIGHT * averages * shape[0]),
    )


def _too_large(shape: tuple[int, ...], needed: int, limit: int, advice: str = "") -> RelookError:
    candidates, images, classes = shape
    return RelookError(
        f"selecting from {candidates:,} candidates × {images:,} images × {classes:,} classes "
        f"needs {size_text(needed)} of memory, got a limit of {size_text(limit)}: raise it, or "
        f"take fewer images or candidates{advice}"
    )


def selection_needs(shape: tuple[int, ...], kept: int = _KEPT) -> int:
    """Return about how many bytes a large cLL search of `[k, n, c]` predictions takes.

    The predictions themselves are not counted. With more than 200 classes, `kept` is how many
    of an image's classes the compact form holds.
    """
    candidates, images, classes = shape
    padded = -(-images // _LANES) * _LANES
    averages = 12 * _FLOAT32 * padded * classes
    if classes < COMPACT_FROM:
        held = _FLOAT32 + _UINT16 * classes  # at most: less if the model is sure
        return candidates * padded * held + slots(shape) * _slot_bytes(shape) + averages
    return _FLOAT32 * candidates * padded * (kept + 1) + averages


def slots(shape: tuple[int, ...]) -> int:
    """Return the number of candidates that are held with all their classes."""
    return min(shape[0], max(_MIN_SLOTS, _SLOT_BYTES // _slot_bytes(shape)))


def _slot_bytes(shape: tuple[int, ...]) -> int:
    return -(-shape[1] // _LANES) * _LANES * shape[2] * _FLOAT32


def check_memory(shape: tuple[int, ...], memory: int, kept: int = _KEPT) -> None:
    """Raise a RelookError if the search needs more than `memory` bytes."""
    needed = selection_needs(shape, kept)
    if needed > memory:
        raise _too_large(shape, needed, memory)


def classes_to_keep(shape: tuple[int, ...], memory: int) -> int:
    """Return how many classes of an image fit into `memory` bytes, or raise if none do."""
    kept = _KEPT
    while selection_needs(shape, kept) > memory and kept > _MIN_KEPT:
        kept -= 1
    check_memory(shape, memory, kept)
    return kept
