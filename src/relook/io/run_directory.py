"""A run's directory: one process at a time, and one set of settings for good."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from relook.errors import RelookError, RunError
from relook.io.files import lock_file, read_json, write_json_atomic
from relook.io.fingerprint import JSON, differences
from relook.version import __version__

_FORMAT = "relook run"
_LOCK = ".lock"
_SIGN = b"relook run, process "
_BINARY = getattr(os, "O_BINARY", 0)  # Windows writes \r\n otherwise


class RunDirectory:
    """The files of one run, held by one process within a `with` block.

    The lock is the kernel's, on an open file: it is free again as soon as the process ends,
    however it ends, so a directory never needs unlocking by hand. A child made by fork shares
    it; one started afresh does not.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.settings = self.path / "settings.json"  # what decides the result, see below
        self.predictions = self.path / "predictions.zarr"
        self.engine = self.path / "engine.json"  # the one that the model was fastest on
        self.plan = self.path / "plan.json"  # what was planned for the time that there was
        self.policy = self.path / "policy.json"
        self.search = self.path / "search.json"  # what the search saw: scores, steps, counts
        self.run = self.path / "run.json"  # what the run was: command, versions, times
        self._lock: int | None = None

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_is_ours()
            self._take_lock()
            for leftover in self.path.glob(".relook-*.tmp"):
                leftover.unlink(missing_ok=True)
        except OSError as error:
            self._release()
            reason = error.strerror or str(error)
            raise RunError(f"cannot use {self.path} for a run: {reason}") from error
        return self

    def __exit__(self, *error: object) -> None:
        self._release()

    def check_settings(self, settings: Mapping[str, JSON]) -> None:
        """Keep what decides the run's result; raise if the directory was made with another.

        Give it nothing that may change from one call to the next of the same run (times, paths,
        thread counts). relook's version is compared too.
        """
        record = {"format": _FORMAT, "version": __version__, "settings": dict(settings)}
        record = json.loads(json.dumps(record, allow_nan=False))
        if not self.settings.exists():
            write_json_atomic(self.settings, record)
            return
        try:
            stored = read_json(self.settings, what="the settings of a relook run")
        except RelookError as error:
            raise RunError(f"{error}: use another directory or delete {self.path}") from error
        different = [line.removeprefix("settings.") for line in differences(stored, record)]
        if different:
            more = f"; {len(different) - 3} more" if len(different) > 3 else ""
            raise RunError(
                f"{self.path} holds a run with other settings "
                f"({'; '.join(different[:3])}{more}): use another directory or delete {self.path}"
            )

    def _check_is_ours(self) -> None:
        visible = sorted(p.name for p in self.path.iterdir() if not p.name.startswith("."))
        if not visible:
            return
        lock = self.path / _LOCK
        if not lock.is_file() or lock.read_bytes()[: len(_SIGN)] != _SIGN:
            raise RunError(
                f"{self.path}: expected a relook run or an empty directory, got one with "
                f"{visible[0]!r}: use another directory"
            )

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | _BINARY, 0o644)
        try:
            lock_file(self._lock, wait=False)
        except BlockingIOError:
            holder = os.read(self._lock, 100).removeprefix(_SIGN).strip()
            self._release()
            raise RunError(
                f"{self.path} is in use by process {holder.decode('ascii', 'replace') or 'unknown'}"
                ": wait until it has finished, or use another directory"
            ) from None
        sign = _SIGN + b"%d\n" % os.getpid()
        # Overwritten before it is cut: the sign is never absent once it has been there.
        os.write(self._lock, sign)
        os.ftruncate(self._lock, len(sign))

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
