"""The input of a command: a finished search or a policy file, and the model that goes with it."""

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
from relook.policy_search.run_record import RunRecord, check_ended, load_run, recorded_recipe
from relook.transforms.centre_crop import CentreCrop

_FROM_SEARCH = ("model", *OF_MODEL, "channels", "classes")
"""Options that default to those of the search."""


@dataclass(frozen=True)
class RunOrPolicy:
    """The argument RUN, a run or a policy file; --run and --policy are its older names.

    A policy file given with a run replaces the run's own policy.
    """

    run: Path | None = argument(
        "The directory of a search, for its policy, model and classes, or a policy file.",
        metavar="RUN",
    )
    older_run: Path | None = option(None, "--run", hidden=True)
    older_policy: list[Path] | None = option(None, "--policy", "-p", hidden=True)

    @property
    def directory(self) -> Path | None:
        """The directory of the search, if one is given."""
        if self.older_run is not None:
            return self.older_run
        return next((path for path in self._given() if path.is_dir()), None)

    @property
    def policies(self) -> list[Path]:
        """The policy files: those given, or else the run's."""
        files = [path for path in self._given() if not path.is_dir()]
        if files or self.directory is None:
            return files
        check_ended(self.directory)
        return [self.directory / "policy.json"]

    @property
    def policy(self) -> Path:
        """The one policy file; raises if none or several are given."""
        policies = self.policies
        if not policies:
            raise RelookError("expected RUN, the directory of a search or a policy file, got none")
        if len(policies) > 1:
            raise RelookError(f"expected one policy file, got {len(policies)}: give one")
        return policies[0]

    def search_directory(self, model: object = None) -> Path | None:
        """Return the search's directory: the one given or, without a `model`, the policy file's."""
        files = [path for path in self._given() if not is_preset(path)]
        if self.directory is not None or model or len(files) != 1:
            return self.directory
        return files[0].parent if (files[0].parent / "run.json").is_file() else None

    def search_record(self, model: object = None) -> RunRecord | None:
        """Read the record in `search_directory(model)`; None if there is no search."""
        run = self.search_directory(model)
        return None if run is None else load_run(run)

    def _given(self) -> list[Path]:
        return [*(self.older_policy or ()), *([] if self.run is None else [self.run])]


@dataclass(frozen=True)
class ModelOfRun:
    """A model as the options describe it, completed by the record of its policy's search."""

    given: Mapping[str, Any]
    record: RunRecord | None
    predictor: Predictor

    @classmethod
    def load(
        cls, record: RunRecord | None, given: Mapping[str, Any], device: str = "cpu"
    ) -> ModelOfRun:
        """Load the model; the options `given` override those of the search."""
        origin = {} if record is None else record.origin
        merged = {name: origin[name] for name in _FROM_SEARCH if name in origin} | dict(given)
        if record is not None and "model" not in merged:
            raise RelookError(f"{record.path} was searched from Python: give --model")
        return cls(merged, record, load_given_model(merged, device))

    @property
    def channels(self) -> int | None:
        """The number of channels of images: as given, or as in the search."""
        shape = self._searched_shape()
        return self.given.get("channels") or (shape and shape[0])

    @property
    def size(self) -> tuple[int, int] | None:
        """The height and width of images: as given, or as in the search."""
        shape = self._searched_shape()
        return pixels(self.given.get("size")) or (shape and shape[1:])

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes: as given, or as in the search."""
        outputs = self.predictor.classes
        if "classes" in self.given:
            return read_classes(self.given["classes"], outputs)
        names = None if self.record is None else self.record.data.get("classes")
        return names_of(tuple(map(str, names)), outputs) if isinstance(names, list) else None

    def checked(self, policy: Policy, temperature: TemperatureChoice) -> Policy:
        """Return the policy to run; print a note if its temperature was fitted on another model."""
        note = other_network_note(self.predictor, policy)
        if note is not None and temperature == "policy":
            say(f"note: {note}")
        return replace(policy, fitted_on=None)

    def images(
        self, data: str, searched: CentreCrop | None, skip_bad: bool, full_size: bool
    ) -> ImageSource:
        """Return images to predict, prepared as the policy's search prepared its own."""
        given = {**self.given, "skip_bad": skip_bad, "full_size": full_size}
        plan = preparation(given, log=say).for_model(self.predictor).as_searched(searched)
        size = plan.size or self.size
        channels = plan.channels or self.channels
        if channels is None and searched is not None:
            channels = searched.channels
        with loading.reading_bars() as progress:
            plan = replace(plan, size=size, channels=channels, progress=progress)
            return open_source(data, plan)

    def _searched_shape(self) -> tuple[int, int, int] | None:
        shape = None if self.record is None else self.record.data.get("shape")
        if not isinstance(shape, list) or [type(side) for side in shape] != [int] * 3:
            return None
        channels, height, width = shape
        return channels, height, width


