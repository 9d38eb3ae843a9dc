"""Every baseline and the policy, side by side on the same held-out images.

Each distinct view is predicted once, whatever the number of methods, budgets and runs that
use it; a method's figures at all budgets come from prefixes of one list of views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from relook.data.base import Dataset
from relook.evaluation.baselines import (
    POLICY_METHOD,
    is_asked,
    label_of,
    policy_label,
)
from relook.evaluation.comparison import (
    LEARNED,
    MOST_CHANGED,
    Comparison,
    Measured,
    Row,
    Verdict,
    class_names,
    gallery_of,
    policy_row,
    recommended_row,
)
from relook.evaluation.cost import Slowdown, measure_slowdown
from relook.evaluation.cross_validation import (
    likely_between,
    per_image,
    reliability_bins,
    selective_risks,
)
from relook.evaluation.foreign import detect
from relook.evaluation.scoring import (
    Key,
    MethodRun,
    Scores,
    affordable,
    best_rival,
    lines_of,
    score_lines,
)
from relook.evaluation.setup import (
    ComparisonKeywords,
    Setup,
    available_methods,
    settings_for,
    with_magnitude,
)
from relook.evaluation.unseen import unseen_part
from relook.evaluation.verdict import judge
from relook.evaluation.verdict_text import add_doubt, add_losses, add_mistake
from relook.evaluation.where import Where, changed_images, confusions, gains_by_slice
from relook.foundation.progress import StageProgress, stage_of
from relook.models import Predictor
from relook.numerics.intervals import Interval, group_numbers, mean_and_deviation
from relook.policy import Policy
from relook.policy.recipes import Recipe
from relook.predictions.passes import Images, KnownViews

LEFT_OUT = "left_out_images"
"""In the record of a comparison: how many images of the search are neither used here nor there."""


def compare(
    predictor: Predictor,
    dataset: Dataset,
    policy: Policy | Sequence[Policy],
    *,
    recipe: Recipe | str,
    validation: Dataset | None = None,
    indices: ArrayLike | None = None,
    store_path: str | Path | None = None,
    progress: StageProgress | None = None,
    record: Mapping[str, Any] | None = None,
    known: KnownViews | None = None,
    ood: Sequence[Images] = (),
    **settings: Unpack[ComparisonKeywords],
) -> Comparison:
    """Score the policy and every baseline at every budget on held-out images.

    Images that a policy, its temperatures or its weights were found on are left out, with a
    warning. `settings` are the fields of `ComparisonSettings`. Several policies are one per run.
    Baselines such as random crops are drawn for each image, so that no lucky crop of all images
    decides. `validation` holds images for MGrid to find its magnitude on, `indices` `[n]` the
    images' places in the data set that they come from. `record` is added to the comparison's
    settings; the verdict mentions a mistake in its `set_up` and, if it needs more images, those of
    `LEFT_OUT`. With `store_path` predictions
    are kept, and an interrupted call can be resumed; views that are `known` of all the images are
    not predicted again. `ood` are foreign images, uint8 `[m, c, h, w]` in one batch or more, of no
    class that the model knows, to measure how well they are detected. The stages of `progress` are
    "magnitude" and "evaluate". Everything but the slowdown is determined by the seeds.
    """
    policies = (policy,) if isinstance(policy, Policy) else tuple(policy)
    asked = settings_for(policies, settings)
    unseen = unseen_part(dataset, policies, indices)
    setup = asked.setup(
        predictor,
        unseen.dataset,
        recipe,
        indices=unseen.indices,
        store_path=store_path,
        progress=stage_of(progress, "evaluate"),
        known=known if len(unseen.dataset) == len(dataset) else None,
    )
    methods, left_out = available_methods(setup, asked.methods, validation)
    grid = None
    if "mgrid" in methods:
        setup, grid = with_magnitude(setup, validation, stage_of(progress, "magnitude"))
    lines = [line for method in methods for line in lines_of(setup, method, policies)]
    own = policies[0].subpolicies
    repeated = {line.method for line in lines if line.policy.subpolicies == own}
    repeated -= {"plain", POLICY_METHOD}
    left_out |= dict.fromkeys(repeated, "it is the policy itself")
    methods = [method for method in methods if method not in repeated]
    lines = [line for line in lines if line.method not in repeated]
    scores, cross_fit = score_lines(setup, lines), any(line.folds for line in lines)
    labels = {method: label_of(method) for method in methods}
    labels[POLICY_METHOD] = policy_label(policies[0])
    rows = _rows(setup, scores, lines, labels)
    verdict = _verdict(setup, scores, rows, cross_fit, (record or {}).get(LEFT_OUT, 0))
    recommended = recommended_row(rows, verdict)
    where = _where(setup, scores, rows, recommended)
    kept = _merged(
        {
            **setup.record(),
            "methods": methods,
            "left_out": left_out,
            "margin": setup.margin,
            "grid_search": grid,
            "validation": None if validation is None else validation.fingerprint,
            "cross_fit": cross_fit,
            "doubt": unseen.doubt,
        },
        record or {},
    )
    verdict = add_doubt(add_losses(verdict, where), unseen.doubt)
    return Comparison(
        policy=policies[0],
        rows=rows,
        budgets=setup.budgets,
        verdict=add_mistake(verdict, kept.get("set_up")),
        gallery=gallery_of(setup.places, setup.seed),
        images=len(setup.dataset),
        classes=class_names(setup.dataset, scores.log_probs["plain"].shape[1]),
        settings=kept,
        against=_against(setup, scores, recommended),
        per_image=_per_image(setup, scores, recommended),
        where=where,
        **_of_predictions(setup, scores, lines, ood),
    )


def _merged(settings: dict[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Add a caller's record to the settings; tables of the same name are joined."""
    merged = {**settings, **record}
    for name in settings.keys() & record.keys():
        if isinstance(settings[name], dict) and isinstance(record[name], Mapping):
            merged[name] = {**settings[name], **record[name]}
    return merged


