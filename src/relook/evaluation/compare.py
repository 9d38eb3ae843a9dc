"""Every baseline and the policy, side by side on the same held-out images.

Each distinct view is predicted once, whatever the number of methods, budgets and runs that
use it; a method's figures at all budgets come from prefixes of one list of views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluation.baselines import (
    BASELINES,
    POLICY_METHOD,
    Options,
    check_methods,
    label_of,
    policy_label,
)
from relook.evaluation.comparison import (
    LEARNED,
    MOST_CHANGED,
    Comparison,
    Detection,
    Row,
    Verdict,
    gallery_of,
    merged_settings,
    save_comparison,
)
from relook.evaluation.comparison_rows import (
    Scores,
    of_recommended,
    rows_of,
    score_lines,
    slowdowns_of,
)
from relook.evaluation.cross_validation import (
    calibrated_averages,
    check_protocol,
    reliability,
    selective_risks,
)
from relook.evaluation.randaugment_magnitude import GridSearch, with_magnitude
from relook.evaluation.scoring import (
    MethodRun,
    Setup,
    check_policies,
    checked_budgets,
    likely_between,
    lines_of,
    per_image,
)
from relook.evaluation.unseen import doubted, unseen_part
from relook.evaluation.verdict import MARGIN, judge, naming_losses
from relook.evaluation.where import changed_images
from relook.foundation.progress import Progress, StageProgress, stage_of
from relook.foundation.registry import check_names
from relook.models import Predictor
from relook.numerics.randomness import check_seed
from relook.policy import Policy
from relook.policy.recipes import Recipe, get_recipe
from relook.predictions.passes import Images, KnownViews

__all__ = ["compare", "save_comparison"]


@dataclass(frozen=True)
class ComparisonSettings:
    """What is compared and how, besides policy, model and images.

    `methods` names the baselines (default: all); the plain image and the policy are always
    there. A budget counts distinct views. `runs` > 1 draws the random methods anew, with the
    seeds seed, seed + 1, …; a policy under fresh draws gets other draws. `margin` is a difference
    in cLL that nobody should care about. `protocol` "paper" fits temperatures as the paper does,
    whatever the number of images; `balanced` gives each class the same weight in all figures.
    Without `learned_averages` baselines have the usual average alone, as in the paper.
    """

    budgets: Sequence[int] = (1, 5, 10, 20)
    methods: Sequence[str] | None = None
    options: Options | None = None
    seed: int = 0
    runs: int = 1
    margin: float = MARGIN
    batch: int | None = None
    halvings: int = 5
    protocol: str = "standard"
    balanced: bool = False
    measure_cost: bool = True
    learned_averages: bool = True

    def setup(
        self,
        predictor: Predictor,
        dataset: Dataset,
        recipe: Recipe | str,
        *,
        indices: ArrayLike | None = None,
        store_path: str | Path | None = None,
        progress: Progress | None = None,
        known: KnownViews | None = None,
    ) -> Setup:
        """Return all that decides a comparison besides the policy, checked."""
        if self.runs < 1:
            raise RelookError(f"expected at least 1 run, got {self.runs}")
        places = np.arange(len(dataset)) if indices is None else np.asarray(indices, dtype=np.int64)
        return Setup(
            predictor=predictor,
            dataset=dataset,
            places=places,
            recipe=get_recipe(recipe),
            budgets=checked_budgets(self.budgets),
            options=(self.options or Options()).for_images(dataset.images),
            seed=check_seed(self.seed),
            runs=self.runs,
            halvings=self.halvings,
            protocol=check_protocol(self.protocol),
            balanced=self.balanced,
            both_averages=self.learned_averages,
            store=store_path,
            batch=self.batch,
            progress=progress,
            known=known,
        )


class ComparisonKeywords(TypedDict, total=False):
    """The fields of `ComparisonSettings`, as keywords."""

    budgets: Sequence[int]
    methods: Sequence[str] | None
    options: Options | None
    seed: int
    runs: int
    margin: float
    batch: int | None
    halvings: int
    protocol: str
    balanced: bool
    measure_cost: bool
    learned_averages: bool


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
    places in the data set that they come from; `record` is added to the settings. With `store_path`
    predictions are kept, and an interrupted call goes on; views that are `known` of all the images
    are not predicted. `ood` are foreign images, uint8 `[m, c, h, w]` in one batch or more, of no
    class that the model knows: how well they are told is measured. The stages of `progress` are
    "magnitude" and "evaluate". All but the slowdown
    follows from the seeds.
    """
    check_names("keyword of compare", settings, ComparisonKeywords.__annotations__)
    asked = ComparisonSettings(**settings)
    policies = (policy,) if isinstance(policy, Policy) else tuple(policy)
    check_policies(policies, asked.runs)
    asked = replace(asked, runs=max(asked.runs, len(policies)))
    unseen = unseen_part(dataset, policies, indices)
    whole, dataset = len(dataset), unseen.dataset
    grids, views = (stage_of(progress, stage) for stage in ("magnitude", "evaluate"))
    setup = asked.setup(
        predictor,
        dataset,
        recipe,
        indices=unseen.indices,
        store_path=store_path,
        progress=views,
        known=known if len(dataset) == whole else None,
    )
    chosen, left_out = available_methods(setup, asked.methods, validation)
    setup, grid = with_magnitude(setup, validation, grids) if "mgrid" in chosen else (setup, None)
    lines = [line for method in chosen for line in lines_of(setup, method, policies)]
    for line in [line for line in lines if _is_again(line, policies[0])]:
        left_out[line.method] = "it is the policy itself"
        chosen.remove(line.method)
        lines.remove(line)
    scores, cross_fit = score_lines(setup, lines), any(line.folds for line in lines)
    labels = {method: label_of(method) for method in chosen}
    labels[POLICY_METHOD] = policy_label(policies[0])
    rows = rows_of(
        setup, scores, labels, slowdowns_of(setup, lines) if asked.measure_cost else None
    )
    verdict = _judged(setup, scores, rows, asked.margin, cross_fit)
    deployed = of_recommended(setup, scores, rows, verdict)
    return Comparison(
        policy=policies[0],
        rows=rows,
        budgets=setup.budgets,
        verdict=doubted(naming_losses(verdict, deployed["where"]), unseen.doubt),
        gallery=gallery_of(setup.places, setup.seed),
        images=len(dataset),
        classes=class_names(dataset, scores.log_probs["plain"].shape[1]),
        settings=merged_settings(
            _settings(setup, chosen, left_out, grid, asked.margin, validation),
            {"cross_fit": cross_fit, "doubt": unseen.doubt, **(record or {})},
        ),
        **deployed,
        **_of_predictions(setup, scores, lines, ood),
    )


