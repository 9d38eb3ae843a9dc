"""Print the tables of docs/search-quality.md from what benchmarks/quality.py wrote.

    python tools/quality_tables.py docs/results/quality

Files are called NETWORK-IMAGES.json. Where a network has several with the same search size, the
one with most images counts.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

NAMES = {
    "distiller-WRN16_1-cifar10": "CIFAR-10, WRN-16-1 (distiller)",
    "akamaster-resnet20-cifar10": "CIFAR-10, ResNet-20 (akamaster)",
    "distiller-resnet20-cifar10": "CIFAR-10, ResNet-20 (distiller)",
    "akamaster-resnet32-cifar10": "CIFAR-10, ResNet-32",
    "akamaster-resnet44-cifar10": "CIFAR-10, ResNet-44",
    "akamaster-resnet56-cifar10": "CIFAR-10, ResNet-56",
    "distiller-resnet14-cifar100": "CIFAR-100, ResNet-14",
    "distiller-resnet20-cifar100": "CIFAR-100, ResNet-20",
    "distiller-resnet26-cifar100": "CIFAR-100, ResNet-26",
    "kthyeon-v2_pr_30-cifar100": "CIFAR-100, MicroNet v2_pr_30 *",
    "kthyeon-v2_pr_60-cifar100": "CIFAR-100, MicroNet v2_pr_60 *",
}
BUDGETS = ("2", "3", "5", "10", "20")
RANDOM = "random crop-flip"
RANDOM_LEARNED = "random crop-flip, own view temperature"
DEFAULT, USUAL = "conservative", "conservative, usual average"

Scores = list[dict[str, dict[str, float]]]


@dataclass(frozen=True)
class Measurement:
    """One network: its scores by strategy and size, one per split; images in all."""

    images: int
    scores: dict[str, Scores]

    @property
    def sizes(self) -> list[int]:
        """The search sets' sizes."""
        words = [name.split(", ")[-1] for name in self.scores if name.endswith(" images")]
        return sorted({int(word.split()[0]) for word in words})

    @property
    def scored(self) -> int:
        """How many images each split is scored on."""
        return self.images - self.sizes[-1]

    def values(self, name: str, budget: str, metric: str = "cll") -> list[float]:
        """Return a metric at a budget, one per split."""
        return [one[budget][metric] for one in self.scores[name]]

    def gains(
        self, name: str, base: str, budget: str, other: str | None = None, metric: str = "cll"
    ) -> list[float]:
        """Return the gains over a baseline with as many views, or with `other` many."""
        pairs = zip(
            self.values(name, budget, metric),
            self.values(base, other or budget, metric),
            strict=True,
        )
        return [own - against for own, against in pairs]


def read(folder: Path) -> dict[str, list[Measurement]]:
    """Return the measurements of each network, most images first."""
    found: dict[str, list[Measurement]] = {name: [] for name in NAMES}
    for path in sorted(folder.glob("*.json")):
        name, _, images = path.stem.rpartition("-")
        if images.isdigit():
            found[name].append(Measurement(int(images), json.loads(path.read_text("utf-8"))))
    return {name: sorted(own, key=lambda one: -one.images) for name, own in found.items()}


def text(gains: list[float], scale: float = 1.0, digits: int = 4) -> str:
    """Write a mean with its standard error, in one piece."""
    mean = scale * np.mean(gains)
    error = scale * np.std(gains, ddof=1) / np.sqrt(len(gains))
    return f"{mean:+.{digits}f} ± {error:.{digits}f}".replace("-", "−").replace(" ", "\u00a0")


def _table(head: str, columns: list[str], rows: dict[str, list[str]]) -> list[str]:
    lines = [f"| {head} | {' | '.join(columns)} |", "| --- |" + " ---: |" * len(columns)]
    return [*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()), ""]


def tables(found: dict[str, list[Measurement]], size: int) -> list[str]:
    """Return the tables of one size of the search set."""
    chosen = {
        NAMES[name]: next(one for one in own if size in one.sizes)
        for name, own in found.items()
        if any(size in one.sizes for one in own)
    }
    own, usual = f"{DEFAULT}, {size} images", f"{USUAL}, {size} images"
    lines = [f"### {size:,} images to search on", ""]
    for base, word in ((RANDOM, "averaged as usual"), (RANDOM_LEARNED, "at their own κ")):
        rows = {
            name: [f"{one.scored:,}", *(text(one.gains(own, base, each)) for each in BUDGETS)]
            for name, one in chosen.items()
        }
        lines += _table(f"gain over random crops {word}, at", ["scored", *BUDGETS], rows)
    few = {
        name: [
            text(one.gains(own, RANDOM, "3", "20")),
            text(one.gains(own, RANDOM, "5", "20")),
            *(text(one.gains(own, usual, each)) for each in ("2", "5", "20")),
        ]
        for name, one in chosen.items()
    }
    columns = ["3 views − 20 random", "5 views − 20 random"]
    columns += [f"learned − usual average, {each}" for each in ("2", "5", "20")]
    lines += _table("", columns, few)
    other = {
        name: [
            text(one.gains(own, usual, "5", metric="accuracy"), 100, 2),
            text(one.gains(own, usual, "5", metric="ece"), 100, 2),
            *(text(one.gains(f"greedy, {size} images", RANDOM, each)) for each in ("5", "20")),
        ]
        for name, one in chosen.items()
    }
    columns = ["accuracy, points", "calibrated ECE, points", "greedy, 5", "greedy, 20"]
    return lines + _table("at five views, learned − usual average; gain of greedy", columns, other)


def summary(found: dict[str, list[Measurement]]) -> list[str]:
    """Return README's table: means over the splits, 500 images to search on."""
    own, plain = f"{DEFAULT}, 500 images", "quasi-random views, 500 images"
    columns = ["plain image", "random crops, 5 views", "relook, 3", "relook, 5"]
    columns += ["random crops, 20", "relook, 20", "accuracy %, plain → relook 5"]
    cells = ((plain, "1"), (RANDOM, "5"), (own, "3"), (own, "5"), (RANDOM, "20"), (own, "20"))
    rows = {}
    for name, measured in found.items():
        for one in measured[:1]:
            means = [f"{np.mean(one.values(*cell)):.3f}".replace("-", "−") for cell in cells]
            accuracies = (
                f"{100 * np.mean(one.values(*cell, 'accuracy')):.1f}"
                for cell in ((plain, "1"), (own, "5"))
            )
            rows[NAMES[name]] = [*means, " → ".join(accuracies)]
    return _table("", columns, rows)


def main() -> None:
    """Print every table."""
    found = read(Path(sys.argv[1]))
    print("\n".join(summary(found)))
    for size in sorted({size for own in found.values() for one in own for size in one.sizes}):
        print("\n".join(tables(found, size)))


if __name__ == "__main__":
    main()
