"""Numbers that identify images by their source, however they are read.

An image from a file is identified by the file's bytes, one from an array by its pixels there, so
size, crop, channels, order and labels do not matter. Sets of images are stored as sorted bytes, 6
per image: of 10^8 other images, one would be found in a set of a million by mistake.
"""

from __future__ import annotations

import hashlib
import struct
from typing import IO

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from relook.errors import RelookError

Identities = NDArray[np.uint64]
"""A number per image `[n]`: even from pixels, odd from a file, 0 if unknown."""

BYTES = 6
"""The size of an image's entry in a set."""

UNKNOWN = bytes(BYTES)
"""The set of unknown images; as an entry of a set, it says that the set has unknown members."""

_FROM_PIXELS, _FROM_FILE = 0, 1
_PART = 1 << 20  # how many bytes of a file are hashed at a time


def pixel_identities(images: Tensor | NDArray[np.uint8]) -> Identities:
    """Return the identities of images by their pixels, uint8 `[n, c, h, w]`."""
    levels = np.ascontiguousarray(images.cpu().numpy() if isinstance(images, Tensor) else images)
    shape = struct.pack("<3I", *levels.shape[1:])
    digests = (hashlib.blake2b(image, digest_size=BYTES, person=shape).digest() for image in levels)
    return np.array([_number(digest, _FROM_PIXELS) for digest in digests], dtype=np.uint64)


def file_identity(content: IO[bytes]) -> int:
    """Return the identity of an image file by all of its bytes."""
    digest = hashlib.blake2b(digest_size=BYTES)
    while part := content.read(_PART):
        digest.update(part)
    return _number(digest.digest(), _FROM_FILE)


def copy_numbers(identities: Identities) -> NDArray[np.int64] | None:
    """Return a number per image `[n]` that only exact copies share; None if there are no copies."""
    _, first, numbers = np.unique(identities, return_index=True, return_inverse=True)
    own = np.where(identities == 0, np.arange(len(identities)), first[numbers])
    return None if len(np.unique(own)) == len(own) else own


def set_of(identities: Identities) -> bytes:
    """Return images as a set; unknown images become one unknown entry."""
    words = np.unique(identities).astype(">u8")
    return words.view(np.uint8).reshape(-1, 8)[:, 8 - BYTES :].tobytes()


def union(*sets: bytes) -> bytes:
    """Return the images that are in any of the sets."""
    return set_of(np.concatenate([_members(each) for each in (b"", *sets)]))


def is_in(identities: Identities, images: bytes) -> NDArray[np.bool_]:
    """Return which images `[n]` are known to be in a set."""
    return np.asarray(np.isin(identities, _members(images)) & (identities != 0))


def why_unknown(identities: Identities, images: bytes) -> str:
    """Return why `is_in` may miss images that are in the set; empty if it cannot."""
    members = _members(images)
    if not len(members):
        return ""
    if not members.all():
        return "it does not say which"
    if not identities.all():
        return "the source of these images is not known"
    kinds = np.unique(identities % 2), np.unique(members % 2)
    if any(len(kind) > 1 for kind in kinds) or kinds[0][0] != kinds[1][0]:
        return "some were read from files and some from arrays"
    return ""


def checked_set(images: object) -> bytes:
    """Return a set of images; raise if it is malformed."""
    if not isinstance(images, bytes) or len(images) % BYTES:
        size = f"{len(images)} bytes" if isinstance(images, bytes) else repr(images)
        raise RelookError(f"expected a set of images as bytes, {BYTES} per image, got {size:.60}")
    return images


def _members(images: bytes) -> Identities:
    words = np.zeros((len(images) // BYTES, 8), np.uint8)
    words[:, 8 - BYTES :] = np.frombuffer(images, np.uint8).reshape(-1, BYTES)
    return words.view(">u8").reshape(-1).astype(np.uint64)


def _number(digest: bytes, kind: int) -> int:
    """Return a digest as a number above 0, whose lowest bit says what was hashed."""
    return max(int.from_bytes(digest) & ~1, 2) | kind
