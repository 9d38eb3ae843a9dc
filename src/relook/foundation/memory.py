"""Amounts of memory: read from text, written as text, and how much of it is free."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from relook.errors import RelookError

SHARE = 0.7
"""The share of the free memory that a selection may take by default."""

_UNITS = ("", "k", "m", "g", "t")
_SMALLEST_LIMIT = 10**6
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def parse_size(text: str, option: str = "--memory") -> int:
    """Read `500M`, `8G`, `8GB` (powers of 1000) or `8GiB` (powers of 1024): bytes."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?", text.strip().lower())
    if found is None or (found[3] and not found[2]) or len(found[1]) > 15:
        raise RelookError(f"{option}: expected a size like 500M, 8G or 8GiB, got {text!r}")
    unit = (1024 if found[3] else 1000) ** _UNITS.index(found[2])
    return check_limit(int(float(found[1]) * unit), option)


def check_limit(size: int, name: str = "memory") -> int:
    """Return a limit in bytes; raise unless it is a whole number of a plausible size."""
    if isinstance(size, bool) or not isinstance(size, int):
        raise RelookError(f"{name}: expected a whole number of bytes, got {size!r}")
    if size < _SMALLEST_LIMIT:
        raise RelookError(
            f"{name}: expected at least {size_text(_SMALLEST_LIMIT)}, got {size:,} bytes: "
            "write 500M for megabytes, 8G for gigabytes"
        )
    return size


def size_text(size: float) -> str:
    """Return bytes as text: `512 kB`, `1.5 GB`."""
    if size < 999.5:
        return f"{size:.0f} bytes"
    power = next((p for p in (1, 2, 3) if size < 999.5 * 1000**p), 4)
    number, unit = size / 1000**power, ("kB", "MB", "GB", "TB")[power - 1]
    return f"{number:.0f} {unit}" if number >= 99.95 else f"{number:.1f} {unit}"


def default_limit() -> int:
    """Return the default limit in bytes: `SHARE` of the memory that is free now."""
    return max(_SMALLEST_LIMIT, int(SHARE * available_memory()))


def half_of_memory() -> int:
    """Return half of this machine's memory in bytes, the most that a data set may take."""
    return _memory() // 2


def _memory() -> int:
    if sys.platform == "win32":
        import ctypes

        kilobytes = ctypes.c_ulonglong()
        ctypes.windll.kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(kilobytes))
        return 1024 * kilobytes.value
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_memory() -> int:
    """Return the free memory of this machine or container, in bytes."""
    found = [_memory()]
    with suppress(OSError, ValueError, AttributeError, TypeError):
        kilobytes = re.search(r"MemAvailable:\s+(\d+) kB", _MEMINFO.read_text())
        found.append(1024 * int(kilobytes[1]))  # type: ignore[index]
    with suppress(OSError, ValueError):  # not in a container, or no limit ("max")
        found.append(int(_CGROUP.read_text()))
    return min(found)
