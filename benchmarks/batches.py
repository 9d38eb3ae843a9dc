"""How many images a call of a model should have on the CPU: images/s for some batch sizes.

    python benchmarks/batches.py DIR/onnx/*.onnx [--side 32] [--repeats 3]

The files take uint8 images `[n, 3, side, side]`. All batch sizes run in turns, and the best turn
of each counts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from relook.models.onnx_runtime import INPUT, open_session

IMAGES = 512
BATCHES = (8, 16, 32, 64, 128, 256)


def rates(file: Path, side: int, repeats: int) -> dict[int, float]:
    """Return images/s by batch size."""
    session = open_session(file.read_bytes())
    images = np.random.default_rng(0).integers(0, 256, (IMAGES, 3, side, side), dtype=np.uint8)
    best = dict.fromkeys(BATCHES, float("inf"))
    session.run(None, {INPUT: images[: BATCHES[0]]})
    for _ in range(repeats):
        for batch in BATCHES:
            start = time.perf_counter()
            for begin in range(0, IMAGES, batch):
                session.run(None, {INPUT: images[begin : begin + batch]})
            best[batch] = min(best[batch], time.perf_counter() - start)
    return {batch: IMAGES / seconds for batch, seconds in best.items()}


def main() -> None:
    """Print a table, a line a file."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("files", type=Path, nargs="+")
    options.add_argument("--side", type=int, default=32)
    options.add_argument("--repeats", type=int, default=3)
    given = options.parse_args()
    print("| images/s at a batch of | " + " | ".join(map(str, BATCHES)) + " |")
    print("| --- |" + " ---: |" * len(BATCHES))
    for file in given.files:
        found = rates(file, given.side, given.repeats)
        print(f"| {file.stem} | " + " | ".join(f"{rate:,.0f}" for rate in found.values()) + " |")


if __name__ == "__main__":
    main()
