"""Load what a command evaluates (model, images, policies, recipe) from a run or from options."""

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
from relook.evaluation.compare import LEFT_OUT
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
    SearchedData,
    engine_of,
    held_out_part,
    load_run,
    recorded_recipe,
    used_images,
    was_balanced,
)

BALANCE_NOTE = "note: the search gave each class the same weight; here each image counts the same"
_DATA_OPTIONS = ("data", "test", "group", "skip_bad")


@dataclass(frozen=True)
class PolicyInputs:
    """Model, images and policies; `indices` are the images' places in the whole data set.

    `balanced`: the search gave each class the same weight. `left_out` are the images that its
    split left out, if requested; `unused` counts those that are neither used nor were searched on.
    """

    predictor: Predictor
    dataset: Dataset
    indices: NDArray[np.int64]
    validation: Dataset | None
    policies: tuple[Policy, ...]
    record: Mapping[str, Any]
    balanced: bool
    left_out: Dataset | None = None
    unused: int = 0

    def with_model(self, model: Accelerated) -> Self:
        """Return the inputs with an accelerated model, whose engine is recorded."""
        described = {**self.record["model"], "engine": model.engine}
        return replace(self, predictor=model.predictor, record={**self.record, "model": described})

    def note_balance(self) -> None:
        """Print a note if the search weighted classes equally, which this command does not."""
        if self.balanced:
            say(BALANCE_NOTE)


_Inputs = TypeVar("_Inputs", bound=PolicyInputs)


@dataclass(frozen=True)
class ComparisonInputs(PolicyInputs):
    """Inputs of a comparison: also the recipe of the baselines' views."""

    recipe: Recipe = field(kw_only=True)

    def short_fingerprint(self, baselines: Options, *settings: object) -> str:
        """Return 8 digits that identify inputs and settings, to name a store of predictions."""
        identity = fingerprint(
            self.predictor.fingerprint,
            self.dataset.fingerprint,
            self.recipe.to_json(),
            [policy_to_json(policy) for policy in self.policies],
            asdict(baselines),
            *settings,
        )
        return identity[:8]


def images_option(text: str, shown: str) -> Any:
    """Declare `--data` for a command that can take the images of a run."""
    return options.data_option(text, "--data", "-d", shown=shown)


