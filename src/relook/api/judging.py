"""Comparing, calibrating and distilling a policy, with any model and any images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from relook.api.progress_bars import ProgressChoice, chosen_bars, is_shown, say
from relook.data import Dataset, Preparation, as_dataset
from relook.data.adapt import as_images, prepared_for
from relook.deploy.calibrate import calibrated_policy
from relook.errors import RelookError
from relook.evaluation.baselines import check_methods
from relook.evaluation.compare import compare
from relook.evaluation.comparison import Comparison
from relook.evaluation.comparison_plan import plan_comparison
from relook.evaluation.setup import ComparisonKeywords
from relook.evaluation.unseen import check_unused
from relook.foundation.progress import stage_of
from relook.foundation.wording import count, views_text
from relook.models import Predictor, as_predictor
from relook.policy import Policy
from relook.policy.recipes import Recipe, get_recipe

if TYPE_CHECKING:
    from relook.deploy.distil.distil import Distilled
    from relook.deploy.distil.student import Training


def images_for(
    predictor: Predictor, images: Any, labels: ArrayLike | None, policy: Policy, **how: Any
) -> Dataset:
    """Read images for the model, prepared like those of the policy's search."""
    wanted = prepared_for(images, Preparation(), predictor)
    return as_dataset(
        images,
        labels,
        preparation=wanted.as_searched(policy.preparation),
        outputs=predictor.classes,
        **how,
    )


def compared(
    predictor: Predictor,
    images: Any,
    labels: ArrayLike | None,
    policy: Any,
    *,
    recipe: Recipe | str | None,
    indices: ArrayLike | None = None,
    validation: Any = None,
    store_path: str | Path | None = None,
    progress: ProgressChoice = None,
    record: Mapping[str, Any] | None = None,
    keywords: ComparisonKeywords,
    engine: Mapping[str, Any],
    ood: Any = None,
    **reading: Any,
) -> tuple[Comparison, Dataset]:
    """Compare policies on images of any kind; also returns the images as they were read.

    `validation` images have their labels inside or in a pair. `engine` has the keywords of
    `accelerate_run`.
    """
    check_methods(keywords.get("methods"))
    policies = policies_of(policy)
    dataset = images_for(predictor, images, labels, policies[0], **reading)
    if validation is not None:
        validation = images_for(predictor, *pair_of(validation), policies[0], like=dataset)
    recipe = recipe or policies[0].recipe
    if recipe is None:
        raise RelookError("the policy does not say which recipe it comes from: give recipe=…")
    planned = plan_comparison(
        predictor,
        dataset,
        policies,
        recipe=get_recipe(recipe),
        validation=validation,
        keywords=keywords,
        engine=engine,
    )
    if is_shown(progress):
        planned.model.tell(say)
        own = views_text(policies[0].views)
        say(f"comparing {own} with the baselines on {len(dataset):,} images")
        fewer = planned.fewer(lambda left: f"methods={left}")
        say(f"{planned} (methods=… and budgets=… for fewer){fewer}")
    with chosen_bars(progress) as bars:
        found = compare(
            planned.model.predictor,
            dataset,
            policies,
            recipe=get_recipe(recipe),
            validation=validation,
            indices=indices,
            store_path=store_path,
            progress=bars,
            record={"model": {"engine": planned.model.engine}, **(record or {})},
            ood=() if ood is None else [as_images(ood)],
            **keywords,
        )
    return found, dataset


def calibrated(
    predictor: Predictor,
    images: Any,
    labels: ArrayLike | None,
    policy: Policy,
    used: bytes | None,
    *,
    balanced: bool = False,
    keep_view_temperature: bool = False,
    batch: int | None = None,
    progress: ProgressChoice = None,
    **reading: Any,
) -> Policy:
    """Fit a policy on images of any kind; those in the set `used` are refused."""
    dataset = images_for(predictor, images, labels, policy, **reading)
    if used is not None:
        check_unused(dataset, used, "reuse_images=True")
    if is_shown(progress):
        say(f"calibrating {views_text(policy.views)} on {len(dataset):,} images")
    with chosen_bars(progress) as bars:
        found = calibrated_policy(
            predictor,
            dataset,
            policy,
            balanced=balanced,
            keep_view_temperature=keep_view_temperature,
            batch=batch,
            progress=stage_of(bars, "calibrate"),
        )
    return found.policy


def distil(
    model: object,
    images: Any,
    *,
    policy: Policy | str | Path,
    test: Any = None,
    out: str | Path | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    accelerate: str = "torch",
    progress: ProgressChoice = None,
    **options: Any,
) -> Distilled:
    """Fine-tune a network on images without labels, so that one pass has part of a policy's gain.

    `model` is a torch module or a spec, as for `relook.search`, with its keywords among the
    `options`; it is not modified. `images` are arrays, tensors, PIL images or a spec such as
    "folder:DIR" (at any depth); labels are ignored. The network learns the policy's calibrated
    prediction for each. `test` are labelled images that neither has seen, as a pair or with labels
    inside: the result is compared on them, and unless it is proven to help, the network stays as
    it was. Without them nothing is compared.

    With `out`, everything is kept in that directory: the same call resumes after an interruption.
    """
    from relook.deploy.distil.student import Training

    (found,) = policies_of(policy)
    predictor = as_predictor(model, **options)
    proof = None
    if test is not None:
        proof = images_for(predictor, *pair_of(test), found, name="test images")
    asked = {"epochs": epochs, "learning_rate": learning_rate, "seed": seed}
    known: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    wanted = Training(**known)
    return distilled(predictor, images, found, proof, wanted, out, accelerate, progress)


def distilled(
    predictor: Predictor,
    images: Any,
    policy: Policy,
    proof: Dataset | None,
    training: Training,
    out: str | Path | None,
    accelerate: str,
    progress: ProgressChoice,
) -> Distilled:
    """Distil on images that are prepared like those of the policy's search."""
    from relook.deploy.batch.image_source import read_unlabelled
    from relook.deploy.distil.distil import distil_policy, few_images_note
    from relook.deploy.distil.student import trainable

    trainable(predictor)
    wanted = prepared_for(images, Preparation(), predictor).as_searched(policy.preparation)
    dataset = read_unlabelled(images, wanted)
    if is_shown(progress):
        say(f"{count(len(dataset), 'image')} without labels, {views_text(policy.views)} each")
        few = few_images_note(len(dataset))
        if few is not None:
            say(f"note: {few}")
    with chosen_bars(progress) as bars:
        return distil_policy(
            predictor,
            dataset,
            policy,
            proof,
            out=None if out is None else Path(out),
            training=training,
            engine={"mode": accelerate},
            progress=bars,
        )


def pair_of(given: Any) -> tuple[Any, Any]:
    """Return images with their labels, which may be inside or in a pair."""
    return given if isinstance(given, tuple) else (given, None)


def policies_of(policy: Any) -> tuple[Policy, ...]:
    """Return policies, given one or several as objects, files or presets' names."""
    several = isinstance(policy, Sequence) and not isinstance(policy, Policy | str)
    found = tuple(policy) if several else (policy,)
    return tuple(one if isinstance(one, Policy) else Policy.load(one) for one in found)
