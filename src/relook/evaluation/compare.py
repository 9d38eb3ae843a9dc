"""Every baseline and the policy, side by side on the same held-out images.

Each distinct view is predicted once, whatever the number of methods, budgets and runs that
use it; a method's figures at all budgets come from prefixes of one list of views.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from relook.data.base import Dataset
from relook.evaluation.baselines import (
    BASELINES,
    GRID,
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
    recommended_row,
)
from relook.evaluation.cost import Slowdown, measure_slowdown
from relook.evaluation.cross_validation import (
    cross_calibrated,
    likely_between,
    per_image,
    reliability_bins,
    selective_risks,
)
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
    ComparisonSettings,
    Setup,
    available_methods,
    check_policies,
    with_magnitude,
)
from relook.evaluation.unseen import unseen_part
from relook.evaluation.verdict import doubted, judge, naming_losses, to_be_checked
from relook.evaluation.where import Where, changed_images, confusions, gains_by_slice
from relook.foundation.progress import StageProgress, stage_of
from relook.foundation.registry import check_names
from relook.foundation.wording import duration
from relook.models import Predictor
from relook.models.accelerate import Accelerated, accelerate_run
from relook.numerics.intervals import Interval, group_numbers, mean_and_deviation
from relook.policy import Policy
from relook.policy.recipes import Recipe
from relook.predictions.passes import Images, KnownViews, View, distinct_views, estimate


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

    Images that the policy, its temperatures or weights were found on are left out, with a warning.
    The other keywords are the fields of `ComparisonSettings`. `validation` holds images for MGrid
    to find its magnitude on. Several policies are one per run. Random crops and the like are always
    drawn for each image, so that no lucky crop of all images decides. `indices` are the images'
    places in the data set that they come from; `record` is added to the settings, and the verdict
    tells of a mistake in its `set_up`. With `store_path` predictions are kept, and an interrupted
    call goes on; views that are `known` of all the images are not predicted. `ood` are foreign
    images, uint8 `[m, c, h, w]` in one batch or more, of no class that the model knows: how well
    they are told is measured. The stages of `progress` are "magnitude" and "evaluate". All but the
    slowdown follows from the seeds.
    """
    policies = (policy,) if isinstance(policy, Policy) else tuple(policy)
    asked = _asked(policies, settings)
    unseen = unseen_part(dataset, policies, indices)
    grids, views = (stage_of(progress, stage) for stage in ("magnitude", "evaluate"))
    setup = asked.setup(
        predictor,
        unseen.dataset,
        recipe,
        indices=unseen.indices,
        store_path=store_path,
        progress=views,
        known=known if len(unseen.dataset) == len(dataset) else None,
    )
    chosen, left_out = available_methods(setup, asked.methods, validation)
    setup, grid = with_magnitude(setup, validation, grids) if "mgrid" in chosen else (setup, None)
    lines = [line for method in chosen for line in lines_of(setup, method, policies)]
    own = policies[0].subpolicies
    again = {line.method for line in lines if line.policy.subpolicies == own}
    again -= {"plain", POLICY_METHOD}
    left_out |= dict.fromkeys(again, "it is the policy itself")
    chosen = [method for method in chosen if method not in again]
    lines = [line for line in lines if line.method not in again]
    scores, cross_fit = score_lines(setup, lines), any(line.folds for line in lines)
    labels = {method: label_of(method) for method in chosen}
    labels[POLICY_METHOD] = policy_label(policies[0])
    rows = _rows(setup, scores, lines, labels)
    verdict = _judged(setup, scores, rows, "cross-fit" if cross_fit else "held-out")
    deployed = _of_recommended(setup, scores, rows, verdict)
    known_settings = {
        **setup.record(),
        "methods": chosen,
        "left_out": left_out,
        "margin": setup.margin,
        "grid_search": grid,
        "validation": None if validation is None else validation.fingerprint,
        "cross_fit": cross_fit,
        "doubt": unseen.doubt,
    }
    kept = _merged(known_settings, record or {})
    verdict = doubted(naming_losses(verdict, deployed["where"]), unseen.doubt)
    return Comparison(
        policy=policies[0],
        rows=rows,
        budgets=setup.budgets,
        verdict=to_be_checked(verdict, kept.get("set_up")),
        gallery=gallery_of(setup.places, setup.seed),
        images=len(setup.dataset),
        classes=class_names(setup.dataset, scores.log_probs["plain"].shape[1]),
        settings=kept,
        **deployed,
        **_of_predictions(setup, scores, lines, ood),
    )


