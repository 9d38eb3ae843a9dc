"""One calibrated model that carries its policy: `TTA(model, policy)(images)`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from relook.data.adapt import channels_first
from relook.data.base import identities_of
from relook.deploy.calibrate import fitted_policy, other_network_note
from relook.deploy.early_exit.rule import (
    EarlyExit,
    Exited,
    apply_early_exit,
    exit_counts,
    run_early_exit,
)
from relook.deploy.tta.images import CUT_FROM_INPUT, Images, cuts_photos, open_images, shape_of
from relook.deploy.tta.network import batch_limit, evaluating, is_traced, network_of
from relook.deploy.tta.view_plan import (
    Output,
    TemperatureChoice,
    Uncertainty,
    fixed_view,
    plan_with_exits,
    subpolicy_text,
    traced_view,
)
from relook.errors import RelookError, unknown_name, warn
from relook.foundation.watchdog import watched
from relook.models.base import input_of
from relook.models.describe import network_mark
from relook.models.predictors import channels_of
from relook.models.specs import MODEL_OPTIONS
from relook.numerics.calibration import LOG_FLOOR, temper
from relook.policy import DrawKind, Policy
from relook.predictions.passes import View, distinct_views
from relook.transforms.full_images import FullImages

# With early exit, images are started this many batches at a time, so that late views fill batches.
_EXIT_BATCHES = 32


class TTA(nn.Module):
    """Averages a model's predictions over the views of a policy, and calibrates them.

    Takes uint8 images `[n, c, h, w]`, or floats in [0, 1], which are rounded to grey levels;
    returns `output` `[n, class]`, float32 on the model's device. It also takes photos of any size:
    a list of them (uint8 tensors `[c, h, w]`, arrays `[h, w, c]`, Pillow images), a data set's
    full-size images or, with a policy that was searched on photos, a batch whose size is not the
    input's. Crops are then cut from them, as in the search. The methods that return arrays, such as
    `predict_proba`, also take `[n, h, w, c]` and `[n, h, w]`. Each distinct view runs once and
    counts as often as the policy repeats it. `model` is a torch module (`mean`, `std`, `outputs` as
    for `relook.search`) or a predictor; the module is `tta.model`.

    `policy` may be a policy's file or the name of a preset (`flip`, `preset:10c` …), which is not
    calibrated until `calibrate` gets labelled images. `views` is a budget of model passes per
    image. `temperature` is the policy's for that budget, a number, or None for none; a warning is
    given if it was fitted on another network. A policy of fresh draws is frozen by `seed`, unless
    `draws="fresh"`: then views are drawn by counter, one index per image. At most `max_batch` views
    go through the model at once (default: by the images' size). Images must have the `size`
    (height, width); `classes` are names for `predict`. `early_exit`, a rule or its file, stops each
    image after as many views as it needs, at the rule's own temperatures.

    The model runs in eval mode and without gradients. Compiled or exported, all views go through
    the model at once and values are not checked; the views in an exported graph consist of torch's
    own operations.
    """

    def __init__(
        self,
        model: object,
        policy: Policy | str | Path,
        *,
        views: int | None = None,
        temperature: TemperatureChoice = "policy",
        output: Output = "probabilities",
        draws: DrawKind = "fixed",
        seed: int | None = None,
        size: int | tuple[int, int] | None = None,
        classes: Sequence[str] | None = None,
        max_batch: int | None = None,
        early_exit: EarlyExit | str | Path | None = None,
        **model_options: Any,
    ) -> None:
        super().__init__()
        for name in model_options.keys() - MODEL_OPTIONS:
            raise unknown_name("keyword of TTA", name, [*signature(TTA).parameters, *MODEL_OPTIONS])
        if output not in get_args(Output):
            raise unknown_name("output", output, get_args(Output))
        if max_batch is not None and max_batch < 1:
            raise RelookError(f"expected max_batch of at least 1, got {max_batch}")
        self.plan, self.early_exit = plan_with_exits(
            early_exit, policy, views, temperature, draws, seed
        )
        self.model, self.network = network_of(model, model_options)
        note = other_network_note(model, self.policy) if temperature == "policy" else None
        if note is not None:
            warn(note)
        self.output = output
        self.classes = None if classes is None else tuple(classes)
        self.max_batch = max_batch
        self._input = input_of(self.network.predictor)
        self._channels = channels_of(self.network.predictor)
        searched = self.policy.preparation
        known = None if self._input is None else self._input.size
        if known is None and searched is not None and searched.full_size:
            known = searched.size
        self.size = (size, size) if isinstance(size, int) else size or known
        self.next_index = 0
        self._class_count: int | None = None
        self._warned = False
        fixed = self.plan.views if self.plan.is_fixed else ()
        self._subpolicy_texts = [subpolicy_text(view.subpolicy) for view in fixed]

    @property
    def policy(self) -> Policy:
        """The policy that runs: frozen, and cut to the budget."""
        return self.plan.policy

    @property
    def views(self) -> int:
        """The number of model passes per image."""
        return len(self.plan.views)

    @property
    def temperature(self) -> float:
        """The divisor of the averaged log-probabilities; 1 without calibration."""
        return self.plan.temperature

    def forward(self, images: Images, first_index: int | None = None) -> Tensor:
        """Return `output` `[n, class]`.

        For fresh draws, `first_index` is the index of the first image; by default, indices continue
        from the last call.
        """
        with torch.no_grad():
            if self.early_exit is not None:
                scaled = self._exit_early(self.early_exit, images)[0]
            else:
                log_probs = self.view_log_probs(images, first_index)
                scaled = self._average(log_probs).clamp(min=LOG_FLOOR) / self.temperature
            if self.output == "logits":
                return scaled
            return scaled.softmax(-1) if self.output == "probabilities" else scaled.log_softmax(-1)

    def view_log_probs(self, images: Images, first_index: int | None = None) -> Tensor:
        """Return each distinct view's log-probabilities `[view, n, class]`, float32.

        They are at the policy's view temperature, ready to be averaged.
        """
        levels = self._levels(images)
        if is_traced() and isinstance(levels, Tensor):
            return self._traced_log_probs(levels)
        first = self.next_index if first_index is None else first_index
        if first_index is None and not self.plan.is_fixed:
            self.next_index += len(levels)
        limit = self._limit(levels.shape)
        parts = []
        with torch.no_grad(), evaluating(self.model):
            for start in range(0, len(levels), limit):
                part = levels[start : start + limit]
                indices = np.arange(first + start, first + start + len(part))
                parts.append(self._part_log_probs(part, indices, limit))
        return _concatenate(parts, dim=1)

    def predict_proba(self, images: Images, *, first_index: int = 0) -> NDArray[np.float32]:
        """Return probabilities float32 `[n, class]` of an array of any length, in batches."""
        if self.early_exit is not None:
            return np.exp(self.exit_early(images).log_probs).astype(np.float32)
        parts = self._batches(images, first_index)
        return np.concatenate([self.probabilities(part.cpu().numpy()) for part in parts])

    def probabilities(self, log_probs: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Return calibrated probabilities `[n, class]` from the result of `view_log_probs`."""
        if self.early_exit is not None:
            exited = apply_early_exit(self.early_exit, log_probs, exit_counts(self.policy))
            return np.exp(exited.log_probs).astype(np.float32)
        return np.exp(temper(self.plan.mean(log_probs), self.temperature)).astype(np.float32)

    def exit_early(self, images: Images) -> Exited:
        """Return calibrated log-probabilities `[n, class]` and the number of views per image."""
        if self.early_exit is None:
            raise RelookError("expected a TTA with early_exit=…, got one that runs all views")
        parts = self._parts(images, _EXIT_BATCHES)
        with torch.no_grad():
            found = [self._exit_early(self.early_exit, part) for part in parts]
        rows = torch.cat([scaled.double().log_softmax(-1).cpu() for scaled, _ in found])
        return Exited(rows.numpy(), torch.cat([views for _, views in found]).numpy())

    def predict(self, images: Images, *, first_index: int = 0) -> NDArray[Any]:
        """Return the most probable class of each image: its name if there are `classes`."""
        best = self.predict_proba(images, first_index=first_index).argmax(axis=1)
        return best if self.classes is None else np.asarray(np.array(self.classes)[best])

    def predict_set(self, images: Images, *, first_index: int = 0) -> NDArray[np.bool_]:
        """Return whether each class is in an image's prediction set, `[n, class]`.

        The policy needs sets, which `relook conformal` and `FoundPolicy.conformal` make.
        """
        rule = None if self.early_exit is not None else self.plan.sets
        if rule is None:
            raise RelookError(
                "expected a policy with prediction sets for these views and this temperature, "
                "without early_exit: make them with  relook conformal"
            )
        return rule.sets(self.predict_proba(images, first_index=first_index))

    def uncertainty(self, images: Images, *, first_index: int = 0) -> Uncertainty:
        """Return the entropies of the predictions and the disagreement of the views, `[n]` each.

        All views run, even with an early exit.
        """
        batches = self._batches(images, first_index)
        found = [self.plan.uncertainty(log_probs.cpu().numpy()) for log_probs in batches]
        columns = zip(*(vars(part).values() for part in found), strict=True)
        return Uncertainty(*map(np.concatenate, columns))

    def calibrate(self, images: Images, labels: ArrayLike, *, first_index: int = 0) -> TTA:
        """Fit the view temperature and the temperatures on labelled images; returns itself.

        The policy records these images, as no gain can be claimed on them.
        """
        if self.early_exit is not None:
            raise RelookError("each exit has temperatures of its own: leave early_exit out")
        self.plan = replace(self.plan, policy=replace(self.policy, view_temperature=1.0))
        batches = [part.cpu().numpy() for part in self._batches(images, first_index)]
        _, order = distinct_views(View(sub, index) for index, sub in enumerate(self.policy))
        log_probs = np.concatenate(batches, axis=1)[order]
        policy = fitted_policy(
            self.policy,
            log_probs,
            np.asarray(labels, dtype=np.int64),
            identities_of(self._levels(channels_first(images))),
            network_mark(self.network.predictor),
        )
        temperature = (policy.temperatures or (1.0,))[-1]
        self.plan = replace(self.plan, policy=policy, temperature=temperature)
        return self

    def get_extra_state(self) -> Tensor:
        """Return the policy, temperature and normalisation as bytes, for the state dict."""
        return torch.frombuffer(bytearray(self._record()), dtype=torch.uint8)

    def set_extra_state(self, state: object) -> None:
        """Raise if a state dict belongs to other views: its weights would load without an error."""
        given = bytes(state.cpu().tolist()) if isinstance(state, Tensor) else b""
        if given != self._record():
            raise RelookError(
                "the state dict belongs to a TTA with another policy, temperature or "
                "normalisation: make the TTA with the same ones, or load the network's weights "
                "alone into tta.model"
            )

    def extra_repr(self) -> str:
        """Return the settings that are printed with the module."""
        kappa = self.policy.view_temperature
        views_at = "" if kappa == 1 else f"view_temperature={kappa:.4g}, "
        return (
            f"views={self.views}, temperature={self.temperature:.4g}, {views_at}"
            f"output={self.output!r}, draws={'fixed' if self.plan.is_fixed else 'fresh'!r}"
        )

    def _record(self) -> bytes:
        rule = "" if self.early_exit is None else json.dumps(self.early_exit.to_json())
        return f"{self.plan.record()}{self.network.record()}{rule}".encode()

    def _levels(self, images: Images) -> Tensor | FullImages:
        """Return uint8 images `[n, c, h, w]` or full-size ones that fit network and policy."""
        levels = open_images(images, self.policy, self.size, self._channels, self._input)
        if isinstance(levels, Tensor) and not self._warned and not is_traced():
            self._warned = cuts_photos(self.policy)
            if self._warned:
                warn(CUT_FROM_INPUT)
        return levels

    def _limit(self, shape: Sequence[int]) -> int:
        """Return the most views in a batch, for images of shape `[n, c, h, w]`."""
        return self.max_batch or batch_limit(self.model, shape[2] * shape[3])

    def _part_log_probs(
        self, images: Tensor | FullImages, indices: NDArray[np.int64], limit: int
    ) -> Tensor:
        """Run a few images, with as many of their views at once as the limit allows."""
        together = max(1, limit // len(images))
        results = []
        for start in range(0, self.views, together):
            group = range(start, min(start + together, self.views))
            made = [self.plan.make(view, images, indices) for view in group]
            rows = self._predict_views(_concatenate(made), f"images {indices[0]}…{indices[-1]}")
            results.append(rows.view(len(group), len(images), -1))
        return _concatenate(results)

    def _exit_early(self, rule: EarlyExit, images: Images) -> tuple[Tensor, Tensor]:
        """Return scaled log-probabilities `[n, class]` and views `[n]` of images in memory."""
        if is_traced():
            raise RelookError("early exit cannot be compiled or exported: leave early_exit out")
        levels = self._levels(images)
        limit = self._limit(levels.shape)

        def predict(view: int, places: Tensor) -> Tensor:
            rows = []
            for part in torch.split(places, limit):
                own = levels[part.to(levels.device) if isinstance(levels, Tensor) else part]
                # Indices do not matter: a fixed view is the same for every image.
                made = self.plan.make(view, own, np.zeros(len(own), dtype=np.int64))
                rows.append(self._predict_views(made, f"{len(own)} images, view {view + 1}"))
            return _concatenate(rows)

        with evaluating(self.model):
            return run_early_exit(rule, exit_counts(self.policy), len(levels), predict)

    def _predict_views(self, views: Tensor, which: str) -> Tensor:
        """Run the model on views; `which` names them in the watchdog's message."""
        with watched(lambda: which):
            rows = self._tempered_log_probs(views)
        self._check_classes(rows.shape[-1])
        return rows

    def _tempered_log_probs(self, views: Tensor) -> Tensor:
        """Return views' log-probabilities at the view temperature: `Policy.tempered` in torch."""
        rows = self.network(self.model, views)
        kappa = self.policy.view_temperature
        return rows if kappa == 1 else (rows.clamp(min=LOG_FLOOR) / kappa).log_softmax(dim=-1)

    def _traced_log_probs(self, images: Tensor) -> Tensor:
        if not self.plan.is_fixed:
            raise RelookError(
                "expected a fixed policy to compile or export, got fresh draws: leave "
                "draws='fresh' out, or freeze the policy"
            )
        if self.model.training:
            raise RelookError("expected a model in eval mode to compile or export: call .eval()")
        if torch.compiler.is_dynamo_compiling():
            made = [fixed_view(images, text) for text in self._subpolicy_texts]
        else:
            made = [traced_view(view.subpolicy, images) for view in self.plan.views]
        rows = self._tempered_log_probs(torch.cat(made))
        return rows.view(self.views, -1, rows.shape[-1])

    def _average(self, log_probs: Tensor) -> Tensor:
        total = sum(self.plan.counts)
        logs = [math.log(count / total) for count in self.plan.counts]
        weights = torch.tensor(logs, dtype=log_probs.dtype, device=log_probs.device)
        return torch.logsumexp(log_probs + weights[:, None, None], dim=0)

    def _batches(self, images: Images, first_index: int) -> Iterator[Tensor]:
        """Yield the views' log-probabilities of a few images at a time; images in any layout."""
        start = first_index
        for part in self._parts(images):
            yield self.view_log_probs(part, start)
            start += len(part)

    def _parts(self, images: Images, batches: int = 1) -> Iterator[Images]:
        """Yield a few images at a time, in any layout that a search takes."""
        images = channels_first(images)
        step = max(1, self._limit(shape_of(images, self.size)))
        for start in range(0, len(images), step * batches):
            yield images[start : start + step * batches]

    def _check_classes(self, count: int) -> None:
        if self._class_count not in (None, count):
            raise RelookError(
                f"expected {self._class_count} classes from the model, as before, got {count}"
            )
        self._class_count = count
        if self.classes is not None and len(self.classes) != count:
            raise RelookError(
                f"expected a name for each of the model's {count} classes, got {len(self.classes)}"
            )


def _concatenate(parts: list[Tensor], dim: int = 0) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)
