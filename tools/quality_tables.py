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
BASE = "random crop-flip"

Scores = list[dict[str, float]]


@dataclass(frozen=True)
class Measurement:
    """One network: its scores by strategy and size, one a split; images in all."""

    images: int
    scores: dict[str, Scores]

    @property
    def sizes(self) -> list[int]:
        """The search sets' sizes."""
        words = [name.split(", ")[1] for name in self.scores if name.endswith(" images")]
        return sorted({int(word.split()[0]) for word in words})

    @property
    def scored(self) -> int:
        """How many images each split is scored on."""
        return self.images - self.sizes[-1]

    def gains(self, strategy: str, size: int, budget: str, other: str | None = None) -> list[float]:
        """Return the gains over as many random crop-flips, or over `other` many."""
        own = self.scores[f"{strategy}, {size} images"]
        pairs = zip(own, self.scores[BASE], strict=True)
        return [one[budget] - base[other or budget] for one, base in pairs]


def read(folder: Path) -> dict[str, list[Measurement]]:
    """Return the measurements of each network, most images first."""
    found: dict[str, list[Measurement]] = {name: [] for name in NAMES}
    for path in sorted(folder.glob("*.json")):
        name, _, images = path.stem.rpartition("-")
        if images.isdigit():
            found[name].append(Measurement(int(images), json.loads(path.read_text("utf-8"))))
    return {name: sorted(own, key=lambda one: -one.images) for name, own in found.items()}


def text(gains: list[float]) -> str:
    """Write a mean with its standard error, in one piece."""
    error = np.std(gains, ddof=1) / np.sqrt(len(gains))
    return f"{np.mean(gains):+.4f} ± {error:.4f}".replace("-", "−").replace(" ", "\u00a0")


def tables(found: dict[str, list[Measurement]], size: int) -> list[str]:
    """Return the tables of one size of the search set."""
    chosen = {
        NAMES[name]: next(one for one in own if size in one.sizes)
        for name, own in found.items()
        if any(size in one.sizes for one in own)
    }
    budgets = " | ".join(BUDGETS)
    lines = [f"### {size:,} images to search on", ""]
    lines += [f"| conservative, gain at | scored | {budgets} | 5 conservative − 20 random |"]
    lines += ["| --- | ---: |" + " ---: |" * (len(BUDGETS) + 1)]
    for name, one in chosen.items():
        cells = [text(one.gains("steady", size, budget)) for budget in BUDGETS]
        cells.append(text(one.gains("steady", size, "5", "20")))
        lines.append(f"| {name} | {one.scored:,} | {' | '.join(cells)} |")
    others = [(name, budget) for name in ("paper", "greedy") for budget in ("5", "20")]
    heads = " | ".join(f"{name}, {budget}" for name, budget in others)
    lines += ["", f"| gain over random crop-flips at | {heads} |", "| --- |" + " ---: |" * 4]
    for name, one in chosen.items():
        cells = [text(one.gains(strategy, size, budget)) for strategy, budget in others]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def main() -> None:
    """Print every table."""
    found = read(Path(sys.argv[1]))
    for size in sorted({size for own in found.values() for one in own for size in one.sizes}):
        print("\n".join(tables(found, size)))


if __name__ == "__main__":
    main()
