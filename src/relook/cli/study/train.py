"""`relook study train`: a network from scratch, with or without the paper's RandAugment."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from relook.api.progress_bars import bars_in_turn
from relook.cli.shared import loading, options
from relook.cli.shared.console import console, print_json, resumable, say
from relook.cli.shared.option_groups import expand_options, option
from relook.data import Dataset
from relook.errors import RelookError
from relook.foundation.wording import count
from relook.report.metrics import metric_of
from relook.report.tables import new_table
from relook.studies.training.models import (
    METRICS,
    VALIDATION,
    Progress,
    TrainedModel,
    TrainingPlan,
    train_models,
    validation_spec,
)
from relook.studies.training.networks import FORM, TrainableNetwork, get_network
from relook.studies.training.randaugment import LENGTH, MAGNITUDE
from relook.studies.training.train import AUGMENTS, SECONDS

_training_option: Callable[..., Any] = partial(option, panel="How to train")


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The settings of a `TrainingPlan`."""

    network: str = option(f"The network to train: {FORM}.", "--network", "-n", default=...)
    epochs: int = option("Passes over the images; the paper makes 2,000.", default=..., min=1)
    augment: str = option(
        f"{', '.join(AUGMENTS)}: the paper's RandAugment, only the recipe's crops and flips "
        "(vanilla), or no augmentation.",
        default=AUGMENTS[0],
    )
    recipe: str = option(
        "Recipe of transforms, crop and flip: cifar, imagenet, small, or your own TOML file.",
        default="cifar",
    )
    exclude: options.ExcludeOption = None
    seeds: str = option(
        "One network is trained per seed: 0,1,2 trains three, for an ensemble.", default="0"
    )
    validation: str | None = option(
        "Hold out a number (5000) or share (0.1) of the images for the search, stratified by "
        f"class; they are written to {VALIDATION}."
    )
    retrain: bool = option(
        "With --validation: also train networks on all images.", "--all", default=False
    )
    split_seed: int = option(
        "Seed of the split for --validation, the same for all --seeds.", default=0, min=0
    )
    batch: int = _training_option("Images per step.", default=128, min=1)
    learning_rate: float = _training_option(
        "The initial learning rate; it is halved twelve times.", default=0.1
    )
    weight_decay: float | None = _training_option(
        "Weight decay.", shown="the paper's for the network, or its authors'"
    )
    length: int = _training_option("Transforms per image (RandAugment's N).", default=LENGTH)
    magnitude: float = _training_option(
        "Their largest magnitude (RandAugment's M).", default=MAGNITUDE
    )

    def plan(self) -> TrainingPlan:
        """Return the plan, with the options parsed."""
        if self.retrain and self.validation is None:
            raise RelookError("--all goes with --validation; without it all images are used anyway")
        parsed = {
            "exclude": loading.read_names(self.exclude),
            "seeds": loading.whole_numbers(self.seeds, "--seeds", "like 0,1,2"),
            "validation": _validation(self.validation),
        }
        return TrainingPlan(**{**vars(self), **parsed})


@expand_options
def train_command(
    *,
    training: PlanOptions,
    data: options.DataOption,
    test: str | None = options.model_option("Labelled images to score the networks on."),
    out: Path = option(
        "Directory for the weights; rerun the same command to resume.", default=Path("runs/train")
    ),
    threads: int | None = options.speed_option(
        "Threads for the network; the exact weights depend on it.",
        min=1,
        shown="PyTorch's default",
    ),
    keep_every: float = options.speed_option(
        "Least number of seconds between checkpoints, which are made after an epoch.",
        default=SECONDS,
        min=0,
    ),
    group: options.GroupOption = None,
    shape: options.ImageOptions,
    skip_bad: options.SkipBadOption = False,
    device: options.DeviceOption = "cpu",
    as_json: options.JsonOption = False,
) -> None:
    """Train a network with or without the paper's RandAugment; resumable."""
    plan = training.plan()
    network = get_network(plan.network)
    images: dict[str, Any] = {
        "size": shape.size or (str(network.side) if network.side else None),
        "crop": shape.crop or (1.0 if network.side else None),
        "channels": shape.channels or network.channels,
        "skip_bad": skip_bad,
        "classes": shape.classes,
    }
    dataset = loading.read_data(data, group, **images)
    test_set = None if test is None else loading.read_data(test, like=dataset, **images)
    _announce(dataset, plan, network)
    with (
        resumable(
            "Run the same command again to resume from there.",
            kept="all up to the last checkpoint is kept",
        ),
        _bars(plan) as progress,
    ):
        models = train_models(
            dataset,
            plan,
            out,
            test=test_set,
            device=device,
            threads=threads,
            seconds=keep_every,
            progress=progress,
        )
    _print(models, plan, out, as_json)


def _announce(dataset: Dataset, plan: TrainingPlan, network: TrainableNetwork) -> None:
    shape = "×".join(map(str, dataset.images.shape[1:]))
    decay = network.weight_decay if plan.weight_decay is None else plan.weight_decay
    say(
        f"training {network.name} on {len(dataset):,} images ({shape}, {len(dataset.classes)} "
        f"classes): {count(plan.epochs, 'epoch')}, {plan.augment}, batches of {plan.batch}, "
        f"weight decay {decay:g}"
    )


@contextmanager
def _bars(plan: TrainingPlan) -> Iterator[Progress]:
    """Show a bar for each network: images per second, time left, epoch and smoothed loss."""
    with bars_in_turn() as bar:
        losses: dict[Path, float] = {}

        def update(model: TrainedModel, done: int, total: int, loss: float) -> None:
            before = losses.get(model.path, loss)
            losses[model.path] = before + 0.05 * (loss - before)
            epoch = -(-done // model.images)
            note = f"epoch {epoch:,} of {plan.epochs:,}, loss {losses[model.path]:.3f}"
            bar(model.path, f"seed {model.seed}, {model.images:,} images")(done, total, note=note)

        yield update


def _validation(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0 or (value >= 1 and value != int(value)):
        raise RelookError(
            f"--validation: expected a number of images (5000) or a share (0.1), got {text!r}"
        )
    return value


def _print(models: tuple[TrainedModel, ...], plan: TrainingPlan, out: Path, as_json: bool) -> None:
    validation = validation_spec(out) if plan.validation is not None else None
    if as_json:
        content = {"validation": validation, "models": [model.to_json() for model in models]}
        print_json({"out": str(out), **content})
        return
    console.print(_table(models))
    if validation is not None:
        searched = " ".join(f"--model {shlex.quote(m.spec)}" for m in models if m.part == "split")
        say(f"search a policy:  relook search {searched} --data {shlex.quote(validation)}")
    say(f"written to {out}: " + ", ".join(model.path.name for model in models))


def _table(models: tuple[TrainedModel, ...]) -> Table:
    table = new_table("trained networks, scored on plain images")
    table.add_column("model", no_wrap=True)
    for name in ("images", "loss"):
        table.add_column(name, justify="right")
    parts = [p for p in ("validation", "test") if any(getattr(m, p) is not None for m in models)]
    for part in parts:
        for name in METRICS:
            table.add_column(f"{part}\n{metric_of(name).head}", justify="right", no_wrap=True)
    for model in models:
        cells = [model.path.name, f"{model.images:,}", f"{model.losses[-1]:.3f}"]
        for part in parts:
            scores = getattr(model, part)
            for name in METRICS:
                cells.append("" if scores is None else metric_of(name).number(scores[name]))
        table.add_row(*map(Text, cells))
    return table
