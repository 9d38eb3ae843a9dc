"""What tests of every package share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from relook.errors import RelookError
from relook.foundation.registry import Table
from relook.io.identities import Identities


def refused(
    message: str,
    call: Callable[..., object],
    *arguments: object,
    error: Any = RelookError,
    **options: object,
) -> None:
    """Check that a call ends in a RelookError of one line that matches the message."""
    with pytest.raises(error, match=message) as caught:
        call(*arguments, **options)
    assert len(str(caught.value).splitlines()) == 1


def different(images: int) -> Identities:
    """Say of so many images that none is a copy of another, though they may look alike."""
    return 2 * np.arange(1, images + 1, dtype=np.uint64)


@contextmanager
def own_rows(*tables: Table[Any]) -> Iterator[None]:
    """Take out at the end of a `with` block what was registered in it."""
    before = [dict(table) for table in tables]
    try:
        yield
    finally:
        for table, rows in zip(tables, before, strict=True):
            table._rows = rows
