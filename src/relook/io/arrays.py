"""NumPy's `.npy` and `.npz` files, read without trusting what they declare.

Arrays of Python objects are refused, or read as data by `safe_pickle`; nothing is unpickled.
"""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from relook.errors import FileFormatError, RelookError
from relook.foundation.memory import half_of_memory
from relook.io.files import one_line
from relook.io.safe_pickle import check_text, load_pickle

_LARGEST_SHOWN = 1 << 80  # a header may declare more bytes than a float can hold
_BEST_DEFLATE = 1040  # deflate's highest compression ratio is 1032
_MOST_ARRAYS = 1_000
# Other methods may allocate much memory before they return a byte.
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class Header:
    """What an array's header declares, and where its content starts."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    start: int

    @property
    def nbytes(self) -> int:
        """The size of the declared array."""
        return math.prod(self.shape) * self.dtype.itemsize


Choice = Callable[[Mapping[str, Header]], list[str]]
"""Returns the names of the arrays to read, given all headers by name; may raise."""


def read_npy(path: Path, *, objects: bool = False) -> NDArray[Any]:
    """Return the array in an `.npy` file; Python objects are refused unless `objects`."""
    with _readable(path, "an npy file"), path.open("rb") as file:
        header = _read_header(file)
        _check_size(header, path.stat().st_size, str(path))
        check_memory(header.nbytes, path)
        return _read_array(file, header, str(path), objects)


def map_npy(path: Path) -> NDArray[Any]:
    """Return the array in an `.npy` file as a read-only memory map, with the same checks."""
    with _readable(path, "an npy file"):
        with path.open("rb") as file:
            _check_size(_read_header(file), path.stat().st_size, str(path))
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]


def read_npz(
    path: Path, choose: Choice = list, *, objects: bool = False, max_bytes: int | None = None
) -> dict[str, NDArray[Any]]:
    """Return arrays of an `.npz` archive by name: all, or those that `choose` selects.

    `max_bytes` limits the unpacked size of the whole archive.
    """
    with _readable(path, "an npz archive"), zipfile.ZipFile(path) as archive:
        members = {
            info.filename.removesuffix(".npy"): info
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        }
        if len(members) > _MOST_ARRAYS:
            raise ValueError(f"expected at most {_MOST_ARRAYS:,} arrays, got {len(members):,}")
        if max_bytes is not None and sum(i.file_size for i in members.values()) > max_bytes:
            raise ValueError("it unpacks to more than such a file should hold")
        headers = {name: _member_header(archive, info, path) for name, info in members.items()}
        wanted = choose(headers)
        check_memory(sum(headers[name].nbytes for name in wanted), path)
        arrays = {}
        for name in wanted:
            with archive.open(members[name]) as file:
                where = f"{path}: {one_line(name)}"
                arrays[name] = _read_array(file, headers[name], where, objects)
        return arrays


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    """Turn any error of a damaged or hostile file into a one-line FileFormatError."""
    try:
        with warnings.catch_warnings():  # about headers written by Python 2
            warnings.simplefilter("ignore", UserWarning)
            yield
    except RelookError:
        raise
    except FileNotFoundError:
        raise RelookError(f"no such file: {path}") from None
    except Exception as error:
        why = next(iter(str(error).splitlines()), "")
        raise FileFormatError(
            f"{one_line(str(path))}: expected {kind} of plain arrays: "
            f"{type(error).__name__}: {one_line(why[:200])}"
        ) from None


def _member_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Header:
    if info.compress_type not in _COMPRESSIONS:
        raise ValueError("it is compressed in a way that numpy does not use")
    with archive.open(info) as file:
        header = _read_header(file)
    where = f"{path}: {one_line(info.filename)}"
    _check_size(header, info.file_size, where)
    most = info.compress_size * (_BEST_DEFLATE if info.compress_type else 1)
    if info.file_size > most + _BEST_DEFLATE or info.compress_size > path.stat().st_size:
        raise FileFormatError(f"{where}: declares more content than the archive can hold")
    return header


def _read_header(file: IO[bytes]) -> Header:
    # Plain arrays always have format 1.0. Later formats are for structured types, which are refused
    # here, and their headers may take gigabytes.
    if npy.read_magic(file) != (1, 0):
        raise ValueError("a structured array")
    shape, _, dtype = npy.read_array_header_1_0(file)
    if any(side < 0 for side in shape) or dtype.itemsize == 0:
        raise ValueError(f"an impossible array: {dtype} {list(shape)}")
    return Header(shape, dtype, file.tell())


def _check_size(header: Header, size: int, where: str) -> None:
    """Raise unless the file has exactly the size that its header declares."""
    if not header.dtype.hasobject and header.start + header.nbytes != size:
        raise FileFormatError(
            f"{where}: its header declares {header.dtype} {list(header.shape)} "
            f"({header.nbytes} bytes), but {size - header.start} bytes follow: damaged or cut off"
        )


def check_memory(nbytes: int, path: Path) -> None:
    """Raise unless this many bytes are at most half of the machine's memory."""
    half = half_of_memory()
    if nbytes > half:
        raise RelookError(
            f"{path}: expected arrays of at most half this machine's memory "
            f"({half / 1e9:.1f} GB), got {min(nbytes, _LARGEST_SHOWN) / 1e9:.1f} GB: split the file"
        )


def _read_array(file: IO[bytes], header: Header, where: str, objects: bool) -> NDArray[Any]:
    if objects and header.dtype.hasobject:
        file.seek(header.start)
        found = load_pickle(file.read(), where)
        if not (isinstance(found, np.ndarray) and found.dtype.kind == "O"):
            raise FileFormatError(f"{where}: expected an array of objects, got something else")
        if found.shape != header.shape:
            raise FileFormatError(f"{where}: expected the shape {header.shape}, got {found.shape}")
        return found
    file.seek(0)
    array = np.asarray(npy.read_array(file, allow_pickle=False))
    file.read(1)  # zipfile compares the checksum only when it reaches the end
    check_text(array)
    return array
