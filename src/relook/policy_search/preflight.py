"""What can be known to go wrong before hours of predicting: checked in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Set

import numpy as np
from numpy.typing import NDArray

from relook.data.base import Dataset
from relook.data.class_map import check_class_count
from relook.errors import RelookError
from relook.models import Predictor
from relook.policy import SubPolicy
from relook.policy.recipes import RECIPES, Recipe
from relook.predictions.passes import View, predict_views
from relook.selection.objectives import UserObjective, resolve_objective

FEWEST_HELD_OUT = 4
FEW_IMAGES = 200
_SHARED_SHARE = 0.01
_PLAIN = (View(SubPolicy(), 0),)


def check_search(
    predictor: Predictor,
    dataset: Dataset,
    test: Dataset | None,
    held_out: NDArray[np.int64],
    objective: str | UserObjective,
) -> None:
    """Raise one line for whatever would stop a search later, or make its proof worthless."""
    resolve_objective(objective)
    if len(held_out) < FEWEST_HELD_OUT:
        raise RelookError(
            f"expected at least {FEWEST_HELD_OUT} images for the proof, got {len(held_out)}: "
            "hold out a larger share (--split, --holdout), or give more images"
        )
    if test is not None:
        check_apart(set(dataset.image_fingerprints()), test)
    _check_outputs(predictor, [dataset] if test is None else [dataset, test])


def check_apart(searched: Set[str], test: Dataset) -> None:
    """Refuse a proof on images that a search sees, by their fingerprints.

    One in a hundred is let pass: large collections hold some images twice.
    """
    again = [i for i, image in enumerate(test.image_fingerprints()) if image in searched]
    if len(again) > _SHARED_SHARE * len(test):
        raise RelookError(
            f"{test.name}: {len(again)} of its {len(test)} images (image {again[0]} first) are "
            "among those searched on: a gain on them proves nothing; leave them out"
        )


def search_notes(searched: int, held_out: int, dataset: Dataset, recipe: Recipe) -> tuple[str, ...]:
    """Return what a reader of the figures should know: few images, a recipe for others."""
    classes = len(dataset.classes)
    notes = []
    for count, what, means in (
        (
            searched,
            "to search with",
            "the search can fit their noise, so believe only the "
            "held-out figures, and prefer a short policy",
        ),
        (held_out, "held out", "the intervals will be wide and a small gain cannot be shown"),
    ):
        if count < max(FEW_IMAGES, classes):
            notes.append(f"only {count} images {what} ({classes} classes): {means}")
    size, meant = min(dataset.images.shape[2:]), recipe.image_size
    if meant is not None and not meant / 2 <= size <= meant * 2:
        notes.append(
            f"the recipe {recipe.name!r} is meant for images of about {meant} pixels, "
            f"these have {size}: the recipes are {', '.join(RECIPES)}"
        )
    return tuple(notes)


def _check_outputs(predictor: Predictor, datasets: Iterable[Dataset]) -> None:
    """Try the model on one plain image, and see that its classes can be the data's."""
    for dataset in datasets:
        outputs = predict_views(predictor, dataset.images[:1], _PLAIN, seed=0).shape[2]
        check_class_count(dataset, outputs)
