"""A search with everything that follows from its settings, computed once and checked.

Errors are raised here, in seconds, and not after hours of predicting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from relook.data.base import Dataset, check_class_count
from relook.errors import RelookError
from relook.foundation.memory import size_text
from relook.foundation.wording import count, duration
from relook.io.fingerprint import JSON
from relook.io.identities import is_in, set_of, union
from relook.models import Predictor
from relook.models.predictors import channels_of
from relook.numerics.arrays import Indices, Labels
from relook.numerics.splits import Shares, Split, search_split, stratified_split
from relook.policy import SubPolicy
from relook.policy.pool import Pool, probe_views
from relook.policy.recipes import Recipe, variants
from relook.policy_search.settings import SearchSettings
from relook.predictions.passes import View, distinct_views, estimate, predict_views
from relook.selection.objectives import resolve_objective
from relook.selection.plan import SelectionPlan, is_compact, plan_selection, selection_limit
from relook.selection.racing import most_passes, most_survivors
from relook.selection.record import TRACE, kept_limit

MIN_HELD_OUT = 4
FEW_IMAGES = 200
MAX_SEARCH_IMAGES = 1_500_000
"""A policy file lists its images, and may have 16 MB."""
_MAX_SHARED = 0.01  # of a test set's images may also be searched on
_PROBED_IMAGES, _PROBED_VIEWS = 500, 6
PLAIN_VIEW = (View(SubPolicy(), 0),)


class Size(NamedTuple):
    """How many candidates, search images and held-out images (`proof`) a search has."""

    candidates: int
    search: int
    proof: int


class Passes(NamedTuple):
    """Model passes: to choose a variant of the recipe, for the pool, and on held-out images.

    The last, `proof`, are of the plain image, random crops and the policy's own views.
    """

    probe: int
    pool: int
    proof: int

    @property
    def all(self) -> int:
        """The passes of the whole search."""
        return sum(self)


@dataclass(frozen=True)
class SearchJob:
    """The views and images to predict, the selection's plan, and where results are stored.

    `views` are the pool's distinct candidates: of equal ones the first, which wins a tie.
    `store` is a path or a URL for predictions that are not kept in the run's `directory`.
    """

    predictor: Predictor
    dataset: Dataset
    test: Dataset | None
    settings: SearchSettings
    split: Split
    pool: Pool
    views: tuple[View, ...]
    plan: SelectionPlan
    directory: Path | None = None
    store: str | None = None

    @property
    def labels(self) -> Labels:
        """The labels of the search images."""
        return self.dataset.labels[self.split.search]

    @property
    def groups(self) -> Indices | None:
        """The groups of the search images, which count as one image each."""
        return None if self.dataset.units is None else self.dataset.units[self.split.search]

    @property
    def proof(self) -> Dataset:
        """The held-out images."""
        return (self.dataset if self.test is None else self.test).subset(self.split.held_out)

    @cached_property
    def left_out(self) -> int:
        """How many images are neither searched on nor held out: nothing is fitted on them."""
        known, own = self.dataset.identities, self.split
        if not self.settings.left_out:
            return 0
        seen = union(set_of(known[own.search]), *(one.seen for one in self.settings.start_from))
        unseen = ~is_in(known, seen)
        if self.test is None:
            unseen[own.held_out] = False
        return int(unseen.sum())

    @property
    def halves(self) -> tuple[Indices, ...]:
        """The two halves of a cross-fit, which are also searched alone; otherwise none."""
        if not self.settings.cross_fit:
            return ()
        data = self.dataset
        return tuple(search_split(data.labels, 0.5, 0.0, self.settings.seed, data.units))

    @property
    def can_split(self) -> bool:
        """Whether the user can choose how the images are split."""
        return self.test is None and not self.settings.cross_fit

    @property
    def size(self) -> Size:
        """The number of candidates and images."""
        return Size(len(self.pool.candidates), len(self.split.search), len(self.split.held_out))

    @cached_property
    def recipe_variants(self) -> dict[Recipe, tuple[SubPolicy, ...]]:
        """The recipe and its variants, with a few views of each to choose by; empty: no choice."""
        if self.settings.strategy != "conservative" or len(self.split.search) < FEW_IMAGES:
            return {}
        recipes = variants(self.settings.recipe)
        if len(recipes) == 1:
            return {}
        return {recipe: probe_views(recipe, _PROBED_VIEWS) for recipe in recipes}

    @property
    def probed_images(self) -> Indices:
        """The search images that the variants are tried on: places among them, ascending."""
        order = np.random.default_rng(self.settings.seed).permutation(len(self.split.search))
        return np.sort(order[:_PROBED_IMAGES])

    @property
    def passes(self) -> Passes:
        """The most passes that the search takes."""
        return self.passes_of(self.size)

    def passes_of(self, size: Size) -> Passes:
        """Return the most passes that a search of another size takes."""
        settings, (candidates, images, held_out) = self.settings, size
        distinct = {view for views in self.recipe_variants.values() for view in views}
        probed = min(images, len(self.split.search), _PROBED_IMAGES)
        probe = len(distinct) * probed if images >= FEW_IMAGES else 0
        pool = images * candidates
        if settings.race:
            kept = min(candidates, kept_in_race(settings, self.pool))
            pool = most_passes(images, candidates, settings.length, kept)
        views = settings.length
        if settings.draws == "fixed":  # then a candidate that is picked twice is one view
            views = min(views, candidates)
        own = 0 if settings.cross_fit else views + 1
        return Passes(probe, pool, (own + views) * held_out)

    @property
    def summary(self) -> str:
        """The work ahead, in one line."""
        probed, total = self.passes.probe, self.passes.all
        choice = f", {probed:,} of them to choose borders and mirror images" if probed else ""
        proof = "the same by halves"
        if not self.settings.cross_fit:
            proof = f"{len(self.split.held_out):,} held-out images"
        return (
            f"{len(self.pool.candidates):,} candidates × {len(self.split.search):,} images, then "
            f"{proof}: {total:,} model passes at most{choice}"
        )

    def seconds_a_pass(self) -> float:
        """Measure a few passes over search images on this machine."""
        return estimate(
            self.predictor,
            self.dataset.images[self.split.search],
            self.views,
            seed=self.settings.seed,
            batch=self.settings.batch,
        )

    def time_text(self, seconds_a_pass: float) -> str:
        """Return how long all passes take, in words."""
        total = duration(self.passes.all * seconds_a_pass)
        return f"about {total} in all, at {1 / seconds_a_pass:,.0f} views/s, measured now"

    def store_path(self, name: str) -> str | Path | None:
        """Return the path or URL of the predictions of this name; None if they are not kept."""
        if self.store is not None:
            return f"{self.store.rstrip('/')}/{name}"
        return None if self.directory is None else self.directory / name

    def record(self) -> dict[str, JSON]:
        """Return everything that decides the search's result, as JSON-able data."""
        return {
            "model": self.predictor.fingerprint,
            "data": self.dataset.fingerprint,
            "test": None if self.test is None else self.test.fingerprint,
            **self.settings.record(),
        }


