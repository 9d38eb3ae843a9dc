"""What views cost: time relative to one pass over the plain image, measured side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from relook.errors import RelookError
from relook.foundation.watchdog import watched
from relook.models import Predictor
from relook.policy import Policy, SubPolicy
from relook.policy.views import apply_subpolicy
from relook.predictions.passes import View, distinct_views
from relook.transforms.full_images import FullImages

_MOST_VIEWS = 6  # more than that is extrapolated: each view adds the same
_BATCH = 32
_FEWEST_ROUNDS = 3


@dataclass(frozen=True)
class Slowdown:
    """Measured points of one method: `times[i]` × the plain pass for `views[i]` views."""

    views: tuple[int, ...]
    times: tuple[float, ...]

    def at(self, views: int) -> float:
        """Return the slowdown at a number of views, on the straight lines between the points.

        Beyond the last point it grows in proportion: each further view costs the same.
        """
        if views > self.views[-1]:
            return self.times[-1] * views / self.views[-1]
        return float(np.interp(views, (0, *self.views), (0.0, *self.times)))


def measure_slowdown(
    predictor: Predictor,
    images: Tensor | FullImages,
    policies: Mapping[str, Policy],
    seed: int = 0,
    *,
    seconds: float = 3.0,
    rounds: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Slowdown]:
    """Time making the views and passing them through the model, for each policy by name.

    uint8 images `[n, c, h, w]`, of which a small batch is used. Every round times the plain
    pass and each policy in turn; a figure is the shortest time over the rounds, to which
    other work on the machine can only add, divided by that of the plain pass. About
    `seconds` is spent, and at least one round.
    """
    if not len(images):
        raise RelookError("expected at least one image to measure the cost on, got none")
    jobs = {(name, k): views for name, one in policies.items() for k, views in _points(one)}
    plain = (View(SubPolicy(), 0),)
    run = _Runner(predictor, images[:_BATCH], seed, clock)
    for views in (plain, *jobs.values()):  # first calls allocate and choose their algorithms
        run.seconds(views[:1])
    passes = sum(len(views) for views in jobs.values())
    run = run.shortened(seconds / (_FEWEST_ROUNDS * passes * run.seconds(plain) + 1e-9))
    start = clock()
    plain_times: list[float] = []
    times: dict[tuple[str, int], list[float]] = {job: [] for job in jobs}
    for done in range(rounds):
        if done and (clock() - start) * (done + 1) / done > seconds:
            break
        plain_times.append(run.seconds(plain))
        for job, views in jobs.items():
            times[job].append(run.seconds(views))
    unit = min(plain_times)
    relative = {
        job: 1.0 if tuple(jobs[job]) == plain else max(1.0, min(all_times) / unit)
        for job, all_times in times.items()
    }
    return {name: _curve(name, relative) for name in policies}


@dataclass(frozen=True)
class _Runner:
    """Makes views of one batch, passes them through the model and takes the time."""

    predictor: Predictor
    images: Tensor | FullImages
    seed: int
    clock: Callable[[], float]

    def seconds(self, views: Sequence[View]) -> float:
        """Return how long the views take."""
        indices = np.arange(len(self.images))
        start = self.clock()
        for view in views:
            made = apply_subpolicy(view.subpolicy, self.images, indices, self.seed, view.index)
            with watched(lambda: f"{len(indices)} images, to take its time"):
                self.predictor(made)
        return self.clock() - start

    def shortened(self, share: float) -> _Runner:
        """Return a runner with that share of the images, at least one and at most all."""
        return replace(self, images=self.images[: max(1, int(share * len(self.images)))])


def _points(policy: Policy) -> list[tuple[int, Sequence[View]]]:
    """Return the view counts to time, each with its views: 1, a half, and the most."""
    distinct, _ = distinct_views(View(sub, index) for index, sub in enumerate(policy))
    most = min(len(distinct), _MOST_VIEWS)
    return [(count, distinct[:count]) for count in sorted({1, (most + 1) // 2, most} - {0})]


def _curve(name: str, relative: Mapping[tuple[str, int], float]) -> Slowdown:
    points = sorted((k, time) for (one, k), time in relative.items() if one == name)
    # More views never cost less: what says so is noise.
    times = np.maximum.accumulate([time for _, time in points])
    return Slowdown(tuple(k for k, _ in points), tuple(float(time) for time in times))
