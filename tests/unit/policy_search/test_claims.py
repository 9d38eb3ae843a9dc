"""Whatever is done with a policy, in whatever order: no claim on images that fitted anything.

Nearly all pixels of an image have one grey level, which every view and every way of reading keeps:
by it the model knows which images it is shown, whatever the library believes of them.
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from relook.data import Dataset, Preparation
from relook.data.prepare import fitted
from relook.deploy.calibrate import calibrated_policy, weigh_policy
from relook.deploy.early_exit.learn import learn_early_exit
from relook.deploy.early_exit.report import report_early_exit
from relook.deploy.early_exit.rule import EarlyExit
from relook.deploy.tta.view_plan import plan_views
from relook.errors import RelookError
from relook.evaluation.compare import compare
from relook.evaluation.unseen import unseen_part
from relook.numerics.splits import stratified_split
from relook.policy import Policy
from relook.policy.recipes import Group, Recipe
from relook.policy_search.search import PolicySearch, search_dataset
from relook.policy_search.settings import SearchSettings
from relook.predictions.passes import predict_views
from relook.studies.robustness import Shift, robustness
from relook.studies.transfer import transfer
from relook.studies.transfer_targets import Target

IMAGES, STEP = 48, 5
RECIPE = Recipe("turns", ("rotate", "shear_x", "translate_x"), (Group(8, 1, 10.0),))
SETTINGS = SearchSettings(RECIPE, strategy="greedy", draws="fresh", pool_size=8, length=3)
QUICK: dict[str, Any] = {"recipe": RECIPE, "budgets": (3,)}


@dataclass
class Model:
    """Notes which images it is shown, and answers with noise of each image's and view's own."""

    shown: set[int] = field(default_factory=set)
    fingerprint: str = "by grey level"
    classes: int | None = 2

    def __call__(self, images: Tensor) -> Tensor:
        pixels = images.double().flatten(1)
        places = (pixels.median(dim=1).values / STEP).round() - 1
        self.shown |= {int(place) for place in places}
        noise = torch.stack([torch.sin(pixels.sum(dim=1)), torch.cos(3 * places)], dim=1)
        return torch.log_softmax(noise, dim=1).float()

    def used(self) -> set[int]:
        """Return what it was shown since it was last asked."""
        shown, self.shown = self.shown, set()
        return shown


@cache
def source() -> Dataset:
    levels = torch.arange(1, IMAGES + 1, dtype=torch.uint8) * STEP
    images = levels[:, None, None, None].repeat(1, 1, 16, 16)
    images[:, :, :4, :4] = 0  # so that views differ
    return Dataset(images, np.arange(IMAGES) % 2, ("even", "odd"), "levels")


@cache
def searched() -> tuple[PolicySearch, frozenset[int]]:
    """Return a search on some of the images, and those that it saw."""
    model = Model()
    found = search_dataset(model, source().subset(np.arange(0, IMAGES, 2)), SETTINGS)
    return found, frozenset(2 * found.search_indices)


@dataclass(frozen=True)
class Reading:
    """A way to read images: which of them in which order, perhaps twice, and how."""

    places: tuple[int, ...]
    size: int | None
    crop: float | None
    channels: int | None

    def __call__(self) -> Dataset:
        size = None if self.size is None else (self.size, self.size)
        wanted = Preparation(size, self.crop, channels=self.channels)
        return fitted(source(), wanted).subset(self.places)


@dataclass
class Story:
    """A policy, and which images have fitted something in it so far."""

    policy: Policy
    fitted: set[int]
    model: Model = field(default_factory=Model)

    def claim(self, *, fits: bool = False) -> None:
        """Check that a claim was not made on images that fitted anything."""
        used = self.model.used()
        assert not used & self.fitted
        if fits:
            self.fitted |= used

    def calibrate(self, images: Dataset) -> None:
        self.policy = calibrated_policy(self.model, images, self.policy).policy
        self.fitted |= self.model.used()

    def weigh(self, images: Dataset) -> None:
        fixed = self.policy if self.policy.is_fixed else self.policy.freeze(3)
        self.policy = weigh_policy(self.model, images, fixed, always=True).policy
        self.claim(fits=True)

    def exit_early(self, images: Dataset) -> None:
        plan = plan_views(self.policy, None, temperature=None)
        unseen = unseen_part(images, [plan.policy]).dataset
        rest, learn = stratified_split(unseen.labels, 0.5, 0)
        log_probs = predict_views(self.model, unseen.images, plan.views, seed=plan.seed)
        self.claim()
        learned = log_probs[:, learn], unseen.labels[learn]
        identities = unseen.identities
        rule = learn_early_exit(*learned, plan.policy, "views=2", identities=identities[learn])
        with TemporaryDirectory() as folder:
            rule.save(Path(folder) / "rule.json")
            rule = EarlyExit.load(Path(folder) / "rule.json")
        twins = set(identities[rest]) & set(identities[learn])
        arguments = (rule, log_probs[:, rest], unseen.labels[rest], plan.policy)
        try:
            report_early_exit(*arguments, learned_on=learned, identities=identities[rest])
        except RelookError:
            assert twins or len(rest) < 2
        else:
            assert not twins

    def freeze(self, _: Dataset) -> None:
        self.policy = self.policy.freeze(1)

    def shorten(self, _: Dataset) -> None:
        self.policy = self.policy.for_budget(2)[:2]

    def leave(self, _: Dataset) -> None:
        with TemporaryDirectory() as folder:
            self.policy.save(Path(folder) / "policy.json")
            self.policy = Policy.load(Path(folder) / "policy.json")

    def compare(self, images: Dataset) -> None:
        found = compare(
            self.model, images, self.policy, methods=["plain"], measure_cost=False, **QUICK
        )
        assert "cannot be known" not in found.verdict.sentence
        self.claim()

    def robustness(self, images: Dataset) -> None:
        shift = Shift(["fog"], [1], source=lambda *_: images.plain)
        robustness(self.model, images, self.policy, shift=shift, methods=["plain"], **QUICK)
        self.claim()

    def transfer(self, images: Dataset) -> None:
        transfer([Target("it", self.model, images)], {"own": self.policy}, **QUICK)
        self.claim()


DEEDS: tuple[Callable[[Story, Dataset], None], ...] = (
    Story.calibrate,
    Story.weigh,
    Story.exit_early,
    Story.freeze,
    Story.shorten,
    Story.leave,
    Story.compare,
    Story.robustness,
    Story.transfer,
)
READINGS = st.builds(
    Reading,
    st.lists(st.integers(0, IMAGES - 1), min_size=1, max_size=60).map(tuple),
    st.sampled_from([None, 12, 24]),
    st.sampled_from([None, 0.8]),
    st.sampled_from([None, 3]),
)


def test_a_search_proves_its_policy_on_other_images() -> None:
    found, fitted = searched()
    assert found.comparison.images == len(found.held_out_indices)
    assert not fitted & set(2 * found.held_out_indices)


WHOLE = Reading((*range(IMAGES),), 20, 0.9, None)


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.filterwarnings("ignore:.*images are used")
def test_every_deed_can_be_done(deed: Callable[[Story, Dataset], None]) -> None:
    """An error is no claim either: without this the next test could pass by errors alone."""
    found, fitted = searched()
    deed(Story(found.policy, set(fitted)), WHOLE())


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(DEEDS), READINGS), min_size=2, max_size=5))
def test_no_claim_is_made_on_images_that_fitted_anything(
    deeds: list[tuple[Callable[[Story, Dataset], None], Reading]],
) -> None:
    found, fitted = searched()
    story = Story(found.policy, set(fitted))
    for deed, reading in [*deeds, (Story.compare, WHOLE)]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says how many images are left
            with suppress(RelookError):  # too few images, or too few of them left
                deed(story, reading())
        story.claim()
