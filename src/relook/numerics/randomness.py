"""Random numbers by counter: each is a pure function of its purpose.

Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) maps a
counter and a key to bits, so a draw needs no state, no order and no generator to pass around.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.errors import RelookError

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_ROUNDS = 10


class Stream(IntEnum):
    """The purpose of a draw; streams never share numbers."""

    VIEW = 0
    POOL = 1
    FREEZE = 2
    TRAIN = 3
    CORRUPT = 4


def philox(counter: NDArray[np.uint64], key: tuple[int, int]) -> NDArray[np.uint64]:
    """Return the four 32-bit words for each counter `[..., 4]` under a key of two words."""
    c0, c1, c2, c3 = (counter[..., i] for i in range(4))
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (second >> _SHIFT) ^ c1 ^ np.uint64(k0),
            second & _LOW,
            (first >> _SHIFT) ^ c3 ^ np.uint64(k1),
            first & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1)


def check_seed(seed: object) -> int:
    """Return the seed as an int of 64 bits, or raise."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise RelookError(f"expected a seed from 0 to 2^64 − 1, got {seed!r}")
    return int(seed)


def uniforms(
    seed: int,
    *,
    image: ArrayLike = 0,
    view: ArrayLike = 0,
    slot: ArrayLike = 0,
    stream: Stream = Stream.VIEW,
) -> NDArray[np.float64]:
    """Return uniform numbers in [0, 1) of 53 bits; image, view and slot (< 2^32) broadcast."""
    seed = check_seed(seed)
    words = np.broadcast_arrays(image, view, slot, np.uint64(stream))
    counter = np.stack([np.asarray(word, dtype=np.uint64) for word in words], axis=-1)
    bits = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    high, low = bits[..., 0] >> np.uint64(5), bits[..., 1] >> np.uint64(6)
    return (high.astype(np.float64) * 2.0**26 + low.astype(np.float64)) / 2.0**53
