"""Load: a paper-size selection, and 200,000 images through `relook predict`, with what they hold.

Each runs as a command in a process of its own; its memory, open files, threads and children are
looked at several times a second. `--plot FILE` draws the memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from generator import make_pool  # type: ignore[import-not-found]
from relook.models.small import new_small, save_small
from relook.policy import Policy
from relook.policy.pool import sample_pool

IMAGES = 200_000
SELECTION = (1101, 5_000, 10, 100)  # candidates, images, classes, steps: the paper's CIFAR-10
SIDE = 16
_EVERY = 0.25  # seconds between two looks
_DISTINCT = 1_000


@dataclass(frozen=True)
class Look:
    """What a process held at a moment: seconds since its start, bytes of memory, counts."""

    seconds: float
    memory: int
    files: int
    threads: int
    children: int


def look_at(process: int, started: float) -> Look | None:
    """Return what a process holds, None if it has ended."""
    folder = Path(f"/proc/{process}")
    try:
        status = dict(
            line.split(":", 1)
            for line in (folder / "status").read_text().splitlines()
            if ":" in line
        )
        children = (folder / f"task/{process}/children").read_text().split()
        return Look(
            time.perf_counter() - started,
            1024 * int(status["VmRSS"].split()[0]),
            len(os.listdir(folder / "fd")),  # noqa: PTH208  # a listing of links, not of paths
            int(status["Threads"]),
            len(children),
        )
    except (OSError, KeyError):
        return None


def watched(*arguments: object) -> list[Look]:
    """Run a command of relook's and return what it held, from its first look to its last."""
    command = [sys.executable, "-m", "relook", *map(str, arguments)]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        looks = []
        while child.poll() is None:
            look = look_at(child.pid, started)
            looks += [] if look is None else [look]
            time.sleep(_EVERY)
    assert child.returncode == 0, command
    return looks


def write_pictures(folder: Path, count: int) -> None:
    """Write grey PNG files of 16×16, a thousand to a folder; every thousandth is the same."""
    draws = np.random.default_rng(0)
    levels = draws.integers(0, 256, (min(count, _DISTINCT), SIDE, SIDE), dtype=np.uint8)
    packed = []
    for picture in levels:
        path = folder / "one.png"
        Image.fromarray(picture).save(path)
        packed.append(path.read_bytes())
        path.unlink()
    for i in range(count):
        if i % 1_000 == 0:
            (folder / f"{i // 1_000:03d}").mkdir()
        (folder / f"{i // 1_000:03d}/{i % 1_000:03d}.png").write_bytes(packed[i % len(packed)])


def report(name: str, looks: list[Look]) -> None:
    """Print how long it took and what was held: at a quarter of the time, at the end, at most."""
    quarter = looks[len(looks) // 4]
    print(f"{name}: {looks[-1].seconds:.0f} s, load {os.getloadavg()[0]:.1f}")
    print(
        f"  memory: {quarter.memory / 1e6:.0f} MB after a quarter of the time, "
        f"{looks[-1].memory / 1e6:.0f} MB at the end, {max(x.memory for x in looks) / 1e6:.0f} MB "
        "at most"
    )
    for what in ("files", "threads", "children"):
        counts = [getattr(look, what) for look in looks[len(looks) // 4 :]]
        print(f"  {what}: {min(counts)} to {max(counts)}, {counts[-1]} at the end")


def predict(root: Path, count: int) -> list[Look]:
    """Predict so many images with three views each."""
    pictures = root / "pictures"
    pictures.mkdir()
    write_pictures(pictures, count)
    save_small(new_small(width=4), root / "model.safetensors")
    policy = Policy(sample_pool("small", 8, 0)[:3], temperatures=(1.0, 1.0, 1.0), recipe="small")
    policy.save(root / "policy.json")
    model = f"small@{root / 'model.safetensors'}"
    looks = watched(
        *("predict", "-m", model, "-p", root / "policy.json", "-d", f"folder:{pictures}"),
        *("--out", root / "out.csv"),
    )
    with (root / "out.csv").open() as file:
        assert sum(1 for _ in file) == count + 1
    return looks


def select(root: Path) -> list[Look]:
    """Select from made-up predictions of the paper's size."""
    candidates, images, classes, steps = SELECTION
    pool = make_pool(candidates, images, classes)
    np.save(root / "predictions.npy", pool.log_probs(slice(None), slice(None)))
    np.save(root / "labels.npy", pool.labels)
    return watched(
        *(
            "policy",
            "select",
            "--predictions",
            root / "predictions.npy",
            "--labels",
            root / "labels.npy",
        ),
        *("--kind", "log_probs", "--length", steps, "--out", root / "selected.json"),
    )


def draw(path: Path, runs: dict[str, list[Look]]) -> None:
    """Draw memory over time, a panel for each command."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        len(runs), figsize=(7, 2.6 * len(runs)), layout="constrained", squeeze=False
    )
    for axis, (name, looks) in zip(axes[:, 0], runs.items(), strict=True):
        axis.plot([look.seconds for look in looks], [look.memory / 1e6 for look in looks])
        axis.set(xlabel="seconds", ylabel="memory, MB", title=f"relook {name}")
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Run what the options ask for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--images", type=int, default=IMAGES)
    options.add_argument("--plot", type=Path, help="draw the memory to this file")
    options.add_argument("--only", choices=("select", "predict"))
    chosen = options.parse_args()
    runs = {}
    with TemporaryDirectory() as folder:
        if chosen.only != "predict":
            candidates, images, classes, steps = SELECTION
            size = f"{candidates:,} candidates × {images:,} images × {classes} classes"
            runs[f"select, {steps} of {size}"] = select(Path(folder))
        if chosen.only != "select":
            runs[f"predict, {chosen.images:,} images"] = predict(Path(folder), chosen.images)
    for name, looks in runs.items():
        report(name, looks)
    if chosen.plot:
        draw(chosen.plot, runs)


if __name__ == "__main__":
    main()
