"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from relook.api.recorded import numbers as numbers
from relook.api.recorded import pixels as pixels
from relook.cli.shared.console import say, stage_bars
from relook.data import Dataset, Preparation, as_dataset
from relook.data import specs as specs_of_data
from relook.errors import RelookError
from relook.foundation.memory import SHARE, parse_size
from relook.foundation.progress import StageProgress
from relook.foundation.wording import count
from relook.models import EnsemblePredictor, Predictor, load_model
from relook.models import specs as specs_of_models
from relook.models.describe import describe_model
from relook.transforms.centre_crop import CentreCrop

OF_IMAGES = ("size", "crop", "channels", "classes", "skip_bad", "full_size", "cache")
"""Options that say how images are read, as they are recorded."""

PANEL = "Model and data"
"""Where `--help` lists what says where model and images come from."""

CLASSIFIER = (
    "The classifier: timm:NAME@FILE, torch:package.module:factory\\[@FILE], onnx:FILE, hf:DIR, "
    "cifar:NAME@FILE or small@FILE. Given several times: their mean."
)


def data_specs(given: Any) -> Any:
    """Read `--data photos` as `folder:photos`, and the like."""
    return _completed(given, specs_of_data.full_spec)


def model_specs(given: Any) -> Any:
    """Read `--model net.onnx` as `onnx:net.onnx`."""
    return _completed(given, specs_of_models.full_spec)


def _completed(given: Any, full: Callable[[str], str]) -> Any:
    """Return one spec or several, and say which were paths without a source."""
    if isinstance(given, list | tuple):
        return [_completed(one, full) for one in given]
    found = given if given is None else full(given)
    if found != given:
        say(f"{given} is read as {found}")
    return found


of_model: Callable[..., Any] = partial(typer.Option, rich_help_panel=PANEL)
of_speed: Callable[..., Any] = partial(typer.Option, rich_help_panel="Speed")
of_details: Callable[..., Any] = partial(typer.Option, rich_help_panel="Details")

of_classifier: Callable[..., Any] = partial(
    typer.Option, "--model", "-m", help=CLASSIFIER, callback=model_specs
)
of_data: Callable[..., Any] = partial(typer.Option, callback=data_specs)

