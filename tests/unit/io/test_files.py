import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import refused

from relook.errors import FileFormatError, RelookError
from relook.io.files import (
    describe,
    lock_file,
    one_line,
    read_bytes,
    read_json,
    write_bytes_atomic,
    write_json_atomic,
    write_text_atomic,
)


def test_a_file_is_written_with_its_parents(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.bin"
    write_bytes_atomic(path, b"one")
    write_bytes_atomic(str(path), b"two")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.bin"]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    write_bytes_atomic(tmp_path / "ours", b"")
    modes = {(tmp_path / name).stat().st_mode for name in ("plain", "ours")}
    assert len(modes) == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "file"
    write_bytes_atomic(path, b"old")

    def fail(_: int) -> None:
        assert len(list(tmp_path.iterdir())) == 2  # the half-written one is beside it
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    expected = RelookError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        write_bytes_atomic(path, b"new")
    monkeypatch.undo()
    if isinstance(error, OSError):
        assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target = tmp_path / "real" / "file"
    write_bytes_atomic(target, b"old")
    (tmp_path / "link").symlink_to(target)
    write_bytes_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert target.read_bytes() == b"new"


def _into_a_file(path: Path) -> Path:
    (path / "file").write_bytes(b"")
    return path / "file" / "inner"


def _pipe(path: Path) -> Path:
    os.mkfifo(path / "pipe")
    return path / "pipe"


@pytest.mark.parametrize(
    "make",
    [lambda path: path, _into_a_file, _pipe, lambda path: path / ("n" * 300), lambda _: "a\0b"],
    ids=["directory", "below a file", "pipe", "name too long", "null byte"],
)
def test_what_cannot_be_written_is_one_line(
    tmp_path: Path, make: Callable[[Path], str | Path]
) -> None:
    path = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RelookError, match=r"^cannot write .+: .+$") as caught:
        write_text_atomic(path, "text")
    assert str(caught.value).isprintable()
    assert sorted(tmp_path.iterdir()) == before


def test_text_that_is_not_unicode_is_refused_before_a_file_is_made(tmp_path: Path) -> None:
    refused("character 1 is not Unicode", write_text_atomic, tmp_path / "file", "a\ud800")
    assert not list(tmp_path.iterdir())


def test_json_keeps_its_order_and_ends_in_a_newline(tmp_path: Path) -> None:
    write_json_atomic(tmp_path / "file.json", {"b": [1, 0.1], "a": "größer ≥"})
    text = (tmp_path / "file.json").read_text(encoding="utf-8")
    assert text == '{\n  "b": [\n    1,\n    0.1\n  ],\n  "a": "größer ≥"\n}\n'


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**399), 10**399)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('ab"\\é'), inner),
    max_leaves=8,
)


@given(content=_JSON)
def test_json_comes_back_exactly(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    path = tmp_path_factory.mktemp("json") / "file.json"
    write_json_atomic(path, content)
    assert repr(read_json(path, what="JSON")) == repr(content)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "unusable JSON: Expecting value (line 1, column 1)"),
        (b'{\n "a": 1,\n "b"}', "unusable JSON: Expecting ':' delimiter (line 3, column 5)"),
        (b'{"a": 1} x', "unusable JSON: Extra data (line 1, column 10)"),
        (b'["\xff"]', "bytes that are not UTF-8 text (invalid start byte)"),
        (b'["NaN",\n  NaN]', "unusable JSON: NaN is not a JSON number (line 2, column 3)"),
        (b"[-Infinity]", "unusable JSON: -Infinity is not a JSON number (line 1, column 2)"),
        (
            b'["1e999", 1e99,\n1e999]',
            "unusable JSON: a number beyond the range of a float (line 2, column 1)",
        ),
        (b"[" + b"9" * 5000 + b"]", "unusable JSON: an integer of 5000 digits (line 1, column 2)"),
        (b'{"a": {"b": 1, "b": 2}}', 'unusable JSON: the key "b" twice in one object'),
        (b"[" * 200_000, "unusable JSON: nested too deeply"),
        (b'{"a":' * 200_000, "unusable JSON: nested too deeply"),
        (b" " * 2_000_001, "more than the allowed 2,000,000 bytes"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_bad_json_says_what_and_where(tmp_path: Path, data: bytes, problem: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(data)
    with pytest.raises(FileFormatError) as caught:
        read_json(path, what="a policy", max_bytes=2_000_000)
    assert str(caught.value) == f"{path}: expected a policy, got {problem}"


def test_a_byte_order_mark_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file.json").write_bytes(b"\xef\xbb\xbf[1]")
    assert read_json(tmp_path / "file.json", what="JSON") == [1]


def test_what_is_not_a_file_is_not_read(tmp_path: Path) -> None:
    for path, got in (
        (tmp_path / "none", "nothing: there is no such file"),
        (tmp_path, "a directory"),
        (_pipe(tmp_path), "something that is not a file"),
    ):
        with pytest.raises(FileFormatError) as caught:
            read_bytes(path, what="a policy", max_bytes=10)
        assert str(caught.value) == f"{path}: expected a policy, got {got}"


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(FileFormatError, match=r"^cannot read .*file: Permission denied$"):
        read_bytes(tmp_path / "file", what="a policy", max_bytes=10)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (2**200, "a huge number"),
        ("größer", '"größer"'),
        ("a\n\x1b[31m", json.dumps("a\n\x1b[31m")),
        ("x" * 1000, '"' + "x" * 39 + '…"'),
        ([[1], 2], "a list of 2"),
        ({}, "an object"),
        (b"", "a bytes"),
    ],
)
def test_values_are_described_in_a_few_words(value: object, text: str) -> None:
    assert describe(value) == text


def test_one_line() -> None:
    assert one_line("a path ≥ b") == "a path ≥ b"
    assert one_line("a\nb") == "'a\\nb'"


def test_a_file_is_held_by_one_and_free_once_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("wb") as held:
        lock_file(held.fileno(), wait=True)
        held.write(b"mine")
        held.flush()
        with path.open("rb") as other, pytest.raises(BlockingIOError):
            lock_file(other.fileno(), wait=False)
        assert path.read_bytes() == b"mine"
    with path.open("rb") as other:
        lock_file(other.fileno(), wait=False)
