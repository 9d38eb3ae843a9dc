import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import refused

from relook.io.identities import (
    BYTES,
    UNKNOWN,
    Identities,
    checked_set,
    file_identity,
    is_in,
    pixel_identities,
    set_of,
    union,
    why_unknown,
)

NUMBERS = st.lists(st.integers(0, 2 ** (8 * BYTES) - 1)).map(lambda n: np.array(n, np.uint64))
PIXELS, FILES = np.array([4, 6], np.uint64), np.array([5, 9], np.uint64)


@given(NUMBERS, NUMBERS)
def test_sets_are_those_of_python(
    one: Identities,
    other: Identities,
) -> None:
    both = union(set_of(one), set_of(other))
    assert len(both) == BYTES * len({*one.tolist(), *other.tolist()})
    assert both == union(set_of(other), set_of(one)) == set_of(np.concatenate([one, other]))
    expected = [bool(number) and number in other.tolist() for number in one.tolist()]
    assert is_in(one, set_of(other)).tolist() == expected


def test_pixels_and_their_shape_make_an_identity() -> None:
    images = torch.arange(2 * 24, dtype=torch.uint8).reshape(2, 1, 4, 6)
    known = pixel_identities(images)
    assert len(set(known.tolist())) == 2
    assert not (known % 2).any()
    assert (known == pixel_identities(images.numpy())).all()
    assert (known[::-1] == pixel_identities(images.flip(0))).all()
    assert not (known == pixel_identities(images.reshape(2, 1, 6, 4))).any()


def test_all_bytes_of_a_file_make_an_identity() -> None:
    content = bytes(range(256)) * 10_000
    whole, cut = (file_identity(io.BytesIO(one)) for one in (content, content[:-1]))
    assert whole == file_identity(io.BytesIO(content))
    assert whole != cut
    assert whole % 2 == 1


@pytest.mark.parametrize(
    ("images", "seen", "why"),
    [
        (PIXELS, b"", ""),
        (PIXELS, set_of(PIXELS), ""),
        (FILES, set_of(FILES), ""),
        (PIXELS, UNKNOWN, "does not say which"),
        (PIXELS, union(UNKNOWN, set_of(PIXELS)), "does not say which"),
        (PIXELS, set_of(PIXELS) + UNKNOWN, "does not say which"),
        (np.zeros(2, np.uint64), set_of(PIXELS), "source of these images"),
        (PIXELS, set_of(FILES), "some from arrays"),
        (FILES, union(set_of(FILES), set_of(PIXELS)), "some from arrays"),
    ],
)
def test_what_cannot_be_known_has_a_reason(images: Identities, seen: bytes, why: str) -> None:
    assert why in why_unknown(images, seen)
    assert bool(why) == bool(why_unknown(images, seen))


def test_a_cut_set_is_refused() -> None:
    refused("6 per image, got 5 bytes", checked_set, bytes(5))
    refused("6 per image, got 'abc'", checked_set, "abc")
