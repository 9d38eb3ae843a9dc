"""Training networks from several seeds, on a part of the images and then on all of them.

The paper's procedure for CIFAR: train on 45,000 images, search on the other 5,000, then train
again on all 50,000 and use the policy there (section 4).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from relook.data import Dataset
from relook.errors import RelookError, RunError
from relook.evaluation.cross_validation import cross_validated
from relook.io.files import read_json, write_bytes_atomic, write_json_atomic
from relook.io.run_directory import RunDirectory
from relook.models import load_model
from relook.numerics.splits import stratified_split
from relook.policy import SubPolicy
from relook.policy.recipes import get_recipe
from relook.predictions.passes import View, predict_views
from relook.studies.training.networks import TrainableNetwork, get_network
from relook.studies.training.randaugment import LENGTH, MAGNITUDE
from relook.studies.training.train import SECONDS, Training, run_training

FORMAT = "relook-training"
VERSION = 1
VALIDATION = "validation.npz"
"""The images held out from the training, to search a policy on."""

METRICS = ("accuracy", "log_likelihood", "cll")
"""The metrics of trained networks on plain images."""

Progress = Callable[["TrainedModel", int, int, float], None]
"""Called after each step with the model, the images done, their total, and the batch's loss."""


@dataclass(frozen=True)
class TrainingPlan:
    """The networks to train; `weight_decay` None means the paper's for the network.

    `validation` is the number of images (below 1: their share) to hold out from the training,
    stratified by class; the split depends only on `split_seed`, so it is the same for all seeds
    and networks. `retrain` also trains on all images.
    """

    network: str
    epochs: int
    seeds: tuple[int, ...] = (0,)
    augment: str = "randaugment"
    recipe: str = "cifar"
    exclude: tuple[str, ...] = ()
    length: int = LENGTH
    magnitude: float = MAGNITUDE
    learning_rate: float = 0.1
    weight_decay: float | None = None
    batch: int = 128
    validation: float | None = None
    split_seed: int = 0
    retrain: bool = False

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise RelookError(f"expected one or more seeds, each once, got {list(self.seeds)}")


