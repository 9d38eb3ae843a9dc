"""A search in a process of its own, whose model calls are counted."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCKS, CALLS = 12, 150  # 48 views × 200 images in batches of 64: what the plan comes to
SEARCH = (
    *("search", "--data", "digits", "--recipe", "small", "--strategy", "greedy"),
    *("--pool-size", "47", "--length", "4", "--batch", "64", "--split", "200:100"),
    *("--memory", "1G", "--accelerate", "torch"),  # calls are counted, and bytes compared
)
PATIENCE = 200.0  # seconds: the machine may be busy
_LOOPBACK = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # what keeps a driver to 127.0.0.1
}


@contextmanager
def driver(out: Path, network: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run a search in a process of its own."""
    command = [sys.executable, "-m", "relook", *SEARCH, "--out", str(out)]
    command += ["--model", f"torch:tests.e2e.slow_network:{network}", *options]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "400",
            "RELOOK_CALLS": str(calls_file(out)),
            **_LOOPBACK,
        },
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the driver; return its exit code and what it said."""
    _, said = child.communicate(timeout=PATIENCE)
    return child.returncode, said


def calls_file(out: Path) -> Path:
    return out.with_name(f"{out.name}.calls")


def calls_of(out: Path) -> list[int]:
    """The processes of all model calls, in their order."""
    file = calls_file(out)
    return [int(line) for line in file.read_text().split()] if file.exists() else []
