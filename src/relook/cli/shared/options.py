"""Options that several commands share, one by one and in groups; commands set the defaults."""

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
from relook.evaluation.baselines import BASELINES, Options
from relook.evaluation.latency import LATENCY, Latency, Limit
from relook.io.files import one_line
from relook.models import Predictor
from relook.models import specs as specs_of_models
from relook.policy.recipes import Recipe

PANEL = "Model and data"
"""The panel of `--help` for options on loading the model and the images."""

RESULTS = "Results"
"""The panel of `--help` for files to write."""


def _completed_by(full_spec: Callable[[str], str]) -> Callable[[Any], Any]:
    """Return a callback that completes specs, such as `photos` to `folder:photos`."""

    def completed(given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [completed(one) for one in given]
        spec = given if given is None else full_spec(given)
        if spec != given:
            say(f"{given} is read as {spec}")
        return spec

    return completed


model_option: Callable[..., Any] = partial(option, panel=PANEL)
speed_option: Callable[..., Any] = partial(option, panel="Speed")
details_option: Callable[..., Any] = partial(option, panel="Details")
latency_option: Callable[..., Any] = partial(option, panel="Latency")
data_option: Callable[..., Any] = partial(option, callback=_completed_by(specs_of_data.full_spec))
classifier_option: Callable[..., Any] = partial(
    option,
    "The classifier: timm:NAME@FILE, torch:MODULE:NAME\\[@FILE], onnx:FILE, hf:DIR, "
    "cifar:NAME@FILE or small@FILE. Repeat it to average an ensemble.",
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
    str, speed_option("Where to run the model: cpu, cuda, mps, or auto (a GPU if there is one).")
]
SkipBadOption = Annotated[
    bool, model_option("Skip files that cannot be read as images, and list them.", "--skip-bad")
]
FullSizeOption = Annotated[
    str,
    model_option(
        "Cut crops from the original files instead of from images of the model's size: yes, no, "
        "or auto (if the recipe or the policy starts with such crops)."
    ),
]
GroupOption = Annotated[
    str | None,
    model_option(
        "Keep images that belong together (one patient, scene or video) on one side of every "
        "split. Name a column of the csv file, an array of the npz file, or a file with one id "
        "per image."
    ),
]
RecipeOption = Annotated[
    str,
    option(
        "The views to try: cifar or imagenet (both mirror images), small (no mirroring, for "
        "digits, letters or signs), or your own TOML file; for a search also auto (by the images' "
        "size and channels)."
    ),
]
EXCLUDE_HELP = "Transforms to leave out, such as cutout,invert; flip excludes all mirror images."
ExcludeOption = Annotated[str | None, option(EXCLUDE_HELP)]
SeedOption = Annotated[int, option("Random seed.", min=0)]
BatchOption = Annotated[
    int | None, speed_option("Images per model call.", min=1, shown="by the images' size")
]
SplitOption = Annotated[
    str | None,
    option(
        "How many images to search on and how many to hold out, stratified by class: shares "
        "(0.5:0.5), numbers (5000:5000) or the rest (2500:rest). Any others are left out.",
        metavar="SEARCH:TEST",
        shown="two thirds : a third",
    ),
]
TimeoutOption = Annotated[
    float | None,
    speed_option(
        "Stop with an error if a model call takes longer; finished work is kept.",
        metavar="SECONDS",
        shown="none",
    ),
]
RunsOption = Annotated[int, option("Repeats with other random draws, for mean ± deviation.", min=1)]
GridViewsOption = Annotated[
    int, details_option("Views per magnitude in MGrid's grid search.", min=1)
]
ViewsOption = Annotated[int | None, option("Most model passes per image.", min=1, shown="all")]
MethodOption = Annotated[
    str | None,
    option(
        f"The method to deploy, with --views views: {', '.join(('policy', *BASELINES))}.",
        shown="the verdict's recommendation; with --views alone, the policy",
    ),
]
TemperatureOption = Annotated[
    str, option("The softmax temperature: policy, a number, or none (uncalibrated).")
]
LogOption = Annotated[
    str | None,
    option(
        "Log settings, metrics, verdict and report at the end: mlflow, tensorboard or wandb.",
        panel=RESULTS,
    ),
]
ForceOption = Annotated[bool, option("Overwrite an existing file.", "--force")]
DryRunOption = Annotated[bool, option("Estimate the cost and write nothing.", "--dry-run")]
JsonOption = Annotated[bool, option("Print the result as JSON.", "--json")]


@dataclass(frozen=True)
class ShapeOptions:
    """The shape that images are brought to."""

    size: str | None = model_option(
        "Resize the images to this size in pixels: 224 or 192x256 (height × width).",
        shown="the model's, or the images' own",
    )
    crop: float | None = model_option(
        "Share of the resized image that the centre crop to --size keeps.",
        shown="the model's, or 0.875; 1 for images of that size already",
    )
    channels: int | None = model_option(
        "1 for grey images, 3 for colour.", shown="the model's, or the images' own"
    )


@dataclass(frozen=True)
class ImageOptions(ShapeOptions):
    """The images that a model takes, and its classes."""

    classes: Path | None = model_option(
        "File with the class names in the order of the model's outputs: text with one name per "
        'line, or JSON {"name": index}. Folders and labels are matched by name.'
    )

    def given(self) -> dict[str, Any]:
        """Return the options that were given, as a run records them."""
        return as_recorded(**vars(self))


@dataclass(frozen=True)
class ReadingOptions(ImageOptions):
    """How images are read; see `loading.read_data`."""

    skip_bad: SkipBadOption = False
    full_size: FullSizeOption = "auto"
    cache: Path | None = model_option(
        "A directory that keeps decoded full-size images for later commands.",
        shown="memory; above 500 MB, next to the run",
    )

    def given(self) -> dict[str, Any]:
        """Return the given options except for `full_size`, which depends on the views too."""
        return as_recorded(**{**vars(self), "full_size": None})

    def resolved(self, data: str, *, crops: bool) -> dict[str, Any]:
        """Return the given options with `full_size` decided; `crops`: views start with crops."""
        full = keeps_full_size(self.full_size, data, crops)
        return as_recorded(**{**vars(self), "full_size": full})


_MEAN_HELP = (
    "Mean to subtract from the model's inputs (on the scale 0…1): one number, or one per channel, "
    "such as 0.49,0.48,0.45."
)
_STD_HELP = "Standard deviation to divide the inputs by, after the mean."
_OUTPUTS_HELP = "What the model returns: logits, probabilities or log_probs."
_DEFAULT_OUTPUTS = "logits; required for an ONNX graph"


@dataclass(frozen=True)
class NetworkOptions:
    """The inputs and outputs of a model."""

    mean: str | None = model_option(_MEAN_HELP)
    std: str | None = model_option(_STD_HELP)
    outputs: str | None = model_option(_OUTPUTS_HELP, shown=_DEFAULT_OUTPUTS)
    pretrained: bool = model_option(
        "Download timm's pretrained weights for timm:NAME.", "--pretrained", default=False
    )

    def given(self) -> dict[str, Any]:
        """Return the options that were given, as a run records them."""
        return as_recorded(**vars(self))

    def load(self, specs: list[str], device: str, reading: ReadingOptions) -> Predictor:
        """Load the model (several: an ensemble), for images that are read as `reading` says."""
        return read_model(specs, device=device, size=reading.size, crop=reading.crop, **vars(self))


@dataclass(frozen=True)
class NewNetworkOptions(NetworkOptions):
    """As for any model, but the short help has what torch: and onnx: models need."""

    mean: str | None = option(_MEAN_HELP)
    std: str | None = option(_STD_HELP)
    outputs: str | None = option(_OUTPUTS_HELP, shown=_DEFAULT_OUTPUTS)


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Everything on loading a model and its images."""

    group: GroupOption = None
    reading: ReadingOptions
    network: NetworkOptions
    device: DeviceOption = "auto"

    def given(self) -> dict[str, Any]:
        """Return the options that were given, as a run records them."""
        return as_recorded(group=self.group, **self.network.given(), **self.reading.given())

    def read(
        self, model: list[str], data: str, test: str | None = None, *, recipe: Recipe, out: Path
    ) -> tuple[Predictor, Dataset, Dataset | None]:
        """Load the model, its images, and those of a separate test set, for views of a recipe.

        Decoded images that do not fit into memory are stored next to `out`.
        """
        predictor = self.network.load(model, self.device, self.reading)
        keywords = self.reading.resolved(data, crops=recipe.start is not None)
        keywords |= {"model": predictor, "overflow": next_to(out)}
        dataset = read_data(data, self.group, **keywords)
        test_set = None if test is None else read_data(test, like=dataset, **keywords)
        return predictor, dataset, test_set


@dataclass(frozen=True)
class BaselineOptions:
    """The RandAugment baselines."""

    train_length: int = details_option(
        "Steps of a RandAugment sub-policy (MTrain, MGrid).", default=Options.length, min=0
    )
    train_magnitude: float = details_option(
        "The magnitude that the model was trained with (MTrain).", default=Options.magnitude, min=0
    )
    grid_views: GridViewsOption = Options.grid_views

    def options(self) -> Options:
        """Return the options as the baselines take them."""
        return Options(self.train_length, self.train_magnitude, grid_views=self.grid_views)


@dataclass(frozen=True)
class LatencyOptions:
    """The time that a call of the deployed model may take."""

    latency: str | None = option(
        "Choose the best views whose call takes no longer than this, such as 40ms (the median, "
        "measured on this machine)."
    )
    latency_batch: int = latency_option("Images per call for --latency.", default=1, min=1)

    def limit(self) -> Limit | None:
        """Return the parsed limit."""
        return None if self.latency is None else Limit.read(self.latency, self.latency_batch)


def keep_latency(directory: Path | None, latency: Latency) -> None:
    """Write the measured times into the run, for `relook show` and the report."""
    if directory is not None:
        LATENCY.write(directory / "latency.json", latency)
        say(f"times are kept in {one_line(str(directory / 'latency.json'))}")
