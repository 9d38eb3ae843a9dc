"""The plain greedy step, as Greedy Policy Search was first run: Nelder–Mead for each candidate.

It is what `selection.py` compares with: the time of one candidate on one core, times candidates,
times steps, divided by the cores.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

_BEFORE = 3  # entries of the policy that the timed step extends


@dataclass(frozen=True)
class PlainTime:
    """Seconds that a candidate takes on one core: by the clock, and of the processor."""

    clock: float
    processor: float


def plain_score(
    mean: NDArray[np.float32], size: int, log_probs: NDArray[np.float32], labels: NDArray[np.int64]
) -> tuple[float, float]:
    """Return cLL and temperature of the average of `size` entries and one candidate `[n, c]`."""
    share = np.float32(1 / (size + 1))
    with_it = np.logaddexp(mean + np.log1p(-share), log_probs + np.log(share))
    log_q, target = torch.from_numpy(with_it), torch.from_numpy(labels)
    rows = torch.arange(len(labels))

    def loss(temperature: NDArray[np.float64]) -> float:
        scaled = torch.log_softmax(log_q / float(temperature[0]), dim=1)
        return -float(scaled[rows, target].mean())

    settings = {"xatol": 1e-3, "fatol": 1e-4, "maxfev": 40}
    found = minimize(loss, 1.0, method="nelder-mead", options=settings)
    return -float(found.fun), float(found.x[0])


def time_plain(
    log_probs: NDArray[np.float32], labels: NDArray[np.int64], repeats: int, cores: int
) -> PlainTime:
    """Time the step on each of `cores` processes at once, over candidates `[k, n, c]` in turn."""
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as processes:
        jobs = [processes.submit(_timed, log_probs, labels, repeats) for _ in range(cores)]
        times = [job.result() for job in jobs]
    return PlainTime(
        float(np.mean([each.clock for each in times])),
        float(np.mean([each.processor for each in times])),
    )


def _timed(log_probs: NDArray[np.float32], labels: NDArray[np.int64], repeats: int) -> PlainTime:
    torch.set_num_threads(1)
    mean = np.logaddexp.reduce(log_probs[:_BEFORE], axis=0) - np.float32(np.log(_BEFORE))
    plain_score(mean, _BEFORE, log_probs[0], labels)
    clock, processor = time.perf_counter(), time.process_time()
    for at in range(repeats):
        plain_score(mean, _BEFORE, log_probs[at % len(log_probs)], labels)
    return PlainTime(
        (time.perf_counter() - clock) / repeats, (time.process_time() - processor) / repeats
    )
