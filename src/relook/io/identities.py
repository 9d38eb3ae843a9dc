"""Which image is this? A number per image that follows from its source, not from how it is read.

An image of a file is known by the file's bytes, one of an array by its pixels as they stand there:
size, crop, channels, order and labels change nothing. Sets of images are kept as bytes, sorted, 6
per image: in a collection of a million, one in 10^8 others would be taken for one of it.
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
"""What identifies each image `[n]`: even of pixels, odd of a file, 0 where it is not known."""

BYTES = 6
"""What an image takes in a set of them."""

UNKNOWN = bytes(BYTES)
"""The set of images that are not known; as a part of another, that there are others in it."""

_FILE = 1
_PART = 1 << 20  # bytes of a file that are hashed at a time


def pixel_identities(images: Tensor | NDArray[np.uint8]) -> Identities:
    """Return what identifies images by their pixels, uint8 `[n, c, h, w]`."""
    levels = np.ascontiguousarray(images.cpu().numpy() if isinstance(images, Tensor) else images)
    shape = struct.pack("<3I", *levels.shape[1:])
    digests = (hashlib.blake2b(one, digest_size=BYTES, person=shape).digest() for one in levels)
    return np.array([_number(digest, 0) for digest in digests], dtype=np.uint64)


def file_identity(content: IO[bytes]) -> int:
    """Return what identifies the image of a file, by all of its bytes."""
    digest = hashlib.blake2b(digest_size=BYTES)
    while part := content.read(_PART):
        digest.update(part)
    return _number(digest.digest(), _FILE)


def copy_numbers(identities: Identities) -> NDArray[np.int64] | None:
    """Return a number per image that only its exact copies share; None if there are none."""
    _, first, numbers = np.unique(identities, return_index=True, return_inverse=True)
    own = np.where(identities == 0, np.arange(len(identities)), first[numbers])
    return None if len(np.unique(own)) == len(own) else own


def set_of(identities: Identities) -> bytes:
    """Return images as a set; one that is not known stays in it as such."""
    words = np.unique(identities).astype(">u8")
    return words.view(np.uint8).reshape(-1, 8)[:, 8 - BYTES :].tobytes()


def union(*sets: bytes) -> bytes:
    """Return the images that are in any of the sets."""
    return set_of(np.concatenate([_members(one) for one in (b"", *sets)]))


def is_in(identities: Identities, images: bytes) -> NDArray[np.bool_]:
    """Return which images `[n]` are known to be in a set."""
    return np.asarray(np.isin(identities, _members(images)) & (identities != 0))


def why_unknown(identities: Identities, images: bytes) -> str:
    """Say why some of the images could be in a set without being found there; nothing if not."""
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
    """Return a set of images, or raise."""
    if not isinstance(images, bytes) or len(images) % BYTES:
        size = f"{len(images)} bytes" if isinstance(images, bytes) else repr(images)
        raise RelookError(f"expected a set of images as bytes, {BYTES} per image, got {size:.60}")
    return images


def _members(images: bytes) -> Identities:
    words = np.zeros((len(images) // BYTES, 8), np.uint8)
    words[:, 8 - BYTES :] = np.frombuffer(images, np.uint8).reshape(-1, BYTES)
    return words.view(">u8").reshape(-1).astype(np.uint64)


def _number(digest: bytes, kind: int) -> int:
    """Return a digest as a number that is never 0 and says by its lowest bit what was read."""
    return max(int.from_bytes(digest) & ~1, 2) | kind
