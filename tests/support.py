"""What tests of every package share."""

from collections.abc import Callable

import pytest

from relook.errors import RelookError


def refused(
    message: str, call: Callable[..., object], *arguments: object, **options: object
) -> None:
    """Check that a call ends in a RelookError of one line that matches the message."""
    with pytest.raises(RelookError, match=message) as caught:
        call(*arguments, **options)
    assert len(str(caught.value).splitlines()) == 1
