"""What a command works on: a finished search or a policy file, and the model that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relook.cli.shared import options
from relook.data.class_map import read_classes
from relook.deploy.tta.view_plan import TemperatureChoice
from relook.errors import RelookError
from relook.io.files import one_line
from relook.models import Predictor
from relook.policy_search.run_record import RunRecord, load_run

_OF_RUN = ("model", "mean", "std", "outputs", "pretrained", "size", "crop", "channels", "classes")

RunArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN",
        help="The directory of a search, for its policy, model and classes, or a policy file.",
        show_default=False,
    ),
]
SearchedModelOption = Annotated[
    list[str] | None,
    options.of_model("--model", "-m", help=options.CLASSIFIER, show_default="the search's"),
]
RunsOption = Annotated[
    int, typer.Option(help="Repeats with other random draws: gives mean ± deviation.", min=1)
]
GridViewsOption = Annotated[
    int, typer.Option(help="Views per magnitude in the search for MGrid's.", min=1)
]
ViewsOption = Annotated[
    int | None, typer.Option(help="Model passes per image, at most.", min=1, show_default="all")
]
TemperatureOption = Annotated[
    str, typer.Option(help="policy, a number, or none for predictions without calibration.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


@dataclass(frozen=True)
class RunOrPolicy:
    """What a command works on, RUN; --run and --policy are its older names.

    A policy file given with a run takes the place of the run's own policy.
    """

    run: RunArgument = None
    older_run: Annotated[Path | None, typer.Option("--run", hidden=True)] = None
    older_policy: Annotated[list[Path] | None, typer.Option("--policy", "-p", hidden=True)] = None

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

    def record(self) -> RunRecord | None:
        """Read what the search knew, where its directory is given."""
        return None if self.directory is None else load_run(self.directory)

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
        return cls(merged, record, model_of(merged, device))

    @property
    def channels(self) -> int | None:
        """How many channels images must have: as asked for, or as searched on."""
        shape = self._searched_shape()
        return self.given.get("channels") or (None if shape is None else shape[0])

    @property
    def size(self) -> tuple[int, int] | None:
        """The height and width that images must have: as asked for, or as searched on."""
        shape = self._searched_shape()
        given = options.pixels(self.given.get("size"))
        return given or (None if shape is None else shape[1:])

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes: those given, or those of the images searched on."""
        outputs = self.predictor.classes
        if "classes" in self.given:
            return read_classes(self.given["classes"], outputs)
        found = None if self.record is None else self.record.data.get("classes")
        if not isinstance(found, list) or found == [str(i) for i in range(len(found))]:
            return None
        return tuple(map(str, found)) if outputs in (None, len(found)) else None

    def _searched_shape(self) -> tuple[int, int, int] | None:
        shape = None if self.record is None else self.record.data.get("shape")
        if not isinstance(shape, list) or len(shape) != 3:
            return None
        channels, height, width = map(int, shape)
        return channels, height, width


def model_of(given: Mapping[str, Any], device: str) -> Predictor:
    """Load the model that the options name."""
    if "model" not in given:
        raise RelookError("expected --model, or RUN, the directory of a search, with its model")
    how = ("mean", "std", "outputs", "size", "crop", "pretrained")
    return options.read_model(
        given["model"], device=device, **{name: given[name] for name in how if name in given}
    )


def temperature_of(text: str) -> TemperatureChoice:
    """Read `policy`, `none` or a number."""
    if text in ("policy", "none"):
        return "policy" if text == "policy" else None
    try:
        return float(text)
    except ValueError:
        raise RelookError(
            f"--temperature: expected policy, none or a number, got {text!r}"
        ) from None


def check_free(out: Path, force: bool) -> None:
    """Raise where a file would be overwritten that nobody said may be."""
    if out.exists() and not force:
        raise RelookError(
            f"{one_line(str(out))} exists: give another --out, or --force to overwrite it"
        )
