import pytest
from tests.support import refused

from relook.foundation.registry import split_query

OPTIONS = {"part": ("test", "train"), "image": ()}


def test_a_name_and_what_is_said_after_it() -> None:
    assert split_query("some/dir", "idx", OPTIONS) == ("some/dir", {})
    assert split_query("dir?", "idx", OPTIONS) == ("dir", {})
    found = split_query("dir?part=train&image=a=b", "idx", OPTIONS)
    assert found == ("dir", {"part": "train", "image": "a=b"})


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("dir?parts=test", "unknown idx option 'parts': did you mean 'part'"),
        ("dir?part=tset", "unknown part 'tset': did you mean 'test'"),
        ("dir?part", "unknown part ''"),
        ("dir?image=", r"expected a value as \?image=VALUE"),
        ("dir?part=test&", "unknown idx option ''"),
    ],
)
def test_what_is_not_known_is_one_line(rest: str, message: str) -> None:
    refused(message, split_query, rest, "idx", OPTIONS)
