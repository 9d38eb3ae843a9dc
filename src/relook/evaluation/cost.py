"""The cost of views: time relative to one pass over the plain image, measured side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor, cuda

from relook.errors import RelookError
from relook.foundation.watchdog import watched
from relook.models import Predictor
from relook.policy import Policy, SubPolicy
from relook.policy.views import apply_subpolicy
from relook.predictions.passes import View, distinct_views, timed_rounds
from relook.transforms.full_images import FullImages

_MOST_VIEWS = 6  # the time of more views is extrapolated
_BATCH = 32


@dataclass(frozen=True)
class Slowdown:
    """The time of each of a method's first views, in plain passes."""

    costs: tuple[float, ...]

    def at(self, views: int) -> float:
        """Return the slowdown at a number of views; those that were not timed cost the mean."""
        known = self.costs[:views]
        return sum(known) + (views - len(known)) * sum(self.costs) / len(self.costs)


def measure_slowdown(
    predictor: Predictor,
    images: Tensor | FullImages,
    policies: Mapping[str, Policy],
    seed: int = 0,
    *,
    seconds: float = 3.0,
    rounds: int = 15,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Slowdown]:
    """Time making the views and passing them through the model, for each policy by name.

    A small batch of the uint8 images `[n, c, h, w]` is used. Views are timed one by one, so that
    each pass is short, and every round times all of them, the plain image before each policy's.
    A view's time is the shortest for making it, over all rounds, as other work on the machine can
    only add to it, plus the shortest pass of all views, as the model takes equally long for each.
    A method's time is the sum over its views.
    """
    if not len(images):
        raise RelookError("expected at least one image to measure the cost on, got none")
    plain = View(SubPolicy(), 0)

    def first_views(policy: Policy) -> Sequence[View]:
        distinct, _ = distinct_views(View(sub, index) for index, sub in enumerate(policy))
        return distinct[:_MOST_VIEWS]

    timed = {name: (plain, *first_views(one)) for name, one in policies.items()}
    run = _Runner(predictor, images[:_BATCH], seed, clock)
    run.times(plain)  # first calls allocate and choose their algorithms
    passes = sum(len(views) for views in timed.values())
    once = min(sum(run.times(plain)) for _ in range(3))  # a delayed pass would shorten it too far
    run = run.shortened(seconds / (rounds * passes * once + 1e-9))
    for view in (view for views in timed.values() for view in views[1:]):
        run.times(view)  # a transform's first call compiles it, or loads the compiled code
    rounds_made = timed_rounds(
        lambda: [one for views in timed.values() for view in views for one in run.times(view)],
        seconds=seconds,
        rounds=rounds,
        clock=clock,
    )
    making, passing = np.min(rounds_made, axis=0).reshape(-1, 2).T
    least = iter(making + passing.min())
    shortest = {name: [next(least) for _ in views] for name, views in timed.items()}
    unit = float(np.median([one[0] for one in shortest.values()]))

    def slowdown(view: View, took: float) -> float:
        """Return the time in plain passes, of which every view has one."""
        return 1.0 if view.subpolicy == SubPolicy() else max(1.0, float(took / unit))

    return {
        name: Slowdown(tuple(map(slowdown, timed[name][1:], one[1:])))
        for name, one in shortest.items()
    }


@dataclass(frozen=True)
class _Runner:
    """Makes views of one batch and passes them through the model, both timed."""

    predictor: Predictor
    images: Tensor | FullImages
    seed: int
    clock: Callable[[], float]

    def times(self, view: View) -> tuple[float, float]:
        """Return the seconds for making a view, and for passing it through the model."""
        indices = np.arange(len(self.images))
        start = self.clock()
        made = apply_subpolicy(view.subpolicy, self.images, indices, self.seed, view.index)
        if made.is_cuda:
            cuda.synchronize(made.device)  # or making it would count as the model's time
        ready = self.clock()
        with watched(lambda: f"{len(indices)} images, to take its time"):
            self.predictor(made)
        return ready - start, self.clock() - ready

    def shortened(self, share: float) -> _Runner:
        """Return a runner with that share of the images, at least one and at most all."""
        return replace(self, images=self.images[: max(1, int(share * len(self.images)))])
