import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from msgspec import Meta
from tests.support import refused

from relook.errors import FileFormatError, RelookError
from relook.io.records import Form, Kind, checksum, convert


@dataclass(frozen=True)
class Part:
    size: int
    share: Annotated[float, Meta(ge=0, le=1, description="a share from 0 to 1")] = 0.5

    def __post_init__(self) -> None:
        if self.size == 13:
            raise ValueError("thirteen is not a size")
        if self.size == 14:
            raise RelookError("fourteen is not a size")


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    named: Mapping[str, Part] = field(default_factory=dict)
    sign: Literal[-1, 1] = 1
    note: str | None = None
    free: Mapping[str, Any] = field(default_factory=dict)


KIND = Kind(Whole, "relook-whole", 2, "a whole", "make")
WHOLE = Whole((Part(1), Part(2, 0.1 + 0.2)), {"a b": Part(3)}, -1, "größer", {"x": [1, None]})


def written(**changes: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(KIND.to_json(WHOLE))), **changes}


@pytest.mark.parametrize("checksummed", [False, True])
def test_a_record_comes_back_exactly(tmp_path: Path, checksummed: bool) -> None:
    kind = Kind(Whole, "relook-whole", 2, "a whole", checksum=checksummed)
    kind.write(tmp_path / "whole.json", WHOLE)
    assert kind.read(tmp_path / "whole.json") == WHOLE


def test_the_head_stands_first_and_the_checksum_last() -> None:
    kind = Kind(Part, "relook-part", 1, "a part", checksum=True)
    content = kind.to_json(Part(3))
    assert list(content) == ["format", "version", "size", "share", "crc32"]
    assert kind.from_json(content, "here") == Part(3)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"format": "x"}, 'expected a whole ("format": "relook-whole"), got "x"'),
        ({"version": True}, "version: expected the number 2, got true"),
        ({"version": 1}, "expected version 2, got version 1"),
        ({"version": 3, "extra": 1}, "expected version 2, got version 3, written by a newer"),
        ({"parts": 3}, "parts: expected a list, got 3"),
        ({"parts": [3]}, "parts[0]: expected an object with size, share, got 3"),
        ({"parts": [{}]}, 'parts[0]: expected the key "size", got none'),
        ({"parts": [{"size": 1.0}]}, "parts[0].size: expected a whole number, got 1.0"),
        ({"parts": [{"size": 10**30}]}, "parts[0].size: expected a whole number, got 1000"),
        ({"parts": [{"size": 13}]}, "parts[0]: thirteen is not a size"),
        ({"parts": [{"size": 14}]}, "fourteen is not a size"),
        ({"parts": [{"size": 1, "share": 2}]}, "parts[0].share: expected a share from 0 to 1"),
        ({"parts": [{"size": 1, "shar": 1}]}, "parts[0]: unknown key 'shar': did you mean 'share'"),
        ({"named": {"a": {"size": 1}, "b c": {"size": "x"}}},
         'named.b c.size: expected a whole number, got "x"'),
        ({"named": {"a\n": {"size": None}}}, 'named."a\\n".size: expected a whole number, got nu'),
        ({"named": {"b": {"size": 1, "y": 1}}}, "named.b: unknown key 'y'"),
        ({"sign": 0}, "sign: expected -1 or 1, got 0"),
        ({"note": 3}, "note: expected a text, got 3"),
        ({"free": []}, "free: expected an object, got a list of 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        KIND.from_json(written(**changes), "whole.json")
    text = str(caught.value)
    assert text.startswith(f"whole.json: {problem}")
    assert text.endswith("; run  relook make  again")
    assert text.isprintable()


@pytest.mark.parametrize("content", [None, 3, "x", [], {}])
def test_other_content_is_refused(content: object) -> None:
    refused("expected a whole", KIND.from_json, content, "here", error=FileFormatError)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: {**content, "size": 4},
        lambda content: {**content, "crc32": content["crc32"] ^ 1},
        lambda content: {key: value for key, value in content.items() if key != "crc32"},
    ],
)
def test_damage_is_found_by_the_checksum(damage: Callable[[Any], Any]) -> None:
    kind = Kind(Part, "relook-part", 1, "a part", checksum=True)
    with pytest.raises(FileFormatError, match="got a damaged one"):
        kind.from_json(damage(kind.to_json(Part(3))), "here")
    content = {"format": "relook-part", "version": 1, "size": 5}
    assert kind.from_json({**content, "crc32": checksum(content)}, "here") == Part(5)


def test_a_file_that_is_read_in_part_may_hold_more() -> None:
    kind = Kind(Part, "relook-part", None, "a part", partly=True)
    assert kind.from_json({"format": "relook-part", "size": 1, "more": 2}, "here") == Part(1)


def test_a_field_may_have_a_form_of_its_own() -> None:
    def read(content: object, where: str) -> str:
        if not isinstance(content, list):
            raise FileFormatError(f"{where}: expected letters")
        return "".join(content)

    kind = Kind(Whole, "relook-whole", 2, "a whole", forms={"note": Form(list, read)})
    content = kind.to_json(WHOLE)
    assert content["note"] == list("größer")
    assert kind.from_json(content, "here") == WHOLE
    with pytest.raises(FileFormatError, match="here: note: expected letters"):
        kind.from_json({**content, "note": 3}, "here")


def test_what_json_does_not_know_is_written_where_it_is_exact() -> None:
    part = Part(1, np.float64(0.1))
    assert KIND.to_json(Whole((part,), MappingProxyType({"a": part})))["named"] == {
        "a": {"size": 1, "share": 0.1}
    }
    with pytest.raises(TypeError, match="cannot write a int64"):
        KIND.to_json(Whole((Part(np.int64(3)),)))  # type: ignore[arg-type]


def test_a_long_name_is_cut_in_the_message() -> None:
    with pytest.raises(FileFormatError) as caught:
        convert({"size": 1, "x" * 10**6: 1}, Part, "here")
    assert len(str(caught.value)) < 200
