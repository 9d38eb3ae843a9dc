"""What views cost: time relative to one pass over the plain image, measured side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from torch import Tensor

from relook.errors import RelookError
from relook.models import Predictor
from relook.policy import Policy, SubPolicy
from relook.views import apply_subpolicy

_MOST_VIEWS = 6  # more than that is extrapolated: each view adds the same
_BATCH = 32


@dataclass(frozen=True)
class Slowdown:
    """Measured points of one method: `times[i]` × the plain pass for `views[i]` views."""

    views: tuple[int, ...]
    times: tuple[float, ...]

    def at(self, views: int) -> float:
        """Return the slowdown at a number of views, on the straight lines between the points.

        Beyond the last point the last line goes on; a single point grows in proportion.
        """
        if views <= self.views[-1]:
            points, times = (0, *self.views), (0.0, *self.times)
            return float(np.interp(views, points, times))
        if len(self.views) == 1:
            return self.times[0] * views / self.views[0]
        (left, right), (low, high) = self.views[-2:], self.times[-2:]
        return high + max(0.0, high - low) / (right - left) * (views - right)


def measure_slowdown(
    predictor: Predictor,
    images: Tensor,
    policies: Mapping[str, Policy],
    seed: int = 0,
    *,
    seconds: float = 3.0,
    rounds: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Slowdown]:
    """Time making the views and passing them through the model, for each policy by name.

    uint8 images `[n, c, h, w]`, of which a small batch is used. Every round times the plain
    pass and each policy in turn, so a slow moment of the machine hits all alike; a figure is
    the median time over the rounds, divided by that of the plain pass. About `seconds` is
    spent, and at least one round.
    """
    if not len(images):
        raise RelookError("expected at least one image to measure the cost on, got none")
    batch = images[:_BATCH]
    jobs = {(name, k): views for name, p in policies.items() for k, views in _points(p)}
    plain = (SubPolicy(),)
    for views in jobs.values():  # warm-up: first calls allocate and choose their algorithms
        _run(predictor, batch, views[:1], seed)
    start = clock()
    plain_times: list[float] = []
    times: dict[tuple[str, int], list[float]] = {job: [] for job in jobs}
    for done in range(rounds):
        if done and clock() - start > seconds * done / (done + 1):
            break
        plain_times.append(_timed(predictor, batch, plain, seed, clock))
        for job, views in jobs.items():
            times[job].append(_timed(predictor, batch, views, seed, clock))
    unit = median(plain_times)
    relative = {job: median(all_times) / unit for job, all_times in times.items()}
    return {name: _curve(name, relative) for name in policies}


def _points(policy: Policy) -> list[tuple[int, Sequence[SubPolicy]]]:
    """Return the view counts to time, each with its distinct views: 1, a half, and the most."""
    distinct = _distinct(policy)
    most = min(len(distinct), _MOST_VIEWS)
    counts = sorted({1, (most + 1) // 2, most} - {0})
    return [(count, distinct[:count]) for count in counts]


def _distinct(policy: Policy) -> list[SubPolicy]:
    fixed = dict.fromkeys(sub for sub in policy if sub.is_fixed)
    seen: set[SubPolicy] = set()
    views = []
    for sub in policy:
        if sub not in seen:
            views.append(sub)
        if sub in fixed:
            seen.add(sub)
    return views


def _curve(name: str, relative: Mapping[tuple[str, int], float]) -> Slowdown:
    points = sorted((k, time) for (one, k), time in relative.items() if one == name)
    return Slowdown(tuple(k for k, _ in points), tuple(time for _, time in points))


def _timed(
    predictor: Predictor,
    images: Tensor,
    views: Sequence[SubPolicy],
    seed: int,
    clock: Callable[[], float],
) -> float:
    start = clock()
    _run(predictor, images, views, seed)
    return clock() - start


def _run(predictor: Predictor, images: Tensor, views: Sequence[SubPolicy], seed: int) -> None:
    indices = np.arange(len(images))
    for number, subpolicy in enumerate(views):
        predictor(apply_subpolicy(subpolicy, images, indices, seed, number))
