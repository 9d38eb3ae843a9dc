"""A pool in rounds of candidates, the most promising first, so that a search can end early.

A round is complete on all search images. How many there were is decided once and written into the
run's plan: by a number recorded before, by a caller who wants to finish, or by the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from relook.errors import RelookError
from relook.foundation.wording import at_view_temperature, plain, signed, views_text
from relook.numerics.arrays import FloatArray
from relook.numerics.calibration import fit_temperature, prefix_log_probs, temper
from relook.numerics.intervals import group_numbers, mean_and_error
from relook.numerics.metrics import per_image_log_likelihood
from relook.policy_search.job import SearchJob
from relook.policy_search.pool_predictions import PoolPredictions, select_from_pool
from relook.policy_search.time_plan import PLANS, TimePlan, TimeWish, other_seconds
from relook.predictions.model_calls import current_engine
from relook.predictions.store import Predictions, PredictionStore
from relook.selection.record import Selected


def has_rounds(job: SearchJob) -> bool:
    """Whether a search's candidates are in order of promise, and kept as they are predicted."""
    settings = job.settings
    alone = not settings.race and not settings.cross_fit and current_engine() is None
    return alone and job.pool.defaults > 0 and job.directory is not None


@dataclass
class Rounds:
    """When a search's rounds end; where it is `timed`, by the clock. `plan` has what was kept."""

    job: SearchJob
    wish: TimeWish
    plan: TimePlan
    file: Path
    timed: bool
    log: Callable[[str], None] | None = None
    now: Callable[[], float] = time.perf_counter
    _ends: list[float] = field(default_factory=list, init=False)

    @property
    def is_short(self) -> bool:
        """Whether somebody gave a time, or what it leaves is not all there was to try."""
        return self.wish.asked or self.plan.kept is not None

    def go_on(self, so_far: PredictionStore | None, stored: bool) -> bool:
        """Return whether the next round is made, as `fill_store` asks."""
        if so_far is None:
            if self.wish.finish and not stored:
                raise RelookError(
                    f"--finish: expected a complete round of candidates in {self.file.parent}, got "
                    "none: run the same command without it"
                )
            self._ends = [self.now()]
            return True
        self._ends.append(self.now())
        done = so_far.plan.views
        if self.plan.kept is not None:
            return done < self.plan.kept
        first = done == so_far.plan.group and not stored
        if first and self.log is not None and not self.job.plan.mapped and not self.wish.finish:
            self.log(_answer(self.job, so_far))
        if stored or not (self.wish.finish or (self.timed and self._is_late(so_far))):
            return True
        self.plan = replace(self.plan, kept=done)
        PLANS.write(self.file, self.plan)
        if self.log is not None:
            why = "as asked" if self.wish.finish else "as the time is up"
            self.log(f"finishing with {done} of {len(self.job.views)} candidates, {why}")
        return False

    def _is_late(self, so_far: PredictionStore) -> bool:
        """Whether another round, the selection and the proof would not end in time."""
        if self.wish.seconds is None:
            return False
        plan, (began, *_, before, now) = so_far.plan, (self._ends[0], *self._ends)
        # The last round's pace too: other work may have begun since.
        pace = max((now - began) / plan.views, (now - before) / plan.group) / plan.images
        candidates = min(plan.group, len(self.job.views) - plan.views)
        rest = pace * (candidates * plan.images + self.job.proof_passes)
        rest += other_seconds(self.job, self.plan.size)
        return now - self.wish.started + rest > self.wish.seconds


def what_more_buys(job: SearchJob, predicted: PoolPredictions, selected: Selected) -> str:
    """Say what the second half of the candidates gained, since more will hardly gain as much."""
    made = len(predicted.candidates)
    half = selected.log_probs[: made // 2]
    part = PoolPredictions(
        predicted.candidates[: made // 2], Predictions(half.shape, half.dtype, lambda: half)
    )
    fewer = select_from_pool(replace(job, directory=None), part, None, None)
    gains = _likelihoods(job, selected) - _likelihoods(job, fewer)
    groups = None if job.groups is None else group_numbers(job.groups, len(gains))
    gain, error = mean_and_error(gains, np.ones(len(gains)), groups)
    return (
        f"what more time would buy: the last {made - made // 2} of {made} candidates have changed "
        f"the cLL by {signed(gain, 4)} ± {plain(error, 4)} on the search images; as many again "
        "probably gain less"
    )


def _likelihoods(job: SearchJob, selected: Selected) -> FloatArray:
    """Return the calibrated log-likelihood of each search image by what was selected."""
    picks, temperature = selected.result.picks, selected.result.view_temperature
    entries = (temper(selected.log_probs[pick], temperature) for pick in picks)
    (average,) = prefix_log_probs(entries, [len(picks)])
    fitted = fit_temperature(average, job.labels, view_temperature=temperature)
    return per_image_log_likelihood(temper(average, fitted), job.labels)


def _answer(job: SearchJob, store: PredictionStore) -> str:
    """Select from the first round alone, and say what that gives."""
    candidates = np.array([view.index for view in job.views[: store.plan.views]])
    predicted = PoolPredictions(
        candidates, Predictions(store.plan.shape, store.dtype, store.read_all)
    )
    found = select_from_pool(replace(job, directory=None), predicted, None, None).result
    views = views_text(len(set(found.picks)))
    return (
        f"so far, from {len(candidates)} of {len(job.views)} candidates: {views}"
        f"{at_view_temperature(found.view_temperature)}, cLL {plain(found.scores[-1], 4)} on the "
        "search images"
    )