@dataclass(frozen=True, kw_only=True)
class PolicySource:
    """Options of policies to evaluate, with a model and images that no search has seen."""

    data_flag: ClassVar[str] = "--data"
    """The option of the labelled images, for error messages."""
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
        "How to run the model: torch, channels-last, onnx (ONNX Runtime), or auto: as in the "
        "search, or else the fastest one whose outputs agree with torch's.",
        default="auto",
    )

    def engine(self, place: Path, dry_run: bool = False) -> dict[str, Any]:
        """Return the keywords of `accelerate_run`; `place` is the directory of the results."""
        run = None if self.model else self.source.search_directory()
        keywords = engine_of(None if run is None else load_run(run), self.accelerate, place)
        if self.model or (dry_run and not keywords["record"].exists()):
            keywords["record"] = None  # an engine chosen for the search's model may not suit others
        return keywords

    def with_engine(self, inputs: _Inputs, place: Path, passes: int) -> _Inputs:
        """Return the inputs with the model on its engine; print the engine if it was chosen."""
        images = inputs.dataset.images
        model = accelerate_run(inputs.predictor, images, passes=passes, **self.engine(place))
        model.tell(say)
        return inputs.with_model(model)

    def read(self) -> PolicyInputs:
        """Load model, images and policies, from a run or from the options.

        Of a run's own images these are the held-out ones; if they are given, also those that the
        search left out.
        """
        return self._read(self._completed())

    def read_unseen(self) -> PolicyInputs:
        """As `read`, but always with the images that the search left out."""
        return self._read(self._completed(), unseen=True)

    def read_with_left_out(self, how_to_leave_out: str) -> PolicyInputs:
        """Also return the images that the search's split left out; raises if there are none."""
        return self._read(self._completed(), how_to_leave_out)

    def read_all(self) -> PolicyInputs:
        """As `read`, but keep the images that the policies were found on."""
        return self._read(self._completed(), everything=True)

    def _given(self) -> dict[str, Any]:
        more = {"model": self.model or None, "data": self.data, "group": self.group}
        return as_recorded(**more, **self.network.given(), **self.reading.given())

    def _read(
        self,
        completed: _Completed,
        how_to_leave_out: str | None = None,
        *,
        unseen: bool = False,
        everything: bool = False,
    ) -> PolicyInputs:
        paths, options, search = completed.paths, completed.options, completed.record
        policies = tuple(Policy.load(path) for path in paths)
        full = loading.reads_full_size(self.reading.full_size, options["data"], paths[0], policies)
        given = {**options, "full_size": full}
        predictor = sources.load_given_model(given, self.device)
        overflow = None if search is None else next_to(search.path)
        keywords = {"model": predictor, "overflow": overflow, "searched": policies[0].preparation}
        dataset, validation = _images(given, keywords | loading.image_options(given))
        left_out = None
        if how_to_leave_out is not None:
            left_out = unused_part(dataset, used_images(paths[0], policies[0]), how_to_leave_out)
        indices, searched, unused = np.arange(len(dataset)), None, 0
        if not everything:
            unseen = unseen or self.data is not None
            dataset, indices, searched, unused = _unseen(paths, policies, dataset, unseen)
        validation = searched if validation is None else _without(validation, dataset)
        record = {
            "command": typed_command(),
            "model": {"spec": " + ".join(loading.as_list(given["model"]))},
            "data": {"spec": given["data"]},
        }
        if search is not None and search.set_up and not PolicySource._given(self):
            record["set_up"] = search.set_up
        balanced = was_balanced(completed.nearest_search())
        return PolicyInputs(
            *(predictor, dataset, indices, validation, policies, record, balanced, left_out),
            unused=unused,
        )

    def _completed(self) -> _Completed:
        """Complete the options by those of the run; raises if something is missing."""
        policies, given = self.source.policies, self._given()
        run = self.source.search_directory(given.get("model"))
        if run is None:
            required = {"model": "--model", "data": self.data_flag}
            missing = [option for name, option in required.items() if name not in given]
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
        if "data" in given:  # the search's options about its images do not apply to other images
            recorded = {k: value for k, value in recorded.items() if k not in _DATA_OPTIONS}
        elif "test" in recorded:
            searched = recorded.pop("data")
            recorded = {**recorded, "validation": searched, "data": recorded["test"]}
            recorded["group"] = loading.groups_for_test(recorded.get("group"))
        merged = {**recorded, **given}
        if "model" not in merged or "data" not in merged:
            raise RelookError(f"{run} was searched from Python: give --model and {self.data_flag}")
        return _Completed(merged, tuple(policies), record)


@dataclass(frozen=True, kw_only=True)
class ComparisonSource(PolicySource):
    """Options of a comparison: also the recipe of the baselines and their validation images."""

    validation: str | None = options.data_option(
        "Images to search MGrid's magnitude on.",
        panel=options.PANEL,
        shown="the search's images",
    )
    recipe: str | None = options.details_option(
        "Recipe of the random baselines: cifar, imagenet, small, or a TOML file.",
        shown="the policy's own",
    )
    exclude: str | None = options.details_option(options.EXCLUDE_HELP)

    def read(self) -> ComparisonInputs:
        """Load model, images, policies and recipe, from a run or from the options."""
        completed = self._completed()
        inputs = self._read(completed)
        if inputs.unused:
            say(f"--data uses the {inputs.unused:,} images that the search left out, too")
            inputs = replace(inputs, record={**inputs.record, LEFT_OUT: inputs.unused})
        recipe = _recipe(completed.options, completed.nearest_search(), inputs.policies[0])
        return ComparisonInputs(**vars(inputs), recipe=recipe)

    def _given(self) -> dict[str, Any]:
        more = {"validation": self.validation, "recipe": self.recipe, "exclude": self.exclude}
        return super()._given() | as_recorded(**more)


