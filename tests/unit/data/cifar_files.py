"""Small CIFAR archives in the official layouts, made for the tests."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

TEN = [f"kind{i}" for i in range(10)]
HUNDRED = [f"sort{i}" for i in range(100)]


def batch(count: int, seed: int) -> tuple[Any, list[int], list[int]]:
    """Pixels `[n, 3072]`, labels below 10, and labels below 100."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (count, 3072), dtype=np.uint8)
    labels = generator.integers(0, 10, count).tolist()
    return pixels, labels, generator.integers(0, 100, count).tolist()


def write_python10(folder: Path, count: int = 6, protocol: int = 2, text: bool = False) -> None:
    """The Python version of CIFAR-10, with keys as bytes or as text."""
    folder.mkdir(parents=True)

    def key(name: str) -> str | bytes:
        return name if text else name.encode()

    for number, name in enumerate(("test_batch", *(f"data_batch_{i}" for i in range(1, 6)))):
        pixels, labels, _ = batch(count, number)
        content = {
            key("batch_label"): key("a batch"),
            key("labels"): labels,
            key("data"): pixels,
            key("filenames"): [key(f"{i}.png") for i in range(count)],
        }
        (folder / name).write_bytes(pickle.dumps(content, protocol))
    names = {key("label_names"): [key(name) for name in TEN], key("num_vis"): 3072}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol))


def write_python100(folder: Path, count: int = 6) -> None:
    """The Python version of CIFAR-100."""
    folder.mkdir(parents=True)
    for number, name in enumerate(("test", "train")):
        pixels, coarse, fine = batch(count, number)
        content = {b"fine_labels": fine, b"coarse_labels": coarse, b"data": pixels}
        (folder / name).write_bytes(pickle.dumps(content, 2))
    names = {b"fine_label_names": [name.encode() for name in HUNDRED]}
    (folder / "meta").write_bytes(pickle.dumps(names, 2))


def write_binary10(folder: Path, count: int = 6) -> None:
    """The binary version of CIFAR-10."""
    folder.mkdir(parents=True)
    for number, name in enumerate(("test_batch", *(f"data_batch_{i}" for i in range(1, 6)))):
        pixels, labels, _ = batch(count, number)
        records = np.hstack([np.array(labels, dtype=np.uint8)[:, None], pixels])
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(TEN) + "\n\n")


def write_binary100(folder: Path, count: int = 6) -> None:
    """The binary version of CIFAR-100: a coarse and a fine label before the pixels."""
    folder.mkdir(parents=True)
    for number, name in enumerate(("test", "train")):
        pixels, coarse, fine = batch(count, number)
        before = np.array([coarse, fine], dtype=np.uint8).T
        (folder / f"{name}.bin").write_bytes(np.hstack([before, pixels]).tobytes())
    (folder / "fine_label_names.txt").write_text("\n".join(HUNDRED) + "\n")