def plan_search(
    predictor: Predictor,
    dataset: Dataset,
    settings: SearchSettings,
    *,
    test: Dataset | None = None,
    directory: Path | None = None,
    store: str | None = None,
) -> SearchJob:
    """Split the images, draw the pool and plan the selection; raise every foreseeable error.

    All of `test` is held out, if it is given. Nothing is written.
    """
    if settings.length < 1:
        raise RelookError(f"expected a policy length of at least 1, got {settings.length}")
    split = _without_seen(
        split_images(dataset, settings, test), dataset if test is None else test, settings
    )
    resolve_objective(settings.objective)
    if len(split.held_out) < MIN_HELD_OUT:
        raise RelookError(
            f"expected at least {MIN_HELD_OUT} held-out images, got only {len(split.held_out)}: "
            "hold out a larger share (split, holdout), or give more images"
            f"{_images_needed(settings, test)}"
        )
    if len(split.search) > MAX_SEARCH_IMAGES:
        raise RelookError(
            f"expected at most {MAX_SEARCH_IMAGES:,} images to search with, got "
            f"{len(split.search):,}: search with fewer (split)"
        )
    if test is not None:
        _checked_outputs(predictor, test)
    classes = _checked_outputs(predictor, dataset)
    drawn = _draw_pool(settings, len(split.search), classes, directory)
    job = SearchJob(predictor, dataset, test, settings, split, *drawn, directory, store)
    if settings.cross_fit and job.plan.mapped:
        raise RelookError(
            "cross_fit (--cross-fit) holds the predictions in memory, "
            f"{size_text(job.plan.predictions)}, got a limit of "
            f"{size_text(job.plan.limit)}: raise memory, or leave out cross_fit"
        )
    return job


def _images_needed(settings: SearchSettings, test: Dataset | None) -> str:
    """Say how many images it takes in all, if a share of them is held out."""
    if test is not None or settings.cross_fit:
        return ""
    share = settings.holdout * (1 - settings.left_out)
    return f", about {math.ceil(MIN_HELD_OUT / share)} in all"


def with_variant(job: SearchJob, recipe: Recipe, classes: int) -> SearchJob:
    """Return the job with a pool from a variant of its recipe, under the recipe's own name."""
    if recipe == job.settings.recipe:
        return job
    settings = replace(job.settings, recipe=recipe)
    pool, views, plan = _draw_pool(settings, len(job.split.search), classes, job.directory)
    return replace(job, pool=pool, views=views, plan=plan)


