"""Greedy policy search over a pool's predictions: the plain rule, or the conservative one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from relook.errors import RelookError
from relook.foundation.progress import StepProgress
from relook.numerics.arrays import Labels, LogProbs
from relook.numerics.intervals import group_numbers
from relook.selection.conservative import Problem, conservative_search
from relook.selection.greedy import Pick, Scoring, SearchResult, is_large, search_with
from relook.selection.objectives import OBJECTIVES, UserObjective, class_weights, resolve_objective
from relook.selection.predictions import check_predictions, check_shapes, tempered_pool


def greedy_search(
    log_probs: LogProbs,
    labels: Labels,
    length: int,
    objective: str | UserObjective = "cll",
    *,
    balanced: bool = False,
    progress: StepProgress | None = None,
    start: Sequence[int] = (),
    threads: int | None = None,
    memory: int = 16 << 30,
    picked: Callable[[Pick], None] | None = None,
    defaults: Sequence[int] = (),
    in_order: bool = True,
    groups: ArrayLike | None = None,
    preselected: bool = False,
    view_temperature: float | None = None,
) -> SearchResult:
    """Pick `length` candidates, each the best addition to the average so far; repeats allowed.

    `log_probs` is `[candidate, image, class]`, `labels` `[image]`. `balanced` gives each class
    the same weight, in the score and in the temperatures, which are always fitted by cLL.
    `start` holds the first picks, counted in `length`; a search that continues from its own first
    picks ends in the same result. `progress(done, total, score)` is called after each step, and
    `picked(pick)` with each entry beyond `start`. `threads` (default: all cores) only changes the
    time.

    With `defaults` the selection is conservative: a step takes the first of these candidates that
    is not picked yet, unless another one is better by more than noise. Without `in_order` it takes
    the best of them; if images are few, from the third step on. `groups` `[image]` says which
    images belong together and so count as one. `preselected` says that the same labels have
    already narrowed down the candidates: the average of all of them then gives no soft targets.
    The view temperature (default: 1) is, with defaults, learned on averages of them before
    anything is picked (numerics/view_temperature).

    With more than 200 classes, cLL and large predictions (which may be a memory map, and float16),
    a compact form proposes candidates and the full predictions decide; it takes at most about
    `memory` bytes. Every score is exact.
    """
    log_probs, labels = np.asarray(log_probs), np.asarray(labels)
    check_shapes(log_probs, labels)
    _check_length(length, start)
    _check_places("first picks", start, len(log_probs))
    defaults = tuple(int(place) for place in defaults)
    _check_places("defaults", defaults, len(log_probs))
    labels = labels.astype(np.int64)
    chosen = resolve_objective(objective)
    weights = class_weights(labels) if balanced else None
    is_cll = chosen is OBJECTIVES["cll"]
    compiled = is_cll and is_large(log_probs.size, conservative=bool(defaults))
    if not compiled:
        check_predictions(log_probs, labels)
    scoring = Scoring(chosen, compiled, threads, memory)
    if not defaults:
        kappa = view_temperature or 1.0
        averaged = tempered_pool(log_probs, kappa, threads)
        with scoring.open(averaged, labels, weights) as scorer:
            found = search_with(scorer, averaged, length, start, progress, picked)
        return replace(found, view_temperature=kappa)
    if not is_cll:
        raise RelookError(f"a conservative selection needs the objective cll, got {objective!r}")
    image_weights = np.ones(len(labels)) if weights is None else weights
    units = np.arange(len(labels)) if groups is None else group_numbers(groups, len(labels))
    return conservative_search(
        Problem(scoring, log_probs, labels, image_weights, units),
        length,
        defaults,
        in_order=in_order,
        preselected=preselected,
        view_temperature=view_temperature,
        start=start,
        progress=progress,
        picked=picked,
    )


def _check_length(length: int, start: Sequence[int]) -> None:
    if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 1:
        raise RelookError(f"expected a policy length of at least 1, got {length!r}")
    if len(start) > length:
        raise RelookError(f"expected at most {length} first picks, got {len(start)}")


def _check_places(what: str, places: Sequence[int], candidates: int) -> None:
    for place in places:
        if not 0 <= place < candidates:
            raise RelookError(f"expected {what} from 0 to {candidates - 1}, got {place!r}")
