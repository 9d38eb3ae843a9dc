"""The best views within a time limit, measured on the ONNX file or on TTA in torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.deploy.export import Export, ExportJob, FileLatency, export_job
from relook.deploy.onnx.check import as_network_takes, as_session_takes
from relook.deploy.onnx.model import IMAGES, build_model, to_bytes
from relook.deploy.onnx.networks import Networks
from relook.deploy.recommended import Deployed, deployed, named_method, of_same_policy
from relook.deploy.tta import TTA
from relook.errors import RelookError, warn
from relook.evaluation.baselines import POLICY_METHOD, policy_label
from relook.evaluation.comparison import Comparison
from relook.evaluation.latency import (
    ALLOWED,
    ROUNDS,
    Latency,
    Limit,
    Rung,
    Stopwatch,
    choose,
    policy_mark,
)
from relook.evaluation.latency import milliseconds as ms
from relook.foundation.watchdog import watched
from relook.models import EnsemblePredictor, Predictor, TorchPredictor
from relook.models.onnx_file import OnnxFilePredictor
from relook.models.onnx_runtime import is_installed, open_session
from relook.policy import Policy
from relook.policy.recipes import Recipe
from relook.transforms.full_images import FullImages

ONNX, TORCH = "ONNX Runtime", "torch"


@dataclass(frozen=True)
class Fitting:
    """Measured times, the views to deploy, and the batch that files were measured with.

    `images` describes the images of the comparison.
    """

    latency: Latency
    deployed: Deployed
    batch: NDArray[np.uint8] | None
    images: str = ""

    @property
    def note(self) -> str:
        """Why more views were not chosen, and whether the gain of these is uncertain."""
        best, notes = self.latency.best, []
        fits = [one for one in self.latency.rungs if (one.milliseconds or 0) <= self.latency.budget]
        if best.cll is not None and any(one.views > best.views for one in fits):
            notes.append(f"more views fit, but score no higher on {self.images}")
        gain = best.over_plain
        if gain is not None and gain.low <= 0 <= gain.high:
            notes.append("the gain over the plain image is not shown: its interval contains 0")
        return "; ".join(notes)

    def verified(self, done: Export, clock: Callable[[], float] = time.perf_counter) -> Export:
        """Return an export with the time of the file that was written, measured again."""
        if self.batch is None:
            return done
        run = _session_call(done.path.read_bytes(), self.batch)
        took = Stopwatch(lambda _: run, clock)([0], ROUNDS)[0]
        budget = self.latency.budget
        if took > ALLOWED * budget:
            warn(
                f"{done.path} took {ms(took)} once it was written, more than {ms(budget)}: on a "
                "machine that does other work, measure again"
            )
        return replace(done, latency=FileLatency(took, budget, self.latency.batch))


def fit_latency(
    predictor: Predictor,
    policy: Policy,
    comparison: Comparison | None,
    recipe: Recipe,
    limit: Limit,
    *,
    method: str | None = None,
    engine: str = ONNX,
    clock: Callable[[], float] = time.perf_counter,
    **how: Any,
) -> Fitting:
    """Return the best number of views whose call stays within the limit, measured here.

    The method is the one given, or the comparison's recommendation; its held-out cLL decides how
    many views are best. Without a comparison, it is the policy with as many views as fit. The file
    of `relook.export` is measured, with the keywords `how`; with the engine `TORCH`, `relook.TTA`.
    """
    if how.get("format", "onnx") != "onnx":
        raise RelookError(
            f"latency: expected format onnx, whose file is measured, got {how['format']}"
        )
    comparison = of_same_policy(comparison, policy)
    candidates = _Candidates(predictor, policy, comparison, recipe, limit.batch, engine, how)
    rungs = _rungs(policy, comparison, method)
    measured, place = choose(
        rungs, limit.milliseconds, Stopwatch(lambda one: candidates.call(rungs[one]), clock)
    )
    latency = Latency(
        rungs=tuple(measured),
        chosen=place,
        budget=limit.milliseconds,
        batch=limit.batch,
        engine=engine,
        processor=_processor(),
        threads=torch.get_num_threads(),
        image=candidates.image,
        policy=policy_mark(policy),
        plain_advised=method is None and all(one.method == "plain" for one in rungs),
    )
    images = "" if comparison is None else comparison.images_text
    return Fitting(latency, candidates.deployed(latency.best), candidates.onnx_batch, images)


def engine_for(predictor: Predictor) -> str:
    """Return the engine that can run a model here: ONNX Runtime, or else torch."""
    if not is_installed():
        return TORCH
    if isinstance(predictor, EnsemblePredictor):
        engines = {engine_for(one) for one in predictor.members}
        return ONNX if engines == {ONNX} else TORCH
    return ONNX if isinstance(predictor, TorchPredictor | OnnxFilePredictor) else TORCH


@dataclass
class _Candidates:
    """Deploys the method with each number of views, to be called with one batch."""

    predictor: Predictor
    policy: Policy
    comparison: Comparison | None
    recipe: Recipe
    batch: int
    engine: str
    how: dict[str, Any]
    networks: Networks | None = field(default=None, init=False)
    onnx_batch: NDArray[np.uint8] | None = field(default=None, init=False)
    image: str = field(default="", init=False)

    def deployed(self, rung: Rung) -> Deployed:
        return deployed(self.policy, self.comparison, self.recipe, rung.method, rung.views)

    def call(self, rung: Rung) -> Callable[[], object]:
        job = self._job(rung)
        images = _repeated(job.images, self.batch)
        kind, sides = "image", tuple(images.shape[2:])
        if isinstance(images, FullImages):
            kind, sides = "photo", images.levels(0).shape[:2]
        self.image = f"{kind}{'s' if self.batch > 1 else ''} of {sides[0]} × {sides[1]}"
        if self.engine == TORCH:
            plan, given = job.plan.views, job.plan.input.network
            size = given.height, given.width
            tta = TTA(self.predictor, plan.policy, temperature=plan.temperature, size=size)
            return lambda: tta(images)
        example = as_network_takes(job.images, job.plan.input)
        self.networks = self.networks or Networks(example)
        data = to_bytes(build_model(job.plan, job.predictor, example, self.networks))
        self.onnx_batch = np.concatenate(as_session_takes(job.plan.input, images))
        return _session_call(data, self.onnx_batch)

    def _job(self, rung: Rung) -> ExportJob:
        """Return the export of a rung; a policy without a temperature is timed uncalibrated."""
        chosen = self.deployed(rung)
        temperature, policy = chosen.temperature, chosen.policy
        if temperature == "policy" and (policy.temperatures is None or not policy.is_fixed):
            temperature = None
        own = {**self.how, "temperature": temperature}
        return export_job(self.predictor, replace(policy, fitted_on=None), **own)


def _session_call(data: bytes, batch: NDArray[np.uint8]) -> Callable[[], object]:
    session = open_session(data, spinning=False)  # as it would slow other sessions

    def call() -> object:
        with watched(lambda: f"{len(batch)} images, to measure the time"):
            return session.run(None, {IMAGES: batch})

    return call


def _repeated(images: Tensor | FullImages, batch: int) -> Tensor | FullImages:
    """Return a batch of repeated images."""
    if isinstance(images, FullImages):  # photos of one size, as a call takes them: the first one
        return images[np.zeros(batch, dtype=np.int64)]
    return images[torch.arange(batch) % len(images)]


def _rungs(policy: Policy, comparison: Comparison | None, method: str | None) -> list[Rung]:
    """Return the plain image, and the method with each number of views that was compared."""
    if comparison is None:
        label, numbers = policy_label(policy), range(1, policy.views + 1)
        return [Rung("plain", "", 1), *(Rung(POLICY_METHOD, label, one) for one in numbers)]
    name = named_method(method or comparison.verdict.recommended_method)
    rungs = []
    for one in dict.fromkeys(("plain", name)):
        rows = {row.views: row for row in comparison.rows if row.method == one}
        if not rows:
            raise RelookError(
                f"latency: expected a method that was compared, got {one!r}: run  relook compare"
            )
        for views, row in sorted(rows.items()):
            gain = (row.with_learned_average.over_plain or {}).get("cll")
            rungs.append(Rung(one, row.label, views, row.best_cll, gain))
    return rungs


def _processor() -> str:
    from llvmlite import binding

    return str(binding.get_host_cpu_name())
