"""What is compared, from a finished search or from options: model, images, policies, recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from relook.api.recorded import as_recorded, next_to
from relook.cli.shared import loading, options, sources
from relook.cli.shared.console import say, typed_command
from relook.data import Dataset
from relook.errors import RelookError
from relook.evaluation.baselines import Options
from relook.evaluation.unseen import apart, left_out_note, unseen_places, unused_part
from relook.io.files import one_line
from relook.io.fingerprint import fingerprint
from relook.io.identities import is_in
from relook.models import Predictor
from relook.models.accelerate import Accelerated, accelerate_run
from relook.policy import Policy
from relook.policy.file import policy_to_json
from relook.policy.recipes import Recipe, get_recipe
from relook.policy_search.run_record import (
    RunRecord,
    engine_of,
    held_out_part,
    load_run,
    recorded_recipe,
    used_images,
    was_balanced,
)

BALANCE_NOTE = "note: the search gave each class the same weight; here each image counts the same"
_OF_DATA = ("data", "test", "group", "skip_bad")


@dataclass(frozen=True)
class PolicyInputs:
    """Model, images and policies; `indices` are the images' places in the whole data set.

    `balanced`: the search gave each class the same weight. `left_out` are images that it neither
    saw nor proved its policy on, if they were asked for.
    """

    predictor: Predictor
    dataset: Dataset
    indices: NDArray[np.int64]
    validation: Dataset | None
    policies: tuple[Policy, ...]
    record: Mapping[str, Any]
    balanced: bool
    left_out: Dataset | None = None

    def on(self, model: Accelerated) -> Self:
        """Return the same with the model on an engine, which is recorded."""
        known = {**self.record["model"], "engine": model.engine}
        return replace(self, predictor=model.predictor, record={**self.record, "model": known})

    def note_balance(self) -> None:
        """Say so where figures weigh images otherwise than the search did."""
        if self.balanced:
            say(BALANCE_NOTE)


_Inputs = TypeVar("_Inputs", bound=PolicyInputs)


@dataclass(frozen=True)
class ComparisonInputs(PolicyInputs):
    """What a comparison is made of: policies, and the recipe of the baselines' views."""

    recipe: Recipe = field(kw_only=True)

    def mark(self, baselines: Options, *asked: object) -> str:
        """Return what stands for the inputs and what is asked, so that stores do not mix."""
        identity = fingerprint(
            self.predictor.fingerprint,
            self.dataset.fingerprint,
            self.recipe.to_json(),
            [policy_to_json(policy) for policy in self.policies],
            asdict(baselines),
            *asked,
        )
        return identity[:8]


def images_option(text: str, default: str) -> Any:
    """Return the option `--data` of a command that has images without it."""
    return options.data_option(text, "--data", "-d", shown=default)


@dataclass(frozen=True, kw_only=True)
class PolicySource:
    """Options of what is scored: policies, and a model with images that no search has seen."""

    labelled: ClassVar[str] = "--data"
    """The option that gives the images."""
    source: sources.RunOrPolicy
    model: options.SearchedModelOption = None
    data: str | None = images_option(
        "Labelled images that the policy was not searched on.", "the search's held-out ones"
    )
    group: options.GroupOption = None
    reading: options.ReadingOptions
    network: options.NetworkOptions
    device: options.DeviceOption = "auto"
    accelerate: str = options.speed_option(
        "How the model runs: torch, channels-last, onnx (ONNX Runtime), or auto: as in the "
        "search, or else the fastest whose outputs agree with torch's.",
        default="auto",
    )

    def engine(self, place: Path, dry_run: bool = False) -> dict[str, Any]:
        """Return how the model runs, for `accelerate_run`; `place` is where results go."""
        run = None if self.model else self.source.search_directory()
        found = engine_of(None if run is None else load_run(run), self.accelerate, place)
        if self.model or (dry_run and not found["record"].exists()):
            found["record"] = None  # what was chosen for the search's model says nothing of others
        return found

    def with_engine(self, inputs: _Inputs, place: Path, passes: int) -> _Inputs:
        """Return the inputs with the model on its engine, and say which, if that was chosen."""
        images = inputs.dataset.images
        model = accelerate_run(inputs.predictor, images, passes=passes, **self.engine(place))
        model.tell(say)
        return inputs.on(model)

    def read(self) -> PolicyInputs:
        """Bring model, images and policies together, from a run or from the options."""
        return self._read(self._known())

    def read_with_left_out(self, how_to_leave: str) -> PolicyInputs:
        """Return the same, with the images that the search's split left out, or raise."""
        return self._read(self._known(), how_to_leave)

    def read_all(self) -> PolicyInputs:
        """As `read`, but with the images that the policies were found on."""
        return self._read(self._known(), everything=True)

    def _given(self) -> dict[str, Any]:
        more = {"model": self.model or None, "data": self.data, "group": self.group}
        return as_recorded(**more, **self.network.given(), **self.reading.given())

    def _read(
        self, known: _Completed, how_to_leave: str | None = None, *, everything: bool = False
    ) -> PolicyInputs:
        paths, options = known.paths, known.options
        policies = tuple(Policy.load(path) for path in paths)
        full = loading.keeps_full_size_as_searched(
            self.reading.full_size, options["data"], paths[0], policies
        )
        given = {**options, "full_size": full}
        predictor = sources.load_given_model(given, self.device)
        overflow = None if known.record is None else next_to(known.record.path)
        how = {"model": predictor, "overflow": overflow, "searched": policies[0].preparation}
        dataset, validation = _images(given, how | loading.image_options(given))
        rest = None
        if how_to_leave is not None:
            rest = unused_part(dataset, used_images(paths[0], policies[0]), how_to_leave)
        indices, searched = np.arange(len(dataset)), None
        if not everything:
            dataset, indices, searched = _held_out(paths, policies, dataset)
        validation = searched if validation is None else _apart(validation, dataset)
        kept = {
            "command": typed_command(),
            "model": {"spec": " + ".join(loading.as_list(given["model"]))},
            "data": {"spec": given["data"]},
        }
        if known.record is not None and known.record.set_up and not PolicySource._given(self):
            kept["set_up"] = known.record.set_up
        balanced = was_balanced(known.nearest())
        return PolicyInputs(predictor, dataset, indices, validation, policies, kept, balanced, rest)

    def _known(self) -> _Completed:
        policies, given = self.source.policies, self._given()
        run = self.source.search_directory(given.get("model"))
        if run is None:
            asked = {"model": "--model", "data": self.labelled}
            missing = [option for name, option in asked.items() if name not in given]
            missing += [] if policies else ["a policy file"]
            absent = [path for path in policies if not path.exists()]
            if missing and absent:
                raise RelookError(
                    f"{one_line(str(absent[0]))}: expected the directory of a search, or a policy "
                    "file, got nothing there"
                )
            if missing:
                raise RelookError(
                    f"expected RUN, the directory of a search, or else {' and '.join(missing)}"
                )
            return _Completed(given, tuple(policies), None)
        record = load_run(run)
        recorded = dict(record.origin)
        if "data" in given:  # other images: what was said of the search's does not hold for them
            recorded = {name: value for name, value in recorded.items() if name not in _OF_DATA}
        elif "test" in recorded:
            searched = recorded.pop("data")
            recorded = {**recorded, "validation": searched, "data": recorded["test"]}
            recorded["group"] = loading.groups_for_test(recorded.get("group"))
        merged = {**recorded, **given}
        if "model" not in merged or "data" not in merged:
            raise RelookError(f"{run} was searched from Python: give --model and {self.labelled}")
        return _Completed(merged, tuple(policies), record)