Judged = tuple[Policy, Comparison | None, Recipe]
"""A policy, the comparison with its verdict (None if that does not apply), and its recipe."""


def load_judged(source: RunOrPolicy, given: Mapping[str, Any]) -> Judged:
    """Read the policy, and its comparison unless that was made with another model."""
    policy, record = Policy.load(source.policy), source.search_record(given.get("model"))
    # A verdict is about a run's own policy; a policy file is taken as it is.
    file = source.directory and source.directory / "comparison.json"
    origin = {} if record is None else record.origin
    models = [loading.as_list(one["model"]) for one in (given, origin) if "model" in one]
    same_model = all(model == models[0] for model in models)
    comparison = load_comparison(file) if same_model and file and file.is_file() else None
    recipe = get_recipe(policy.recipe or "cifar") if record is None else recorded_recipe(record)
    return policy, comparison, recipe


def choose_deployed(
    source: RunOrPolicy,
    given: Mapping[str, Any],
    method: str | None,
    views: int | None,
    *,
    announce: bool = True,
) -> Deployed:
    """Return what to deploy; `announce` prints the verdict's choice, or a warning from it."""
    policy, comparison, recipe = load_judged(source, given)
    chosen = deployed(policy, comparison, recipe, method, views)
    if chosen.by_verdict and announce:
        other = "" if chosen.whole else "; --method policy takes the whole policy"
        say(f"{chosen.text}, as the verdict recommends{other}")
    elif announce and method != "plain" and comparison is not None:
        verdict = comparison.verdict
        if verdict.recommended_method == "plain":
            say(f"note: the verdict recommends the plain image ({verdict.outcome})")
    if is_preset(source.policy) and chosen.temperature == "policy":
        say(f"{source.policy} is not calibrated:  relook calibrate  fits its temperatures")
        return replace(chosen, temperature=None)
    return chosen


def load_given_model(given: Mapping[str, Any], device: str) -> Predictor:
    """Load the model that the options describe."""
    if "model" not in given:
        raise RelookError("expected --model, or RUN, the directory of a search, with its model")
    keywords = {name: given[name] for name in OF_MODEL if name in given}
    return loading.read_model(given["model"], device=device, **keywords)


def read_temperature(text: str, own: TemperatureChoice) -> TemperatureChoice:
    """Parse `policy` (the `own` temperature of the deployed method), `none` or a number."""
    if text in ("policy", "none"):
        return own if text == "policy" else None
    try:
        return float(text)
    except ValueError:
        raise RelookError(
            f"--temperature: expected policy, none or a number, got {text!r}"
        ) from None


def derived_policy(policy: Path, kind: str) -> Path:
    """Return the path of a policy made from another: next to it, or here for a preset."""
    if is_preset(policy):
        return Path(f"{preset_name(policy)}.{kind}.json")
    return policy.with_suffix(f".{kind}.json")


def say_policy_written(policy: Path) -> None:
    """Print where a policy was written, and the command that deploys it."""
    say(f"written to {policy};  relook export {shlex.quote(str(policy))} -o model.onnx  deploys it")


def refuse_to_overwrite(out: Path, force: bool) -> None:
    """Raise if `out` exists, unless `force` is set."""
    if out.exists() and not force:
        raise RelookError(
            f"{one_line(str(out))} exists: give another --out, or --force to overwrite it"
        )
