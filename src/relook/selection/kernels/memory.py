"""How much memory the compiled scorers take, known before a search starts."""

from __future__ import annotations

from relook.errors import RelookError
from relook.foundation.memory import size_text

COMPACT_FROM = 201
"""From how many classes on the compact form is used."""

_LANES = 64  # images are rounded up to whole blocks
_KEPT = 31  # classes of an image in the compact form
_FEWEST_KEPT = 8
_FLOAT32, _SHORT = 4, 2

_SLOT_BYTES = 256 << 20  # for the candidates that were evaluated last
_FEWEST_SLOTS = 64


def selection_needs(shape: tuple[int, ...], kept: int = _KEPT) -> int:
    """Return about how many bytes a large cLL search of `[k, n, c]` predictions takes.

    The predictions themselves are not counted. With more than 200 classes, `kept` is how many
    of an image's classes the compact form holds.
    """
    candidates, images, classes = shape
    padded = -(-images // _LANES) * _LANES
    averages = 12 * _FLOAT32 * padded * classes
    if classes < COMPACT_FROM:
        held = _FLOAT32 + _SHORT * classes  # less, by how sure the model is
        return candidates * padded * held + slots(shape) * _slot_bytes(shape) + averages
    return _FLOAT32 * candidates * padded * (kept + 1) + averages


def slots(shape: tuple[int, ...]) -> int:
    """Return how many candidates with all their classes are held."""
    return min(shape[0], max(_FEWEST_SLOTS, _SLOT_BYTES // _slot_bytes(shape)))


def _slot_bytes(shape: tuple[int, ...]) -> int:
    return -(-shape[1] // _LANES) * _LANES * shape[2] * _FLOAT32


def check_memory(shape: tuple[int, ...], memory: int, kept: int = _KEPT) -> None:
    """Raise a RelookError if the search needs more than `memory` bytes."""
    needed = selection_needs(shape, kept)
    if needed > memory:
        raise RelookError(
            f"the search of {shape[0]} candidates × {shape[1]} images × {shape[2]} classes needs "
            f"{size_text(needed)} of memory, got a limit of {size_text(memory)}: raise the "
            "limit, or search fewer candidates or images"
        )


def classes_to_keep(shape: tuple[int, ...], memory: int) -> int:
    """Return how many classes of an image fit into `memory` bytes, or say what is needed."""
    kept = _KEPT
    while selection_needs(shape, kept) > memory and kept > _FEWEST_KEPT:
        kept -= 1
    check_memory(shape, memory, kept)
    return kept
