from pathlib import Path

import pytest
from tests.support import refused

from relook.foundation import memory
from relook.foundation.memory import (
    available_memory,
    check_limit,
    default_limit,
    parse_size,
    size_text,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500M", 500_000_000),
        ("8G", 8_000_000_000),
        ("8GB", 8_000_000_000),
        ("8gb", 8_000_000_000),
        ("8GiB", 8 << 30),
        ("8 GiB", 8 << 30),
        ("1.5g", 1_500_000_000),
        ("64MiB", 64 << 20),
        ("2000k", 2_000_000),
        ("1T", 10**12),
        ("3000000", 3_000_000),
        ("3000000B", 3_000_000),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "8 gigs", "-1G", "8iB", "1e9", "0x10", "8GG", "9" * 30])
def test_other_sizes_are_refused(text: str) -> None:
    refused("--memory: expected a size like 500M, 8G or 8GiB", parse_size, text)


@pytest.mark.parametrize("text", ["8", "16", "0", "999k"])
def test_a_forgotten_unit_is_noticed(text: str) -> None:
    refused(r"at least 1\.0 MB, got .*: write 500M", parse_size, text)


@pytest.mark.parametrize("size", [1e9, "8G", True, None])
def test_a_limit_from_python_is_a_number_of_bytes(size: object) -> None:
    refused("whole number of bytes", check_limit, size)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (999.6, "1.0 kB"),
        (1500, "1.5 kB"),
        (123_456, "123 kB"),
        (999_600, "1.0 MB"),
        (45e9, "45.0 GB"),
        (2.5e12, "2.5 TB"),
        (5e15, "5000 TB"),
    ],
)
def test_sizes_are_told_in_three_digits(size: float, text: str) -> None:
    assert size_text(size) == text


def test_the_default_is_a_share_of_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0 < default_limit() < available_memory() * 1.5
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:   10000 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path / "max")
    assert available_memory() == 10_240_000
    assert default_limit() == int(0.7 * 10_240_000)
    (tmp_path / "max").write_text("max\n")
    assert available_memory() == 10_240_000
    (tmp_path / "max").write_text("4096000\n")
    assert available_memory() == 4_096_000
    (tmp_path / "meminfo").write_text("nothing of use")
    assert available_memory() == 4_096_000
