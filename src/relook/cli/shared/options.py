"""Options that several commands share, alone and in groups; each default stands with its use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from relook.api.recorded import as_recorded, keeps_full_size, next_to
from relook.cli.shared.console import say
from relook.cli.shared.loading import read_data, read_model
from relook.cli.shared.option_groups import option
from relook.data import Dataset
from relook.data import specs as specs_of_data
from relook.evaluation.baselines import BASELINES
from relook.evaluation.latency import LATENCY, Latency, Limit
from relook.io.files import one_line
from relook.models import Predictor
from relook.models import specs as specs_of_models

PANEL = "Model and data"
"""Where `--help` lists what says where model and images come from."""


def _completed_by(full: Callable[[str], str]) -> Callable[[Any], Any]:
    """Return what reads `photos` as `folder:photos`, and the like, one or several, and says so."""

    def completed(given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [completed(one) for one in given]
        found = given if given is None else full(given)
        if found != given:
            say(f"{given} is read as {found}")
        return found

    return completed


model_option: Callable[..., Any] = partial(option, panel=PANEL)
speed_option: Callable[..., Any] = partial(option, panel="Speed")
details_option: Callable[..., Any] = partial(option, panel="Details")
latency_option: Callable[..., Any] = partial(option, panel="Latency")
data_option: Callable[..., Any] = partial(option, callback=_completed_by(specs_of_data.full_spec))
classifier_option: Callable[..., Any] = partial(
    option,
    "The classifier: timm:NAME@FILE, torch:MODULE:NAME\\[@FILE], onnx:FILE, hf:DIR, "
    "cifar:NAME@FILE or small@FILE. Given several times: their mean.",
    "--model",
    "-m",
    callback=_completed_by(specs_of_models.full_spec),
)

ModelOption = Annotated[list[str], classifier_option()]
SearchedModelOption = Annotated[list[str] | None, classifier_option(shown="the search's")]
DataOption = Annotated[
    str,
    data_option(
        "Labelled images: folder:DIR (one folder per class), csv:FILE (path,label), npz:FILE, "
        "cifar10:DIR, cifar100:DIR, idx:DIR, hf:DIR, or the built-in digits:train and digits:test.",
        "--data",
        "-d",
    ),
]
DeviceOption = Annotated[
    str, speed_option("Where the model runs: cpu, cuda, mps, or auto: a GPU if there is one.")
]
SkipBadOption = Annotated[
    bool,
    model_option("Leave files out that cannot be read as images, and list them.", "--skip-bad"),
]
FullSizeOption = Annotated[
    str,
    model_option(
        "Cut crops from the original files instead of from images of the model's size: yes, no, "
        "or auto: where the recipe or the policy begins with such crops."
    ),
]
GroupOption = Annotated[
    str | None,
    model_option(
        "Images that belong together (one patient, scene or video) stay on one side of every "
        "split: a column of the csv file, an array of the npz file, or a file with one id per "
        "image."
    ),
]
RecipeOption = Annotated[
    str,
    option(
        "Which views to try: cifar or imagenet (both mirror), small (no mirroring: digits, "
        "letters, signs), or a TOML file of your own; for a search also auto: by the images' size "
        "and channels."
    ),
]
EXCLUDE_HELP = "Transforms to leave out, such as cutout,invert; flip leaves all mirror images out."
ExcludeOption = Annotated[str | None, option(EXCLUDE_HELP)]
SeedOption = Annotated[int, option("Seed of everything random.", min=0)]
BatchOption = Annotated[
    int | None, speed_option("Images in one model call.", min=1, shown="by the images' size")
]
SplitOption = Annotated[
    str | None,
    option(
        "How many images to search with and to compare the result on, stratified by class: shares "
        "(0.5:0.5), numbers (5000:5000) or the rest (2500:rest). Images beyond both are left out.",
        metavar="SEARCH:TEST",
        shown="two thirds : a third",
    ),
]
TimeoutOption = Annotated[
    float | None,
    speed_option(
        "End with an error when one call of the model takes longer; what is done is kept.",
        metavar="SECONDS",
        shown="none",
    ),
]
RunsOption = Annotated[
    int, option("Repeats with other random draws: gives mean ± deviation.", min=1)
]
GridViewsOption = Annotated[
    int, details_option("Views per magnitude in the search for MGrid's.", min=1)
]
ViewsOption = Annotated[int | None, option("Model passes per image, at most.", min=1, shown="all")]
MethodOption = Annotated[
    str | None,
    option(
        f"What to deploy, with --views: {', '.join(('policy', *BASELINES))}.",
        shown="what the run's verdict recommends; with --views alone, the policy",
    ),
]
TemperatureOption = Annotated[
    str, option("policy, a number, or none for predictions without calibration.")
]
LogOption = Annotated[
    str | None,
    option(
        "Log settings, metrics, verdict and report at the end: mlflow, tensorboard or wandb.",
        panel="Results",
    ),
]
ForceOption = Annotated[bool, option("Overwrite an existing file.", "--force")]
DryRunOption = Annotated[bool, option("Say what it would cost; write nothing.", "--dry-run")]
JsonOption = Annotated[bool, option("Print the result as JSON instead of tables.", "--json")]


@dataclass(frozen=True)
class ShapeOptions:
    """What images are brought to."""

    size: str | None = model_option(
        "Bring the images to this size, in pixels: 224 or 192x256 (height × width).",
        shown="the model's, or the images' own",
    )
    crop: float | None = model_option(
        "Share of the resized image that the centre crop to --size keeps.",
        shown="the model's, or 0.875; 1 for images of that size",
    )
    channels: int | None = model_option(
        "1 for grey images, 3 for colour.", shown="the model's, or the images' own"
    )


@dataclass(frozen=True)
class ImageOptions(ShapeOptions):
    """What images a model takes, and its classes."""

    classes: Path | None = model_option(
        "The model's classes in its order: text with one name per line, or JSON "
        '{"name": index}. Folders and labels are found in it by name.'
    )

    def given(self) -> dict[str, Any]:
        """Return what was given, as it is recorded."""
        return as_recorded(**vars(self))


@dataclass(frozen=True)
class ReadingOptions(ImageOptions):
    """How images are read, as `read_data` takes it."""

    skip_bad: SkipBadOption = False
    full_size: FullSizeOption = "auto"
    cache: Path | None = model_option(
        "A directory for decoded full-size images, which later commands find there.",
        shown="memory; above 500 MB next to the run",
    )

    def given(self) -> dict[str, Any]:
        """Return what was given, except for `full_size`, which depends on the views too."""
        return as_recorded(**{**vars(self), "full_size": None})

    def of(self, data: str, *, crops: bool) -> dict[str, Any]:
        """Return what was given, settled for these images; `crops`: views begin with crops."""
        full = keeps_full_size(self.full_size, data, crops)
        return as_recorded(**{**vars(self), "full_size": full})


@dataclass(frozen=True)
class NetworkOptions:
    """What a model takes and returns."""

    mean: str | None = model_option(
        "Mean subtracted from the model's inputs, on the scale 0…1: one number, or one per "
        "channel: 0.49,0.48,0.45."
    )
    std: str | None = model_option(
        "Standard deviation that the inputs are divided by, after the mean."
    )
    outputs: str | None = model_option(
        "What the model returns: logits, probabilities or log_probs.",
        shown="logits; must be said for an ONNX graph",
    )
    pretrained: bool = model_option(
        "Fetch timm's own weights for timm:NAME.", "--pretrained", default=False
    )

    def given(self) -> dict[str, Any]:
        """Return what was given, as it is recorded."""
        return as_recorded(**vars(self))

    def load(self, specs: list[str], device: str, reading: ReadingOptions) -> Predictor:
        """Load the model, several as an ensemble, for images that are read like this."""
        return read_model(specs, device=device, size=reading.size, crop=reading.crop, **vars(self))


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Everything that says how a model and its images are read."""

    group: GroupOption = None
    reading: ReadingOptions
    network: NetworkOptions
    device: DeviceOption = "auto"

    def given(self) -> dict[str, Any]:
        """Return what was given, as it is recorded."""
        return as_recorded(group=self.group, **self.network.given(), **self.reading.given())

    def read(
        self, model: list[str], data: str, test: str | None = None, *, crops: bool, out: Path
    ) -> tuple[Predictor, Dataset, Dataset | None]:
        """Load the model, its images and those of a separate test; `crops`: views begin with some.

        What does not fit into memory goes next to `out`.
        """
        predictor = self.network.load(model, self.device, self.reading)
        how = {"model": predictor, "overflow": next_to(out), **self.reading.of(data, crops=crops)}
        dataset = read_data(data, self.group, **how)
        proof = None if test is None else read_data(test, like=dataset, **how)
        return predictor, dataset, proof


@dataclass(frozen=True)
class LatencyOptions:
    """What a call of the deployed model may take."""

    latency: str | None = option(
        "Take the best views whose call is no slower than this, as 40ms: a median, measured here "
        "on the file."
    )
    latency_batch: int = latency_option("Images in a call for --latency.", default=1, min=1)

    def limit(self) -> Limit | None:
        """Return what was asked for, read."""
        return None if self.latency is None else Limit.read(self.latency, self.latency_batch)


def keep_latency(directory: Path | None, latency: Latency) -> None:
    """Write what was measured into the run, for `relook show` and the report."""
    if directory is not None:
        LATENCY.write(directory / "latency.json", latency)
        say(f"times are kept in {one_line(str(directory / 'latency.json'))}")