@dataclass(frozen=True)
class _Completed:
    """The options, completed by those of a run; its record, and the policies' files."""

    options: Mapping[str, Any]
    paths: tuple[Path, ...]
    record: RunRecord | None

    def nearest_search(self) -> RunRecord | None:
        """Return the record of the run, or else of the search that found the first policy."""
        return self.record or loading.load_search_record(self.paths[0])


def _images(
    given: Mapping[str, Any], keywords: Mapping[str, Any]
) -> tuple[Dataset, Dataset | None]:
    """Return the images to score on and those for validation, with the same classes."""
    own = given["data"], given.get("group")
    if "test" in given and "validation" in given:  # the search read its own images first
        validation = loading.read_data(given["validation"], **keywords)
        return loading.read_data(*own, like=validation, **keywords), validation
    dataset = loading.read_data(*own, **keywords)
    if "validation" not in given:
        return dataset, None
    return dataset, loading.read_data(given["validation"], like=dataset, **keywords)


def _unseen(
    paths: Sequence[Path], policies: Sequence[Policy], dataset: Dataset, left_out_too: bool
) -> tuple[Dataset, NDArray[np.int64], Dataset | None, int]:
    """Return the images that no policy was found on, their places, and those for validation.

    Those that a search left out are among them only if `left_out_too`; else their number is last.
    """
    splits = [split for path in paths if (split := held_out_part(path, dataset)) is not None]
    whole = splits[0].dataset if splits else dataset
    used = unseen = unseen_places(whole, policies, [one.unseen for one in splits])
    if not left_out_too:
        used = unseen_places(whole, policies, [one.split.held_out for one in splits])
    searched = np.setdiff1d(np.arange(len(whole)), used)
    if any(is_in(whole.identities[used], policy.seen).any() for policy in policies):
        say(f"{whole.name}: each image is scored by views that were learned on the other half")
    elif splits:
        searched = splits[0].split.search
        say(f"the policy was searched on {whole.name}: {_used_text(splits[0], used)} are used")
    elif len(searched):
        say(left_out_note(whole, len(used)))
    validation = whole.subset(searched) if len(searched) else None
    return whole.subset(used), used, validation, len(unseen) - len(used)


def _used_text(searched: SearchedData, used: NDArray[np.int64]) -> str:
    """Describe the used ones of the images that were searched on."""
    more = len(np.setdiff1d(used, searched.split.held_out))
    if not more:
        return f"only its {len(used):,} held-out images"
    held_out = f"{len(used) - more:,} held-out images and " if more < len(used) else ""
    return f"its {held_out}{more:,} that the search left out"


def _without(validation: Dataset, dataset: Dataset) -> Dataset:
    """Return the validation images that are not among those to score on."""
    rest = apart(validation, dataset)
    if len(rest) < len(validation):
        say(
            f"{validation.name}: {len(rest):,} of its {len(validation):,} images are used for "
            f"validation; the others are also in {dataset.name}, which is scored on"
        )
    return rest


def _recipe(given: Mapping[str, Any], record: RunRecord | None, policy: Policy) -> Recipe:
    """Return the recipe of the options, or else of the search, or else of the policy."""
    if "recipe" in given:
        recipe = get_recipe(given["recipe"])
    elif record is not None:
        recipe = recorded_recipe(record)
    elif policy.recipe is not None:
        recipe = get_recipe(policy.recipe)
    else:
        raise RelookError("the policy does not say which recipe it comes from: give --recipe")
    return recipe.without(loading.read_names(given.get("exclude")))