def _judged(
    setup: Setup, scores: Scores, rows: tuple[Row, ...], margin: float, cross_fit: bool
) -> Verdict:
    learned = f"cll{LEARNED if setup.both_averages else ''}"
    likelihoods = {key: per_image(runs, learned) for key, runs in scores.evaluations.items()}
    return judge(
        rows,
        likelihoods,
        budgets=setup.budgets,
        margin=margin,
        groups=setup.dataset.units,
        weights=setup.weights,
        likely=lambda one, other: likely_between(
            scores.evaluations[one], scores.evaluations[other], learned
        ),
        proof="cross-fit" if cross_fit else "held-out",
    )


def _of_predictions(
    setup: Setup, scores: Scores, lines: Sequence[MethodRun], ood: Sequence[Images]
) -> dict[str, Any]:
    """Return what plain and averaged predictions show: when to trust them, and what changed."""
    labels, groups = setup.dataset.labels, setup.dataset.units
    before, after = scores.log_probs["plain"], scores.log_probs[POLICY_METHOD]
    averages = {"plain": before, "policy": after}
    line = next(one for one in lines if one.method == POLICY_METHOD)
    calibrated = calibrated_averages(
        averages,
        {"policy": line.policy.view_temperature},
        labels,
        seed=setup.seed,
        groups=groups,
        weights=setup.weights,
        protocol=setup.protocol,
    )
    foreign: tuple[Detection, ...] = ()
    if ood:
        from relook.evaluation.foreign import detect

        foreign = detect(setup, ood, line, averages, calibrated, scores.disagreement)
    gained, lost = changed_images(before, after, labels, setup.places)
    return {
        "reliability": reliability(averages, calibrated, labels, setup.weights),
        "selective": selective_risks(
            **calibrated,
            disagreement=scores.disagreement,
            labels=labels,
            groups=groups,
            weights=setup.weights,
        ),
        "ood": foreign,
        "gained": gained[:MOST_CHANGED],
        "lost": lost[:MOST_CHANGED],
        "gained_count": len(gained),
        "lost_count": len(lost),
    }


def available_methods(
    setup: Setup, methods: Sequence[str] | None, validation: Dataset | None
) -> tuple[list[str], dict[str, str]]:
    """Return the methods that can be scored, and why others cannot."""
    height, width = setup.dataset.images.shape[2:]
    most, searched = setup.budgets[-1], setup.options.grid_magnitude is not None
    chosen, left_out = [], {}
    for method in check_methods(methods):
        row = BASELINES.get(method)
        if row is None or row.name == "plain":
            chosen.append(method)
        elif row.needs_validation and validation is None and not searched:
            left_out[method] = "no validation images to search its magnitude on"
        elif row.square and height != width:
            left_out[method] = f"the images are not square ({height} × {width})"
        elif row.budget is not None and row.budget > most:
            left_out[method] = f"takes {row.budget} views, more than the largest budget ({most})"
        else:
            chosen.append(method)
    return chosen, left_out


def _is_again(line: MethodRun, policy: Policy) -> bool:
    """Whether a baseline other than the plain image is the policy once more."""
    own = line.method in ("plain", POLICY_METHOD)
    return not own and line.policy.subpolicies == policy.subpolicies


def class_names(dataset: Dataset, classes: int) -> tuple[str, ...]:
    """Return the data set's names, and numbers for classes that only the model knows."""
    return (*dataset.classes, *(str(i) for i in range(len(dataset.classes), classes)))


def _settings(
    setup: Setup,
    methods: Sequence[str],
    left_out: Mapping[str, str],
    grid: GridSearch | None,
    margin: float,
    validation: Dataset | None,
) -> dict[str, Any]:
    return {
        **setup.record(),
        "methods": list(methods),
        "left_out": dict(left_out),
        "margin": margin,
        "grid_search": None if grid is None else [list(score) for score in grid.scores],
        "validation": None if validation is None else validation.fingerprint,
    }