def _rows(
    setup: Setup, scores: Scores, lines: Sequence[MethodRun], labels: Mapping[str, str]
) -> tuple[Row, ...]:
    """Return a row for each method and budget: means over runs, costs, differences to others."""
    slowdowns: Mapping[str, Slowdown] = {}
    if setup.measure_cost:
        first = {line.method: line.policy for line in lines if line.run == 0}
        slowdowns = measure_slowdown(setup.predictor, setup.dataset.images, first, setup.seed)
    means = {
        key: {
            name: Measured(*mean_and_deviation([one.metrics[name] for one in ones]))
            for name in ones[0].metrics
        }
        for key, ones in scores.evaluations.items()
    }
    cll = {key: metrics[f"cll{setup.metric_suffix}"].mean for key, metrics in means.items()}

    def over(key: Key, other: Key, average: str = "") -> dict[str, Interval]:
        return setup.differences(scores.evaluations[key], scores.evaluations[other], average)

    def over_plain(key: Key) -> dict[str, Interval]:
        found = over(key, ("plain", 1))
        if setup.learned_averages:
            learned = over(key, ("plain", 1), LEARNED)
            found |= {f"{name}{LEARNED}": one for name, one in learned.items()}
        return found

    rows, methods = [], list(labels)
    for key in sorted(means, key=lambda key: (methods.index(key[0]), key[1])):
        method, budget = key
        rival = best_rival(key, cll) if is_asked(method, budget, setup.budgets) else None
        plain, views = method == "plain", scores.views[key]
        row = Row(
            method=method,
            label=labels[method],
            budget=budget,
            views=views,
            slowdown=1.0 if plain else float(slowdowns[method].at(views) if slowdowns else views),
            metrics=means[key],
            over_plain=None if plain else over_plain(key),
            over_rival=None if rival is None else over(key, rival, setup.metric_suffix),
            rival=None if rival is None else rival[0],
            fitted=scores.fitted.get(key),
        )
        rows.append(row)
    return tuple(rows)


