"""What a command works on: a finished search or a policy file, and the model that belongs to it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relook.api.recorded import OF_MODEL, pixels, preparation
from relook.cli.shared import loading
from relook.cli.shared.console import say
from relook.cli.shared.option_groups import argument, option
from relook.data.base import names_of, read_classes
from relook.deploy.batch.image_source import ImageSource, open_source
from relook.deploy.calibrate import other_network_note
from relook.deploy.recommended import Deployed, deployed
from relook.deploy.tta.view_plan import TemperatureChoice
from relook.errors import RelookError
from relook.evaluation.comparison import Comparison, load_comparison
from relook.io.files import one_line
from relook.models import Predictor
from relook.policy import Policy
from relook.policy.presets import is_preset, preset_name
from relook.policy.recipes import Recipe, get_recipe
from relook.policy_search.run_record import RunRecord, load_run, recorded_recipe
from relook.transforms.centre_crop import CentreCrop

_OF_RUN = ("model", *OF_MODEL, "channels", "classes")


@dataclass(frozen=True)
class RunOrPolicy:
    """What a command works on, RUN; --run and --policy are its older names.

    A policy file given with a run takes the place of the run's own policy.
    """

    run: Path | None = argument(
        "The directory of a search, for its policy, model and classes, or a policy file.",
        metavar="RUN",
    )
    older_run: Path | None = option(None, "--run", hidden=True)
    older_policy: list[Path] | None = option(None, "--policy", "-p", hidden=True)

    @property
    def directory(self) -> Path | None:
        """The directory of the search, where one is given."""
        if self.older_run is not None:
            return self.older_run
        return next((path for path in self._given() if path.is_dir()), None)

    @property
    def policies(self) -> list[Path]:
        """The policies to use: the files that are given, or else the run's."""
        files = [path for path in self._given() if not path.is_dir()]
        return files or ([] if self.directory is None else [self.directory / "policy.json"])

    @property
    def policy(self) -> Path:
        """The policy to use, where only one can be."""
        found = self.policies
        if not found:
            raise RelookError("expected RUN, the directory of a search or a policy file, got none")
        if len(found) > 1:
            raise RelookError(f"expected one policy file, got {len(found)}: give one")
        return found[0]

    def search_directory(self, model: object = None) -> Path | None:
        """The directory of the search: as given, or a policy file's own if no `model` is given."""
        files = [path for path in self._given() if not is_preset(path)]
        if self.directory is not None or model or len(files) != 1:
            return self.directory
        return files[0].parent if (files[0].parent / "run.json").is_file() else None

    def search_record(self, model: object = None) -> RunRecord | None:
        """Read what the search knew, where there is one; see `searched`."""
        run = self.search_directory(model)
        return None if run is None else load_run(run)

    def _given(self) -> list[Path]:
        return [*(self.older_policy or ()), *([] if self.run is None else [self.run])]


@dataclass(frozen=True)
class ModelOfRun:
    """A model as the options describe it, with what the search that found its policy knew."""

    given: Mapping[str, Any]
    record: RunRecord | None
    predictor: Predictor

    @classmethod
    def load(
        cls, record: RunRecord | None, given: Mapping[str, Any], device: str = "cpu"
    ) -> ModelOfRun:
        """Load the model; what is given counts more than what the search had."""
        known = {} if record is None else record.origin
        merged = {name: known[name] for name in _OF_RUN if name in known} | dict(given)
        if record is not None and "model" not in merged:
            raise RelookError(f"{record.path} was searched from Python: give --model")
        return cls(merged, record, load_given_model(merged, device))

    @property
    def channels(self) -> int | None:
        """How many channels images must have: as asked for, or as searched on."""
        shape = self._searched_shape()
        return self.given.get("channels") or (shape and shape[0])

    @property
    def size(self) -> tuple[int, int] | None:
        """The height and width that images must have: as asked for, or as searched on."""
        shape = self._searched_shape()
        return pixels(self.given.get("size")) or (shape and shape[1:])

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes: those given, or those of the images searched on."""
        outputs = self.predictor.classes
        if "classes" in self.given:
            return read_classes(self.given["classes"], outputs)
        found = None if self.record is None else self.record.data.get("classes")
        return names_of(tuple(map(str, found)), outputs) if isinstance(found, list) else None

    def checked(self, policy: Policy, temperature: TemperatureChoice) -> Policy:
        """Return the policy to run; say so where its temperature is another model's."""
        note = other_network_note(self.predictor, policy)
        if note is not None and temperature == "policy":
            say(f"note: {note}")
        return replace(policy, fitted_on=None)

    def images(
        self, data: str, searched: CentreCrop | None, skip_bad: bool, full_size: bool
    ) -> ImageSource:
        """Return images to predict, read as the search of a policy did."""
        given = {**self.given, "skip_bad": skip_bad, "full_size": full_size}
        wanted = preparation(given, log=say).for_model(self.predictor).as_searched(searched)
        size = wanted.size or self.size
        channels = wanted.channels or self.channels
        if channels is None and searched is not None:
            channels = searched.channels
        with loading.reading_bars() as progress:
            wanted = replace(wanted, size=size, channels=channels, progress=progress)
            return open_source(data, wanted)

    def _searched_shape(self) -> tuple[int, int, int] | None:
        shape = None if self.record is None else self.record.data.get("shape")
        if not isinstance(shape, list) or [type(side) for side in shape] != [int] * 3:
            return None
        channels, height, width = shape
        return channels, height, width


