"""Rounds of candidates, the most promising first, and when a search in time stops after one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from relook.errors import RelookError
from relook.foundation.wording import (
    at_view_temperature,
    count,
    plain,
    signed,
    views_text,
)
from relook.io.run_directory import RunDirectory
from relook.numerics.arrays import FloatArray
from relook.numerics.calibration import fit_temperature, prefix_log_probs, temper
from relook.numerics.intervals import group_numbers, mean_and_error
from relook.numerics.metrics import per_image_log_likelihood
from relook.policy_search.job import SearchJob
from relook.policy_search.pool_predictions import PoolPredictions, select_from_pool
from relook.policy_search.time_plan import PLANS, TimePlan, TimeRequest, overhead_seconds
from relook.predictions.model_calls import current_engine
from relook.predictions.store import Predictions, PredictionStore
from relook.selection.record import Log, Selected


def can_have_rounds(job: SearchJob) -> bool:
    """Whether candidates can be predicted in rounds: in order of promise, here, and stored."""
    local = job.settings.in_rounds and current_engine() is None
    return local and job.pool.defaults > 0 and job.directory is not None


@dataclass
class Rounds:
    """Decides after each round of candidates whether another one follows.

    With `timed` the clock decides. `plan` has the number of candidates kept, once it is known.
    """

    job: SearchJob
    request: TimeRequest
    plan: TimePlan | None
    engine: str
    timed: bool
    log: Log | None = None
    now: Callable[[], float] = time.perf_counter
    _times: list[float] = field(default_factory=list, init=False)  # of the start, and rounds' ends

    @property
    def are_limited(self) -> bool:
        """Whether a time was given, or not all candidates were predicted."""
        return self.request.explicit or self._kept is not None

    @property
    def images_left_out(self) -> int:
        """How many images more time would add: those that the plan leaves out of the data set."""
        job = self.job
        if not (self.request.images_free and job.settings.left_out and job.test is None):
            return 0
        return len(job.dataset) - job.size.search - job.size.proof

    @property
    def _kept(self) -> int | None:
        return None if self.plan is None else self.plan.kept

    def has_next(self, so_far: PredictionStore | None, stored: bool) -> bool:
        """Return whether there is another round, as `fill_store` calls it."""
        self._times.append(self.now())
        if so_far is None:
            if self.request.finish and not stored:
                raise no_complete_round(self.job.directory)
            return True
        done = so_far.plan.views
        if self._kept is not None:
            return done < self._kept
        if stored:
            return True
        finish, is_first = self.request.finish, done == so_far.plan.group
        if is_first and self.log is not None and not (finish or self.job.plan.mapped):
            self.log(_interim_result(self.job, so_far))
        if not finish and not self._next_overruns(so_far):
            return True
        self._stop_after(done)
        return False

    def _next_overruns(self, so_far: PredictionStore) -> bool:
        """Whether another round, the selection and the comparison would not end in time."""
        if not self.timed or self.request.seconds is None:
            return False
        plan, start, before, now = so_far.plan, self._times[0], *self._times[-2:]
        # The last round's pace counts too: the machine may have become busier since.
        pace = max((now - start) / plan.views, (now - before) / plan.group) / plan.images
        candidates = min(plan.group, len(self.job.views) - plan.views)
        rest = pace * (candidates * plan.images + self.job.passes.proof)
        rest += overhead_seconds(self.job, self.job.size)
        return now - self.request.started + rest > self.request.seconds

    def _stop_after(self, candidates: int) -> None:
        """Store in the run's plan how many candidates it keeps."""
        settings = self.job.settings
        sizes = settings.pool_size, settings.holdout, settings.left_out
        plan = self.plan or TimePlan(*sizes, self.engine, self.job.size)
        self.plan = replace(plan, kept=candidates)
        PLANS.write(RunDirectory(self.job.directory or "").plan, self.plan)
        if self.log is not None:
            why = "as asked" if self.request.finish else "as the time is up"
            self.log(f"finishing with {candidates} of {len(self.job.views)} candidates, {why}")


def no_complete_round(run: Path | None) -> RelookError:
    """Return the error for a run that cannot be finished, as it has no complete round yet."""
    return RelookError(
        f"finish: expected a complete round of candidates in {run}, got none: run the same "
        "command without it"
    )


def what_more_time_buys(
    job: SearchJob, predicted: PoolPredictions, selected: Selected, left_out: int = 0
) -> str:
    """Say what the second half of the candidates gained, since more will hardly gain as much.

    `left_out` is the number of images that more time would add.
    """
    made = len(predicted.candidates)
    half = Predictions.of(selected.log_probs[: made // 2])
    fewer = _select(job, PoolPredictions(predicted.candidates[: made // 2], half))
    gains = _log_likelihoods(job, selected) - _log_likelihoods(job, fewer)
    groups = None if job.groups is None else group_numbers(job.groups, len(gains))
    gain, error = mean_and_error(gains, np.ones(len(gains)), groups)
    changed = f"the cLL by {signed(gain, 4)} ± {plain(error, 4)} on the search images; "
    changed += f"as many again probably gain {'less' if gain > 0 else 'nothing'}"
    if max(abs(gain), error) < 0.00005:
        changed = "nothing; as many again probably change nothing either"
    if left_out:
        changed += f", but the {count(left_out, 'image')} left out would narrow the intervals"
    last = f"the last {made - made // 2} of {made} candidates"
    return f"what more time would buy: {last} have changed {changed}"


def _log_likelihoods(job: SearchJob, selected: Selected) -> FloatArray:
    """Return each search image's calibrated log-likelihood under the selection, `[image]`."""
    picks, temperature = selected.result.picks, selected.result.view_temperature
    entries = (temper(selected.log_probs[pick], temperature) for pick in picks)
    (average,) = prefix_log_probs(entries, [len(picks)])
    fitted = fit_temperature(average, job.labels, view_temperature=temperature)
    return per_image_log_likelihood(temper(average, fitted), job.labels)


def _interim_result(job: SearchJob, store: PredictionStore) -> str:
    """Select from the candidates so far, and describe the result."""
    candidates = np.array([view.index for view in job.views[: store.plan.views]])
    predictions = Predictions(store.plan.shape, store.dtype, store.read_all)
    found = _select(job, PoolPredictions(candidates, predictions)).result
    views = views_text(len(set(found.picks)))
    return (
        f"so far, from {len(candidates)} of {len(job.views)} candidates: {views}"
        f"{at_view_temperature(found.view_temperature)}, cLL {plain(found.scores[-1], 4)} on the "
        "search images"
    )


def _select(job: SearchJob, part: PoolPredictions) -> Selected:
    """Select from a part of the pool, without keeping a trace."""
    return select_from_pool(replace(job, directory=None), part, None, None)
