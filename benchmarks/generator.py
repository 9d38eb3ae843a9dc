"""Made-up predictions with the structure of real ones, as many as a benchmark wants.

An image has logits of its own: a margin for the label that differs between images (some are
wrong), classes that resemble each other, and a long tail. A candidate weakens them, by its own
strength, and adds noise: a part that a few hidden factors share between classes, and a part
for each class alone.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from relook.selection.kernels.arithmetic import scaled_exp

FACTORS = 4
_NOISE = 1 << 20


@dataclass(frozen=True)
class MadeUpPool:
    """What decides every prediction; `log_probs(candidates, images)` makes a part of them."""

    image_logits: NDArray[np.float32]  # [n, c]
    labels: NDArray[np.int64]  # [n]
    strengths: NDArray[np.float32]  # [k], 0 is the plain image
    factors: NDArray[np.float32]  # [FACTORS, c]
    noise: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Candidates, images, classes."""
        return (len(self.strengths), *self.image_logits.shape)

    def log_probs(self, candidates: slice, images: slice) -> NDArray[np.float32]:
        """Return float32 log-probabilities `[candidate, image, class]`, made on all cores."""
        chosen = np.arange(len(self.strengths))[candidates]
        rows = np.arange(len(self.labels))[images]
        result = np.empty((len(chosen), len(rows), self.image_logits.shape[1]), np.float32)

        def fill(at: int) -> None:
            _fill(
                self.image_logits,
                float(self.strengths[chosen[at]]),
                self.factors,
                self.noise,
                int(chosen[at]),
                rows,
                result[at],
            )

        with ThreadPoolExecutor() as threads:
            list(threads.map(fill, range(len(chosen))))
        return result


def write_half(pool: MadeUpPool, path: Path) -> None:
    """Write all predictions as a float16 `.npy` file, candidate after candidate."""
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=pool.shape)
    everything = slice(None)
    together = 4
    for begin in range(0, len(array), together):
        part = slice(begin, begin + together)
        array[part] = pool.log_probs(part, everything)
    array.flush()


def make_pool(candidates: int, images: int, classes: int, seed: int = 0) -> MadeUpPool:
    """Draw a pool: about 92 % right at 10 classes, 75 % at 100 and at 1,000; overconfident."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=images)
    traits = rng.normal(size=(classes, 8))
    alike = traits @ traits.T / np.sqrt(8)
    margin = rng.gamma(2.0, 2.2 if classes <= 20 else 3.0, size=images) + 1.5
    logits = 1.2 * alike[labels] + 1.6 * rng.standard_t(5, size=(images, classes))
    logits[np.arange(images), labels] = margin + 1.6 * rng.normal(size=images)
    logits[np.arange(images), labels] += np.log(classes) * 0.9
    strengths = rng.beta(1.2, 1.5, size=candidates)
    strengths[0] = 0.0
    return MadeUpPool(
        (1.3 * logits).astype(np.float32),
        labels,
        strengths.astype(np.float32),
        rng.normal(size=(FACTORS, classes)).astype(np.float32),
        rng.normal(size=_NOISE + classes).astype(np.float32),
    )


@njit(nogil=True, cache=True, fastmath=True)
def _fill(
    logits: Any, strength: float, factors: Any, noise: Any, candidate: int, rows: Any, out: Any
) -> None:
    """Write log softmax of a candidate's logits `[image, class]`."""
    classes = logits.shape[1]
    keep = np.float32(1.0 - 0.45 * strength)
    own = np.float32(0.25 + 0.9 * strength)
    shared = np.float32(0.2 + 0.9 * strength)
    for at in range(len(rows)):
        row = rows[at]
        place = (row * 2654435761 + candidate * 40503 * 65537 + 12345) % _NOISE
        a = shared * noise[(place * 7 + 1) % _NOISE]
        b = shared * noise[(place * 11 + 2) % _NOISE]
        c = shared * noise[(place * 13 + 3) % _NOISE]
        d = shared * noise[(place * 17 + 4) % _NOISE]
        part, image, result = noise[place : place + classes], logits[row], out[at]
        top = np.float32(-1e30)
        for i in range(classes):
            value = keep * image[i] + own * part[i]
            value += a * factors[0, i] + b * factors[1, i] + c * factors[2, i] + d * factors[3, i]
            result[i] = value
        for i in range(classes):
            top = max(top, result[i])
        total = np.float32(0)
        for i in range(classes):
            total += scaled_exp(result[i] - top)
        shift = np.float32(top + np.log(total / np.float32(2.0**24)))
        for i in range(classes):
            result[i] -= shift