def _asked(policies: Sequence[Policy], keywords: ComparisonKeywords) -> ComparisonSettings:
    """Return the settings that keywords ask for; several policies are as many runs."""
    check_names("keyword of compare", keywords, ComparisonKeywords.__annotations__)
    asked = ComparisonSettings(**keywords)
    check_policies(policies, asked.runs)
    return replace(asked, runs=max(asked.runs, len(policies)))


def _merged(settings: dict[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Add what the caller knows; a table adds to a table of the same name."""
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
    cll = {key: metrics[f"cll{setup.fair}"].mean for key, metrics in means.items()}

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
            over_rival=None if rival is None else over(key, rival, setup.fair),
            rival=None if rival is None else rival[0],
            fitted=scores.fitted.get(key),
        )
        rows.append(row)
    return tuple(rows)


def _judged(setup: Setup, scores: Scores, rows: Sequence[Row], proof: str) -> Verdict:
    """Return the verdict; `proof` says on what images it is."""
    runs, cll = scores.evaluations, f"cll{setup.fair}"
    whole = max(key for key in runs if key[0] == POLICY_METHOD)
    return judge(
        rows,
        lambda one, other: setup.differences(runs[one], runs[other], setup.fair),
        budgets=setup.budgets,
        images=len(setup.dataset),
        margin=setup.margin,
        same=np.allclose(per_image(runs[whole], cll), per_image(runs["plain", 1], cll), atol=1e-9),
        kind=f"{proof}{' class-balanced' if setup.balanced else ''} cLL",
    )


def _of_recommended(
    setup: Setup, scores: Scores, rows: Sequence[Row], verdict: Verdict
) -> dict[str, Any]:
    """Return what is kept of the method that is recommended, and where it gains and loses.

    Where that is the plain image, the latter is said of the whole policy.
    """
    best = recommended_row(rows, verdict)
    policy = max((row for row in rows if row.method == POLICY_METHOD), key=lambda row: row.budget)
    shown = policy if best.method == "plain" else best
    key, other, plain = (best.method, best.budget), (shown.method, shown.budget), ("plain", 1)
    runs, units = scores.evaluations, setup.dataset.units
    metrics = {name: f"{name}{setup.fair}" for name in ("cll", "accuracy")}
    values = {name: per_image(runs[key], metric) for name, metric in metrics.items()}
    kept = {name: one.astype("<f4").tobytes() for name, one in values.items()}
    if units is not None:
        kept["units"] = group_numbers(units, len(units)).astype("<i4").tobytes()
    if setup.weights is not None:
        kept["weights"] = setup.weights.astype("<f4").tobytes()
    rivals = {one[0]: one for one in affordable(best.budget, runs) if one[0] != best.method}
    cll, right = (
        per_image(runs[other], one) - per_image(runs[plain], one) for one in metrics.values()
    )
    before, after, labels = scores.answers[plain], scores.answers[other], setup.dataset.labels
    slices = gains_by_slice(
        setup.dataset,
        setup.places,
        cll,
        right,
        np.exp(scores.log_probs["plain"].max(axis=1)),
        weights=setup.weights,
        likely=likely_between(runs[other], runs[plain], metrics["cll"]),
    )
    mended = confusions(before, after, labels, setup.places)
    made = confusions(after, before, labels, setup.places)
    return {
        "against": {
            name: setup.differences(runs[key], runs[one], setup.fair)
            for name, one in rivals.items()
        },
        "per_image": kept,
        "where": Where(shown.method, shown.label, shown.budget, shown.views, slices, mended, made),
    }


def _of_predictions(
    setup: Setup, scores: Scores, lines: Sequence[MethodRun], ood: Sequence[Images]
) -> dict[str, Any]:
    """Return what plain and averaged predictions show: when to trust them, and what changed."""
    labels, groups, weights = setup.dataset.labels, setup.dataset.units, setup.weights
    averages = {"plain": scores.log_probs["plain"], "policy": scores.log_probs[POLICY_METHOD]}
    line = next(one for one in lines if one.method == POLICY_METHOD)
    kappas = {"plain": 1.0, "policy": line.policy.view_temperature}
    calibrated = {
        name: cross_calibrated(
            one,
            labels,
            seed=setup.seed,
            groups=groups,
            weights=weights,
            protocol=setup.protocol,
            view_temperature=kappas[name],
        )
        for name, one in averages.items()
    }
    found: dict[str, Any] = {}
    if ood:
        from relook.evaluation.foreign import detect

        found["ood"] = detect(setup, ood, line, averages, calibrated, scores.disagreement)
    shown = {**averages, **{f"{name}_calibrated": one for name, one in calibrated.items()}}
    gained, lost = changed_images(averages["plain"], averages["policy"], labels, setup.places)
    return {
        **found,
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


@dataclass(frozen=True)
class ComparisonPlan:
    """The model on its engine; the passes to find MGrid's magnitude, and of all methods' views.

    `baselines` has what each takes by itself, the costliest first.
    """

    model: Accelerated
    grid_passes: int
    passes: int
    seconds_a_pass: float
    baselines: Mapping[str, int]

    def fewer(self, methods: Callable[[Sequence[str]], str]) -> str:
        """Say what most passes are for, and the option that leaves it out, if one baseline's are.

        `methods` writes the option with the methods that are left.
        """
        total, most = self.grid_passes + self.passes, next(iter(self.baselines), "")
        left = [one for one in BASELINES if one in self.baselines and one != most]
        if not left or 2 * self.baselines[most] < total:
            return ""
        share = self.baselines[most] / total
        return f"; {100 * share:.0f} % of them are for {most}, which {methods(left)} leaves out"

    def to_json(self) -> dict[str, Any]:
        """Return the engine's name and the numbers."""
        numbers = {name: value for name, value in vars(self).items() if name != "model"}
        return {"engine": self.model.engine, **numbers}

    def __str__(self) -> str:
        total = self.grid_passes + self.passes
        grid = f", {self.grid_passes:,} of them for MGrid's magnitude" if self.grid_passes else ""
        time = duration(total * self.seconds_a_pass)
        return f"{total:,} model passes at most{grid}: about {time}"


def plan_comparison(
    predictor: Predictor,
    dataset: Dataset,
    policies: Sequence[Policy],
    *,
    recipe: Recipe,
    validation: Dataset | None,
    keywords: ComparisonKeywords,
    engine: Mapping[str, Any],
) -> ComparisonPlan:
    """Count the passes, choose an engine for them, and measure a few.

    `keywords` are those of `compare`, `engine` those of `accelerate_run`.
    """
    setup = _asked(policies, keywords).setup(predictor, dataset, recipe)
    methods, _ = available_methods(setup, setup.methods, validation)
    # Any magnitude will do: their views are equally many.
    setup = replace(setup, options=replace(setup.options, grid_magnitude=GRID[-1]))
    lines = [line for method in methods for line in lines_of(setup, method, policies)]

    def views_of(*chosen: str) -> tuple[View, ...]:
        own = [view for line in lines if line.method in chosen for view in line.views]
        return distinct_views(own)[0]

    views = views_of(*methods)
    grid = 0
    if validation is not None and "mgrid" in methods:
        grid = len(GRID) * setup.options.grid_views * len(validation)
    passes = len(views) * len(dataset)
    model = accelerate_run(predictor, dataset.images, passes=grid + passes, **engine)
    seconds = estimate(model.predictor, dataset.images, views, seed=setup.seed, batch=setup.batch)
    baselines = [method for method in methods if method not in ("plain", POLICY_METHOD)]
    costs = Counter({method: len(views_of(method)) * len(dataset) for method in baselines})
    if grid:
        costs["mgrid"] += grid
    return ComparisonPlan(model, grid, passes, seconds, dict(costs.most_common()))