@dataclass(frozen=True)
class TrainedModel:
    """One trained network; `part` is "split" or "all", the images that it was trained on.

    `losses` has the mean of each epoch. `validation` and `test` have accuracy, log-likelihood
    and cLL (cross-validated) on plain images, if there are such images.
    """

    path: Path
    spec: str
    part: str
    seed: int
    images: int
    losses: tuple[float, ...] = ()
    validation: Mapping[str, float] | None = None
    test: Mapping[str, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return {**asdict(self), "path": str(self.path)}


@dataclass(frozen=True)
class _Setup:
    """Everything that the trainings of one call share."""

    network: TrainableNetwork
    settings: Training
    validation: Dataset | None
    test: Dataset | None
    device: str
    threads: int | None
    seconds: float


def train_models(
    dataset: Dataset,
    plan: TrainingPlan,
    out: str | Path,
    *,
    test: Dataset | None = None,
    device: str = "cpu",
    threads: int | None = None,
    seconds: float = SECONDS,
    progress: Progress | None = None,
) -> tuple[TrainedModel, ...]:
    """Train the plan's networks into the directory `out`, except for those that are there already.

    Weights are `NAME-PART-SEED.safetensors`, loaded by `TrainedModel.spec`; next to each is a JSON
    file with its losses and metrics. Held-out images go to `validation.npz`. The state of a
    running training is saved every `seconds`; the same call resumes from it, with the same bytes
    on the same machine and number of threads.
    """
    network, where = get_network(plan.network), Path(out)
    network.check_images(tuple(dataset.images.shape[1:]), dataset.name)
    settings = _settings(plan, network)
    dataset = replace(dataset, images=dataset.plain)
    parts, held_out = _parts(dataset, plan)
    setup = _Setup(network, settings, held_out, test, device, threads, seconds)
    models = []
    with RunDirectory(where) as directory:
        # Later calls may add seeds and the training on all images; nothing else may change.
        fixed = {**asdict(settings), "network": plan.network, "data": dataset.fingerprint}
        del fixed["seed"]
        split = {"validation": plan.validation, "split_seed": plan.split_seed}
        directory.check_settings({**fixed, **split})
        if held_out is not None and not (where / VALIDATION).exists():
            write_bytes_atomic(where / VALIDATION, _npz(held_out))
        for part, images in parts.items():
            own = replace(setup, validation=held_out if part == "split" else None)
            for seed in plan.seeds:
                path = where / f"{network.name}-{part}-{seed}.safetensors"
                model = TrainedModel(path, network.spec(path), part, seed, len(images))
                models.append(_train_model(model, images, own, progress))
    return tuple(models)


def validation_spec(out: str | Path) -> str:
    """Return the data spec of the images that a training held out."""
    return f"npz:{Path(out) / VALIDATION}?layout=nchw"


def _settings(plan: TrainingPlan, network: TrainableNetwork) -> Training:
    same = ("epochs", "augment", "length", "magnitude", "learning_rate", "batch")
    return Training(
        recipe=get_recipe(plan.recipe).without(plan.exclude),
        weight_decay=network.weight_decay if plan.weight_decay is None else plan.weight_decay,
        mean=network.mean,
        std=network.std,
        **{name: getattr(plan, name) for name in same},
    )


def _parts(dataset: Dataset, plan: TrainingPlan) -> tuple[dict[str, Dataset], Dataset | None]:
    """Return the images to train on, by the name of the part, and those held out."""
    if plan.validation is None:
        return {"all": dataset}, None
    share = plan.validation if plan.validation < 1 else plan.validation / len(dataset)
    if not 0 < share < 1:
        raise RelookError(
            f"expected fewer images for validation than the {len(dataset):,} there are, "
            f"got {plan.validation:g}"
        )
    trained, held_out = stratified_split(dataset.labels, share, plan.split_seed, dataset.groups)
    parts = {"split": dataset.subset(trained)}
    if plan.retrain:
        parts["all"] = dataset
    validation = dataset.subset(held_out)
    return parts, replace(validation, columns={**validation.columns, "place": held_out})


def _npz(dataset: Dataset) -> bytes:
    arrays: dict[str, Any] = {
        "images": dataset.plain.numpy(),
        "labels": dataset.labels,
        "classes": np.array(dataset.classes),
        "place": dataset.columns["place"],
    }
    if dataset.groups is not None:
        arrays["groups"] = dataset.groups
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _train_model(
    model: TrainedModel, dataset: Dataset, setup: _Setup, progress: Progress | None
) -> TrainedModel:
    """Train one network, unless it has a record, which is written last."""
    record, state = model.path.with_suffix(".json"), model.path.with_suffix(".state")
    if record.exists() and model.path.exists():
        state.unlink(missing_ok=True)  # left if the process was killed after writing the record
        return replace(_read(model, record), test=_metrics(model, setup.test, setup.device))
    first = setup.network.build(dataset.images.shape[1], len(dataset.classes), model.seed)
    network, losses = run_training(
        first.to(setup.device),
        dataset,
        replace(setup.settings, seed=model.seed),
        checkpoint=state,
        seconds=setup.seconds,
        threads=setup.threads,
        steps=None if progress is None else partial(progress, model),
    )
    setup.network.save(network, model.path)
    done = replace(model, losses=losses, validation=_metrics(model, setup.validation, setup.device))
    fields = ("part", "seed", "images", "losses", "validation")  # no path: it may be moved
    content = {name: getattr(done, name) for name in fields}
    write_json_atomic(record, {"format": FORMAT, "version": VERSION, **content})
    state.unlink(missing_ok=True)
    return replace(done, test=_metrics(done, setup.test, setup.device))


def _metrics(model: TrainedModel, dataset: Dataset | None, device: str) -> dict[str, float] | None:
    """Return accuracy, log-likelihood and cLL of a trained model on plain images, if any."""
    if dataset is None:
        return None
    predictor = load_model(model.spec, device=device)
    log_probs = predict_views(predictor, dataset.images, [View(SubPolicy(), 0)], seed=0)[0]
    metrics = cross_validated(log_probs, dataset.labels, seed=0, groups=dataset.units).metrics
    return {name: metrics[name] for name in METRICS}


def _read(model: TrainedModel, record: Path) -> TrainedModel:
    content = read_json(record, what="the record of a training")
    try:
        known = cast(dict[str, Any], content)
        if (known["format"], known["version"]) != (FORMAT, VERSION):
            raise ValueError("another format")
        losses = tuple(float(loss) for loss in known["losses"])
        return replace(model, losses=losses, validation=known["validation"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunError(
            f"{record}: expected the record of a training ({error}): delete it to train again"
        ) from None