Judged = tuple[Policy, Comparison | None, Recipe]
"""A policy with the comparison and the recipe of its run, as far as they count for it."""


def load_judged(source: RunOrPolicy, given: Mapping[str, Any]) -> Judged:
    """Read the policy, and the verdict's comparison if it is of the model that is given."""
    policy, record = Policy.load(source.policy), source.search_record(given.get("model"))
    # The verdict is on the run's own policy: another file is taken as it is.
    file = None if source.directory is None else source.directory / "comparison.json"
    searched = {} if record is None else record.origin
    named = [loading.as_list(one["model"]) for one in (given, searched) if "model" in one]
    own = all(one == named[0] for one in named)
    comparison = load_comparison(file) if own and file is not None and file.is_file() else None
    recipe = get_recipe(policy.recipe or "cifar") if record is None else recorded_recipe(record)
    return policy, comparison, recipe


def choose_deployed(
    source: RunOrPolicy,
    given: Mapping[str, Any],
    method: str | None,
    views: int | None,
    *,
    told: bool = True,
) -> Deployed:
    """Return what to deploy, and say what it is where nobody named it, if it is to be `told`.

    The verdict's recommendation is for the model that was searched with.
    """
    policy, comparison, recipe = load_judged(source, given)
    found = deployed(policy, comparison, recipe, method, views)
    if found.by_verdict and told:
        other = "" if found.whole else "; --method policy takes the whole policy"
        say(f"{found.text}, as the verdict recommends{other}")
    elif told and method != "plain" and comparison is not None:
        verdict = comparison.verdict
        if verdict.recommended_method == "plain":
            say(f"note: the verdict recommends the plain image ({verdict.outcome})")
    if is_preset(source.policy) and found.temperature == "policy":
        say(f"{source.policy} is not calibrated:  relook calibrate  fits its temperatures")
        return replace(found, temperature=None)
    return found


def load_given_model(given: Mapping[str, Any], device: str) -> Predictor:
    """Load the model that the options name."""
    if "model" not in given:
        raise RelookError("expected --model, or RUN, the directory of a search, with its model")
    how = {name: given[name] for name in OF_MODEL if name in given}
    return loading.read_model(given["model"], device=device, **how)


def read_temperature(text: str, own: TemperatureChoice = "policy") -> TemperatureChoice:
    """Read `policy`, which is what is deployed with its `own`, `none` or a number."""
    if text in ("policy", "none"):
        return own if text == "policy" else None
    try:
        return float(text)
    except ValueError:
        raise RelookError(
            f"--temperature: expected policy, none or a number, got {text!r}"
        ) from None


def derived_policy(policy: Path, kind: str) -> Path:
    """Return where a policy made of another goes: next to it; a preset's goes here."""
    if is_preset(policy):
        return Path(f"{preset_name(policy)}.{kind}.json")
    return policy.with_suffix(f".{kind}.json")


def say_policy_written(policy: Path) -> None:
    """Say where a policy was written, and what deploys it."""
    say(f"written to {policy};  relook export {shlex.quote(str(policy))} -o model.onnx  deploys it")


def refuse_to_overwrite(out: Path, force: bool) -> None:
    """Raise where a file would be overwritten that nobody said may be."""
    if out.exists() and not force:
        raise RelookError(
            f"{one_line(str(out))} exists: give another --out, or --force to overwrite it"
        )
