"""Image files of every kind, sound and hostile, made for the tests."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

RED, GREEN = (200, 30, 40), (20, 180, 60)


def photo(height: int = 40, width: int = 60, seed: int = 0) -> Image.Image:
    """A smooth colour picture whose four quarters differ."""
    low = np.random.default_rng(seed).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    return Image.fromarray(low).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    """The bytes of an image file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def with_orientation(image: Image.Image, orientation: int, kind: str = "JPEG") -> bytes:
    """The bytes of an image file that says how it is to be turned."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(image, kind, exif=exif.tobytes())


def png_that_declares(width: int, height: int) -> bytes:
    """A small PNG file whose head promises many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(b"\0" * 1000)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def write_classes(root: Path, *names: str, images: int = 3, kind: str = "png") -> None:
    """A folder a class, each with pictures of 40×60."""
    for number, name in enumerate(names):
        folder = root / name
        folder.mkdir(parents=True)
        for i in range(images):
            photo(seed=10 * number + i).save(folder / f"{i}.{kind}")