@dataclass(frozen=True, kw_only=True)
class ComparisonSource(PolicySource):
    """Options of what is compared, with the recipe of the baselines and their validation images."""

    validation: str | None = options.data_option(
        "Images to search MGrid's magnitude on.",
        panel=options.PANEL,
        shown="those that the search saw",
    )
    recipe: str | None = options.details_option(
        "Where the random baselines come from: cifar, imagenet, small, or a TOML file.",
        shown="the policy's own",
    )
    exclude: str | None = options.details_option(options.EXCLUDE_HELP)

    def read(self) -> ComparisonInputs:
        """Bring model, images, policies and recipe together, from a run or from the options."""
        known = self._known()
        found = self._read(known)
        recipe = _recipe(known.options, known.nearest(), found.policies[0])
        return ComparisonInputs(**vars(found), recipe=recipe)

    def _given(self) -> dict[str, Any]:
        more = {"validation": self.validation, "recipe": self.recipe, "exclude": self.exclude}
        return super()._given() | as_recorded(**more)


@dataclass(frozen=True)
class _Completed:
    """The options, completed by those of a run, with its record and the policies' files."""

    options: Mapping[str, Any]
    paths: tuple[Path, ...]
    record: RunRecord | None

    def nearest(self) -> RunRecord | None:
        """Return the record of the run, or of the search next to the first policy."""
        return self.record or loading.load_search_record(self.paths[0])


def _images(given: Mapping[str, Any], how: Mapping[str, Any]) -> tuple[Dataset, Dataset | None]:
    """Return the images to compare on and those for validation, with the same classes."""
    own = given["data"], given.get("group")
    if "test" in given and "validation" in given:  # the search read its own images first
        validation = loading.read_data(given["validation"], **how)
        return loading.read_data(*own, like=validation, **how), validation
    dataset = loading.read_data(*own, **how)
    if "validation" not in given:
        return dataset, None
    return dataset, loading.read_data(given["validation"], like=dataset, **how)


def _held_out(
    paths: Sequence[Path], policies: Sequence[Policy], dataset: Dataset
) -> tuple[Dataset, NDArray[np.int64], Dataset | None]:
    """Return the images that no policy was found on, their places, and those for validation."""
    splits = [split for path in paths if (split := held_out_part(path, dataset)) is not None]
    whole = splits[0].dataset if splits else dataset
    left = unseen_places(whole, policies, [one.split.held_out for one in splits])
    searched = np.setdiff1d(np.arange(len(whole)), left)
    if any(is_in(whole.identities[left], policy.seen).any() for policy in policies):
        say(f"{whole.name}: each image is scored by views that were learned on the other half")
    elif splits:
        searched = splits[0].split.search
        say(
            f"{whole.name} is what the policy was searched on: only its {len(left):,} held-out "
            "images are used"
        )
    elif len(searched):
        say(left_out_note(whole, len(left)))
    return whole.subset(left), left, whole.subset(searched) if len(searched) else None


def _apart(validation: Dataset, dataset: Dataset) -> Dataset:
    """Return the validation images without those that are compared on."""
    left = apart(validation, dataset)
    if len(left) < len(validation):
        say(
            f"{validation.name}: {len(left):,} of its {len(validation):,} images are used for "
            f"validation; the others are among those of {dataset.name}, which are compared on"
        )
    return left


def _recipe(given: Mapping[str, Any], record: RunRecord | None, policy: Policy) -> Recipe:
    """Return the recipe of the option, of the search, or of the policy, whichever is there."""
    if "recipe" in given:
        found = get_recipe(given["recipe"])
    elif record is not None:
        found = recorded_recipe(record)
    elif policy.recipe is not None:
        found = get_recipe(policy.recipe)
    else:
        raise RelookError("the policy does not say which recipe it comes from: give --recipe")
    return found.without(loading.read_names(given.get("exclude")))