def _draw_pool(
    settings: SearchSettings, images: int, classes: int, directory: Path | None
) -> tuple[Pool, tuple[View, ...], SelectionPlan]:
    """Draw the pool, and plan the selection from it."""
    pool = settings.draw_pool()
    views, _ = distinct_views([View(sub, index) for index, sub in enumerate(pool.candidates)])
    return pool, views, plan_pool(settings, pool, (len(views), images, classes), directory)


def split_images(dataset: Dataset, settings: SearchSettings, test: Dataset | None) -> Split:
    """Return the images to search with and those held out (those of `test`, if it is given).

    Duplicates are never held out. A test set of which more than 1 % is searched on is refused.
    """
    if test is None:
        shares = None if settings.cross_fit else Shares(settings.holdout, settings.left_out)
        return held_out_split(dataset, shares, settings.seed)
    if settings.cross_fit:
        raise RelookError(
            "cross_fit (--cross-fit) holds no images out: leave out test or cross_fit"
        )
    again = np.flatnonzero(is_in(test.identities, set_of(dataset.identities)))
    if len(again) > _MAX_SHARED * len(test):
        raise RelookError(
            f"{test.name}: {len(again)} of its {len(test)} images (image {again[0]} first) are "
            "among those searched on: a gain on them proves nothing; leave them out"
        )
    searched = searched_beside_test(dataset, settings.left_out, settings.seed)
    return Split(searched, np.setdiff1d(np.arange(len(test)), again))


def searched_beside_test(dataset: Dataset, left_out: float, seed: int) -> Indices:
    """Return the images to search with if a separate test set is compared on."""
    if not left_out:
        return np.arange(len(dataset))
    return stratified_split(dataset.labels, left_out, seed, dataset.groups)[0]


def _without_seen(split: Split, test: Dataset, settings: SearchSettings) -> Split:
    """Drop held-out images, places in `test`, that a policy to start from was found on."""
    seen = union(*(policy.seen for policy in settings.start_from))
    again = is_in(test.identities[split.held_out], seen)
    if settings.cross_fit and again.any():
        raise RelookError(
            "cross_fit (--cross-fit) scores each half of the images by views learned on the other, "
            f"but start_from (--start-from) was found on {again.sum():,} of them: leave "
            "out one of the two"
        )
    return Split(split.search, split.held_out[~again])


def held_out_split(dataset: Dataset, shares: Shares | None, seed: int) -> Split:
    """Split a data set for a search; an image that is on both sides is not held out.

    Without shares, for a cross-fit, all images are on both sides.
    """
    if shares is None:
        return Split(np.arange(len(dataset)), np.arange(len(dataset)))
    split = search_split(dataset.labels, shares.holdout, shares.left_out, seed, dataset.groups)
    searched = set_of(dataset.identities[split.search])
    again = is_in(dataset.identities[split.held_out], searched)
    return Split(split.search, split.held_out[~again])


def plan_pool(
    settings: SearchSettings, pool: Pool, shape: tuple[int, int, int], directory: Path | None
) -> SelectionPlan:
    """Plan the selection from a pool, or raise if it does not fit into memory.

    `shape` is candidates, images and classes; a race holds its predictions in memory. If the
    memory limit can decide picks, it stays that of a selection already begun in `directory`.
    """
    candidates, images, classes = shape
    conservative = pool.defaults > 0
    left = most_survivors(images, candidates, settings.length) if settings.race else candidates
    earlier_limit = None
    if directory is not None and is_compact(
        (left, images, classes), settings.objective, conservative=conservative
    ):
        earlier_limit = kept_limit(directory / TRACE)
    limit = selection_limit(settings.memory, earlier_limit)
    if settings.race:
        most = most_passes(images, candidates, settings.length, kept_in_race(settings, pool))
        held = 4 * (most + left * images) * classes  # by rounds, and the survivors once more
        if held > limit:
            raise RelookError(
                f"a race holds its predictions in memory, up to {size_text(held)}, "
                f"got a limit of {size_text(limit)}: raise memory, or search without race"
            )
    return plan_selection(
        (left, images, classes),
        np.dtype(settings.stored_type(classes)),
        settings.objective,
        limit,
        on_disk=directory is not None and not settings.race,
        conservative=conservative,
        view_temperature=settings.view_temperature,
    )


def kept_in_race(settings: SearchSettings, pool: Pool) -> int:
    """Return how many of the pool's first views a race never drops."""
    return min(pool.defaults, math.ceil(settings.length / 2))


def _checked_outputs(predictor: Predictor, dataset: Dataset) -> int:
    """Return the model's number of classes; raise if model and data do not fit together."""
    wanted, got = channels_of(predictor), dataset.images.shape[1]
    if wanted not in (None, got):
        raise RelookError(
            f"{dataset.name}: expected images with {count(wanted or 0, 'channel')}, as the model "
            f"takes, got {got}: convert them (--channels {wanted})"
        )
    outputs: int = predict_views(predictor, dataset.images[:1], PLAIN_VIEW, seed=0).shape[2]
    check_class_count(dataset, outputs)
    return outputs