def _verdict(
    setup: Setup, scores: Scores, rows: Sequence[Row], cross_fit: bool, left_out: int
) -> Verdict:
    runs, cll = scores.evaluations, f"cll{setup.metric_suffix}"
    whole = max(key for key in runs if key[0] == POLICY_METHOD)
    kind = "cross-fit" if cross_fit else "held-out"
    return judge(
        rows,
        lambda one, other: setup.differences(runs[one], runs[other], setup.metric_suffix),
        budgets=setup.budgets,
        images=len(setup.dataset),
        margin=setup.margin,
        same_as_plain=np.allclose(
            per_image(runs[whole], cll), per_image(runs["plain", 1], cll), atol=1e-9
        ),
        cll_name=f"{kind}{' class-balanced' if setup.balanced else ''} cLL",
        cross_fit=cross_fit,
        left_out=left_out,
    )


def _against(setup: Setup, scores: Scores, best: Row) -> dict[str, dict[str, Interval]]:
    """Return the differences of the recommended row to each baseline of no more views."""
    runs = scores.evaluations
    return {
        method: setup.differences(runs[best.key], runs[method, budget], setup.metric_suffix)
        for method, budget in affordable(best.budget, runs)
        if method != best.method
    }


def _per_image(setup: Setup, scores: Scores, best: Row) -> dict[str, bytes]:
    """Return the recommended row's metrics of each image, with its group and weight if any."""
    kept = {
        name: per_image(scores.evaluations[best.key], f"{name}{setup.metric_suffix}")
        .astype("<f4")
        .tobytes()
        for name in ("cll", "accuracy")
    }
    units = setup.dataset.units
    if units is not None:
        kept["units"] = group_numbers(units, len(units)).astype("<i4").tobytes()
    if setup.weights is not None:
        kept["weights"] = setup.weights.astype("<f4").tobytes()
    return kept


def _where(setup: Setup, scores: Scores, rows: Sequence[Row], best: Row) -> Where:
    """Return where the recommended row, or the policy if that is plain, gains and loses."""
    policy = policy_row(rows, setup.budgets[-1])
    shown = policy if policy and best.method == "plain" else best
    runs, plain = scores.evaluations, ("plain", 1)
    cll, right = (
        per_image(runs[shown.key], metric) - per_image(runs[plain], metric)
        for metric in (f"cll{setup.metric_suffix}", f"accuracy{setup.metric_suffix}")
    )
    slices = gains_by_slice(
        setup.dataset,
        setup.places,
        cll,
        right,
        np.exp(scores.log_probs["plain"].max(axis=1)),
        weights=setup.weights,
        likely=likely_between(runs[shown.key], runs[plain], f"cll{setup.metric_suffix}"),
    )
    before, after, labels = scores.answers[plain], scores.answers[shown.key], setup.dataset.labels
    mended = confusions(before, after, labels, setup.places)
    made = confusions(after, before, labels, setup.places)
    return Where(shown.method, shown.label, shown.budget, shown.views, slices, mended, made)


def _of_predictions(
    setup: Setup, scores: Scores, lines: Sequence[MethodRun], ood: Sequence[Images]
) -> dict[str, Any]:
    """Return when to trust the plain image's and the policy's predictions, and what changed."""
    labels, groups, weights = setup.dataset.labels, setup.dataset.units, setup.weights
    line = next(one for one in lines if one.method == POLICY_METHOD)
    plain, policy = scores.log_probs["plain"], scores.log_probs[POLICY_METHOD]
    averages = {"plain": plain, "policy": policy}
    calibrated = {
        "plain": setup.calibrated(plain),
        "policy": setup.calibrated(policy, line.policy.view_temperature),
    }
    shown = {**averages, **{f"{name}_calibrated": one for name, one in calibrated.items()}}
    gained, lost = changed_images(plain, policy, labels, setup.places)
    return {
        "ood": detect(setup, ood, line, averages, calibrated, scores.disagreement) if ood else (),
        "reliability": {
            name: reliability_bins(one, labels, weights) for name, one in shown.items()
        },
        "selective": selective_risks(
            **calibrated,
            disagreement=scores.disagreement,
            labels=labels,
            groups=groups,
            weights=weights,
        ),
        "gained": gained[:MOST_CHANGED],
        "lost": lost[:MOST_CHANGED],
        "gained_count": len(gained),
        "lost_count": len(lost),
    }
