"""Locations of prediction stores: a directory, or a prefix of an object store, by its URL."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from zarr.abc.store import Store
from zarr.storage import LocalStore

from relook.errors import FileFormatError, MissingExtraError, RelookError, RunError
from relook.io.files import json_text, lock_file, one_line, read_json, write_json_atomic
from relook.io.fingerprint import JSON

MANIFEST = "manifest.json"
SCHEMES = ("s3", "gs", "az", "memory")

_ABANDONED_AFTER = 3600.0  # seconds; no write of one chunk takes that long
_RETRY_SECONDS = 120
_MEMORY: dict[str, Any] = {}  # the stores in this process's memory, by URL


def is_url(where: str | Path | None) -> bool:
    """Whether this is the URL of an object store, not a path."""
    return isinstance(where, str) and "://" in where and not where.startswith("file://")


def place_at(where: str | Path) -> Place:
    """Return the place at a path or a URL (s3://, gs://, az://, memory://, file://)."""
    if not is_url(where):
        return Directory(Path(str(where).removeprefix("file://")))
    where = str(where)
    if where.partition("://")[0] not in SCHEMES:
        raise RelookError(
            f"expected a store as a path or as {', '.join(f'{s}://…' for s in SCHEMES)}, "
            f"got {where!r}"
        )
    return Bucket(where)


class Directory:
    """A directory, local or shared.

    It is not `trusted`: its files may be truncated or damaged.
    """

    trusted = False

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)
        self.arrays: Store = LocalStore(path)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold a lock while others wait; the kernel frees it if this process dies."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with (self.path / ".lock").open("a") as file:
                lock_file(file.fileno(), wait=True)
                yield
            self._remove_abandoned()
        except OSError as error:
            raise RunError(f"cannot keep predictions in {self.name}: {reason(error)}") from error

    def manifest(self) -> Any:
        """Return the manifest, or None if there is none."""
        file = self.path / MANIFEST
        return read_json(file, what="manifest") if file.exists() else None

    def keep_manifest(self, record: dict[str, JSON]) -> None:
        """Write the manifest of a new store."""
        write_json_atomic(self.path / MANIFEST, record)

    def foreign(self) -> str | None:
        """Return the name of any file that is here, or None."""
        names = (path.name for path in self.path.iterdir())
        return next((name for name in names if not name.startswith(".")), None)

    def size(self, key: str) -> int | None:
        """Return a file's size in bytes, or None if there is none."""
        file = self.path / key
        return file.stat().st_size if file.is_file() else None

    def _remove_abandoned(self) -> None:
        # Another process may be writing a recent one, and may remove it at any moment.
        limit = time.time() - _ABANDONED_AFTER
        for leftover in chain(self.path.rglob("*.partial"), self.path.glob(".relook-*.tmp")):
            with suppress(FileNotFoundError):
                if leftover.stat().st_mtime < limit:
                    leftover.unlink()


class Bucket:
    """A prefix of an object store, where an object appears whole or not at all.

    Requests that fail are tried again for two minutes. Credentials, region and endpoint come
    from the environment (AWS_…, GOOGLE_…, AZURE_…) or from the machine's own role.
    """

    trusted = True

    def __init__(self, url: str) -> None:
        self.name = url.rstrip("/")
        self._obstore = _import_obstore()
        with self._requests("use"):
            self._objects = self._open()
        from zarr.storage import ObjectStore

        self.arrays: Store = ObjectStore(self._objects)
        self._sizes: dict[str, int] | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock nothing: the first manifest stays, and all others are compared with it."""
        yield

    def manifest(self) -> Any:
        """Return the manifest, or None if there is none."""
        with self._requests("read"):
            try:
                content = bytes(self._obstore.get(self._objects, MANIFEST).bytes())
            except FileNotFoundError:
                return None
        try:
            return json.loads(content)
        except ValueError:
            raise FileFormatError(f"{self.name}/{MANIFEST}: expected a manifest as JSON") from None

    def keep_manifest(self, record: dict[str, JSON]) -> None:
        """Write the manifest unless another process has just done so."""
        content = json_text(record).encode()
        exists = self._obstore.exceptions.AlreadyExistsError
        with self._requests("write to"), suppress(exists):
            self._obstore.put(self._objects, MANIFEST, content, mode="create")

    def foreign(self) -> str | None:
        """Return the name of any file that is here, or None."""
        return next(iter(self._listed()), None)

    def size(self, key: str) -> int | None:
        """Return an object's size in bytes, or None; objects are listed once, at the first call."""
        return self._listed().get(key)

    def _listed(self) -> dict[str, int]:
        if self._sizes is None:
            with self._requests("list"):
                pages = self._obstore.list(self._objects)
                self._sizes = {item["path"]: item["size"] for page in pages for item in page}
        return self._sizes

    def _open(self) -> Any:
        if self.name.startswith("memory://"):
            return _MEMORY.setdefault(self.name, self._obstore.store.MemoryStore())
        from datetime import timedelta

        retry = {"max_retries": 10, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
        plain = {"allow_http": True}  # for custom endpoints; https:// stays https
        return self._obstore.store.from_url(self.name, retry_config=retry, client_options=plain)

    @contextmanager
    def _requests(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (self._obstore.exceptions.BaseError, OSError, ValueError) as error:
            raise RunError(f"cannot {verb} {self.name}: {reason(error)}") from error


Place = Directory | Bucket
"""A store's files besides its chunks: manifest, lock and sizes."""


def failures(place: Place) -> tuple[type[Exception], ...]:
    """Return the errors of a place that cannot be read or written."""
    if isinstance(place, Directory):
        return (OSError,)
    return (OSError, _import_obstore().exceptions.BaseError)


def reason(error: Exception) -> str:
    """Return the message of a system or network error as one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(" ".join(text.split("Debug source:")[0].split()))[:300]


def _import_obstore() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError:
        raise MissingExtraError("obstore", "cloud", "a store by URL") from None
    return obstore