ModelOption = Annotated[list[str], of_classifier(show_default=False)]
DataOption = Annotated[
    str,
    of_data(
        "--data",
        "-d",
        help="Labelled images: folder:DIR (one folder per class), csv:FILE (path,label), npz:FILE, "
        "cifar10:DIR, cifar100:DIR, idx:DIR, hf:DIR, or the built-in digits:train and digits:test.",
        show_default=False,
    ),
]
MeanOption = Annotated[
    str | None,
    of_model(
        help="Mean subtracted from the model's inputs, on the scale 0…1: one number, or one per "
        "channel: 0.49,0.48,0.45."
    ),
]
StdOption = Annotated[
    str | None,
    of_model(help="Standard deviation that the inputs are divided by, after the mean."),
]
OutputsOption = Annotated[
    str | None,
    of_model(
        help="What the model returns: logits, probabilities or log_probs.",
        show_default="logits; must be said for an ONNX graph",
    ),
]
PretrainedOption = Annotated[
    bool,
    of_model("--pretrained", help="Fetch timm's own weights for timm:NAME."),
]
DeviceOption = Annotated[
    str, of_speed(help="Where the model runs: cpu, cuda, mps, or auto: a GPU if there is one.")
]
SizeOption = Annotated[
    str | None,
    of_model(
        "--size",
        help="Bring the images to this size, in pixels: 224 or 192x256 (height × width).",
        show_default="the model's, or the images' own",
    ),
]
CropOption = Annotated[
    float | None,
    of_model(
        "--crop",
        help="Share of the resized image that the centre crop to --size keeps.",
        show_default="the model's, or 0.875; 1 for images of that size",
    ),
]
ChannelsOption = Annotated[
    int | None,
    of_model(
        "--channels",
        help="1 for grey images, 3 for colour.",
        show_default="the model's, or the images' own",
    ),
]
SkipBadOption = Annotated[
    bool,
    of_model("--skip-bad", help="Leave files out that cannot be read as images, and list them."),
]
ClassesOption = Annotated[
    Path | None,
    of_model(
        "--classes",
        help="The model's classes in its order: text with one name per line, or JSON "
        '{"name": index}. Folders and labels are found in it by name.',
    ),
]
GroupOption = Annotated[
    str | None,
    of_model(
        "--group",
        help="Images that belong together (one patient, scene or video) stay on one side of "
        "every split: a column of the csv file, an array of the npz file, or a file with one id "
        "per image.",
    ),
]
RecipeOption = Annotated[
    str,
    typer.Option(
        help="Which views to try: cifar or imagenet (both mirror), small (no mirroring: digits, "
        "letters, signs), or a TOML file of your own; for a search also auto: by the images' size "
        "and channels.",
    ),
]
EXCLUDED = "Transforms to leave out, such as cutout,invert; flip leaves all mirror images out."
ExcludeOption = Annotated[str | None, typer.Option(help=EXCLUDED)]
SeedOption = Annotated[int, typer.Option(help="Seed of everything random.", min=0)]
BatchOption = Annotated[
    int | None,
    of_speed(help="Images in one model call.", min=1, show_default="by the images' size"),
]
SplitOption = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="SEARCH:TEST",
        help="How many images to search with and to prove the result on, stratified by "
        "class: shares (0.5:0.5), numbers (5000:5000) or the rest (2500:rest). Images beyond "
        "both are left out.",
        show_default="two thirds : a third",
    ),
]
TimeOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="How long the search and its proof may take: 90s, 15m, 1h30m. Where that is short, "
        "there are fewer candidates and images.",
        show_default="15m; none with --pool-size, --split or --holdout",
    ),
]
EffortOption = Annotated[
    str | None,
    of_speed(
        metavar="quick|normal|thorough",
        help="Short for a --time of 2 minutes, 15, or an hour with a larger pool.",
    ),
]
PlanOption = Annotated[
    Path | None,
    of_speed(
        metavar="RUN",
        help="Repeat what another run planned for its time: its directory, or its plan.json.",
    ),
]
FinishOption = Annotated[
    bool,
    of_speed(
        "--finish",
        help="End an interrupted run with the candidates that are complete.",
    ),
]
ReuseOption = Annotated[
    bool,
    of_speed(
        "--reuse/--no-reuse",
        help="Take over what runs next to this one have predicted with the same model; it "
        "changes no result.",
    ),
]
MemoryOption = Annotated[
    str | None,
    of_speed(
        "--memory",
        metavar="SIZE",
        help="The most memory that the selection may take: 500M, 8G, 8GiB. Predictions beyond "
        "it are read from disk.",
        show_default=f"{SHARE:.0%} of what is free".replace("%", " %"),
    ),
]
TimeoutOption = Annotated[
    float | None,
    of_speed(
        "--timeout",
        metavar="SECONDS",
        help="End with an error when one call of the model takes longer; what is done is kept.",
        show_default="none",
    ),
]
LogOption = Annotated[
    str | None,
    typer.Option(
        help="Log settings, metrics, verdict and report at the end: mlflow, tensorboard or wandb.",
        rich_help_panel="Results",
        show_default=False,
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what it would cost; write nothing.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON instead of tables.")
]


def read_model(
    specs: str | Sequence[str],
    *,
    mean: str | None = None,
    std: str | None = None,
    outputs: str | None = None,
    device: str = "cpu",
    size: str | None = None,
    crop: float | None = None,
    pretrained: bool = False,
) -> Predictor:
    """Load the model that the options describe, several as an ensemble, and say what it does."""
    members = [
        load_model(
            spec,
            mean=numbers(mean, "--mean"),
            std=numbers(std, "--std"),
            outputs=outputs,  # type: ignore[arg-type]  # checked by the loader
            device=device,
            size=pixels(size),
            crop=crop,
            pretrained=pretrained,
        )
        for spec in as_list(specs)
    ]
    predictor = members[0] if len(members) == 1 else EnsemblePredictor(members)
    if not all(spec.startswith("small@") for spec in as_list(specs)):  # they bring all they need
        say(f"model: {describe_model(predictor)}")
    return predictor


def as_list(specs: str | Sequence[str]) -> list[str]:
    """Return one spec or several as a list."""
    return [specs] if isinstance(specs, str) else list(specs)


def one_or_all(specs: Sequence[str]) -> str | list[str]:
    """Return the specs as a run's record keeps them: one as a text."""
    return specs[0] if len(specs) == 1 else list(specs)


def group_of_test(group: str | None) -> str | None:
    """Return the groups of a test set: the same column, as a file has ids of other images."""
    if group is None or not Path(group.partition("?")[0]).expanduser().is_file():
        return group
    say(f"note: {group} has no groups of the test images: each of them counts by itself")
    return None


def read_data(
    spec: str,
    group: str | None = None,
    *,
    model: Predictor | None = None,
    like: Dataset | None = None,
    size: str | None = None,
    crop: float | None = None,
    channels: int | None = None,
    skip_bad: bool = False,
    classes: str | Path | None = None,
    full_size: bool = False,
    cache: str | Path | None = None,
    overflow: Path | None = None,
    searched: CentreCrop | None = None,
) -> Dataset:
    """Load the images that the options describe, as the model takes them.

    `like` is the data set that they are used with: they get its size and its classes. `searched`
    is how the search of a policy prepared its images.
    """
    wanted = Preparation(
        pixels(size),
        crop,
        channels=channels,
        skip_bad=skip_bad,
        full_size=full_size,
        cache=None if cache is None else Path(cache).expanduser(),
        overflow=overflow,
        log=say,
    )
    if model is not None:
        wanted = wanted.for_model(model)
    wanted = wanted.as_searched(searched)
    outputs = None if model is None else model.classes
    with reading_bars() as progress:
        dataset = as_dataset(
            spec,
            classes=classes,
            groups=group,
            preparation=replace(wanted, progress=progress),
            like=like,
            outputs=outputs,
        )
    known = dataset.identities[dataset.identities != 0]
    copies = len(known) - len(np.unique(known))
    if copies:
        some = count(copies, "image is a copy", "images are copies")
        say(f"{dataset.name}: {some} of others: an image and its copies count as one")
    return dataset


def images_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the recorded options that say how images are read."""
    return {name: given[name] for name in OF_IMAGES if name in given}


def recorded(images: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the images as a run's record keeps them."""
    return {name: str(v) if isinstance(v, Path) else v for name, v in images.items()}


def bytes_of(memory: str | None) -> int | None:
    """Read `--memory`."""
    return None if memory is None else parse_size(memory, "--memory")


def reading_bars() -> AbstractContextManager[StageProgress]:
    """Show a bar for each stage of reading files, and none where no files are read."""
    return stage_bars(lambda stage: (stage, "files"))


def whole_numbers(text: str, option: str, example: str) -> tuple[int, ...]:
    """Read `1,5,10,20`."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise RelookError(f"{option}: expected whole numbers {example}; got {text!r}") from None


def names(text: str | None) -> tuple[str, ...]:
    """Read `cutout,invert`."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def origin(**options: Any) -> dict[str, Any]:
    """Return the options that say where model and data came from, for the run's record."""
    return {name: value for name, value in options.items() if value is not None}
