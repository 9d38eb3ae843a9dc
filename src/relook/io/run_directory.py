"""The directory of a run, used by one process at a time and with one set of settings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from relook.errors import RelookError, RunError
from relook.io.files import lock_file, read_json, reason_of, write_json_atomic
from relook.io.fingerprint import JSON, differences
from relook.version import __version__

_FORMAT = "relook run"
_LOCK = ".lock"
_SIGNATURE = b"relook run, process "
_BINARY = getattr(os, "O_BINARY", 0)  # Windows writes \r\n otherwise


class RunDirectory:
    """The files of one run, locked by one process within a `with` block.

    The kernel holds the lock on an open file and releases it as soon as the process ends, however
    it ends, so nobody has to unlock a directory by hand. A forked child shares the lock; a newly
    started one does not.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.settings = self.path / "settings.json"  # see `check_settings`
        self.predictions = self.path / "predictions.zarr"
        self.engine = self.path / "engine.json"  # on which the model was fastest
        self.plan = self.path / "plan.json"  # for the time that was given
        self.policy = self.path / "policy.json"
        self.search = self.path / "search.json"  # scores, steps, counts
        self.run = self.path / "run.json"  # command, versions, times
        self._lock: int | None = None

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_is_run()
            self._take_lock()
            for leftover in self.path.glob(".relook-*.tmp"):
                leftover.unlink(missing_ok=True)
        except OSError as error:
            self._release()
            raise RunError(f"cannot use {self.path} for a run: {reason_of(error)}") from error
        return self

    def __exit__(self, *error: object) -> None:
        self._release()

    def check_settings(self, settings: Mapping[str, JSON]) -> None:
        """Store the settings that decide the result, or raise if the stored ones differ.

        Leave out whatever may change between calls of the same run (times, paths, thread counts).
        relook's version is compared too.
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

    def _check_is_run(self) -> None:
        visible = sorted(p.name for p in self.path.iterdir() if not p.name.startswith("."))
        if not visible:
            return
        lock = self.path / _LOCK
        if not lock.is_file() or lock.read_bytes()[: len(_SIGNATURE)] != _SIGNATURE:
            raise RunError(
                f"{self.path}: expected a relook run or an empty directory, got one with "
                f"{visible[0]!r}: use another directory"
            )

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | _BINARY, 0o644)
        try:
            lock_file(self._lock, wait=False)
        except BlockingIOError:
            holder = os.read(self._lock, 100).removeprefix(_SIGNATURE).strip()
            self._release()
            raise RunError(
                f"{self.path} is in use by process {holder.decode('ascii', 'replace') or 'unknown'}"
                ": wait until it has finished, or use another directory"
            ) from None
        signature = _SIGNATURE + b"%d\n" % os.getpid()
        # Written before the rest is cut off, so that the file is never without a signature.
        os.write(self._lock, signature)
        os.ftruncate(self._lock, len(signature))

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
