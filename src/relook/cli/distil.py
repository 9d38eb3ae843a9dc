"""`relook distil`: part of the policy's gain for a single pass, learned without labels."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from relook.api.progress_bars import search_bars
from relook.cli.shared import loading, options
from relook.cli.shared.console import (
    print_json,
    print_table,
    print_text,
    print_verdict,
    resumable,
    say,
)
from relook.cli.shared.inputs import PolicyInputs, PolicySource
from relook.cli.shared.option_groups import expand_options, option
from relook.data import Dataset, Preparation
from relook.deploy.batch.image_source import file_source, read_unlabelled
from relook.deploy.distil.distil import (
    DISTIL,
    WEIGHTS,
    Distilled,
    distil_policy,
    few_images_note,
    new_spec,
)
from relook.deploy.distil.student import Training, trainable
from relook.foundation.wording import count, duration, views_text
from relook.predictions.passes import View, estimate
from relook.report.deployed_tables import distil_table

_DEFAULT = Training()
_EXPORT_OPTIONS = ("mean", "std", "outputs", "size", "crop", "channels", "classes")
_PASSES_PER_STEP = 3  # a training step takes about as long as this many passes


@dataclass(frozen=True, kw_only=True)
class DistilSource(PolicySource):
    """Options of the images that the new weights are compared on, here `--test`."""

    data_flag: ClassVar[str] = "--test"
    data: str | None = options.data_option(
        "Labelled images that neither the search nor this training has used.",
        "--test",
        shown="the search's held-out ones",
    )


@expand_options
def distil_command(
    *,
    scored: DistilSource,
    images: str = options.data_option(
        "Images to learn from: folder:DIR (at any depth), files:LIST, npz:FILE …; labels are "
        "ignored.",
        "--images",
        "--data",
        "-d",
        default=...,
    ),
    out: Path = option(
        "The output directory; rerun the same command to resume.",
        "--out",
        "-o",
        default=Path("runs/distilled"),
    ),
    epochs: int = option("Passes over the images.", default=_DEFAULT.epochs, min=1),
    learning_rate: float = options.details_option(
        "Adam's initial learning rate, with cosine decay to 0.", default=_DEFAULT.learning_rate
    ),
    seed: options.SeedOption = 0,
    batch: options.BatchOption = None,
    dry_run: options.DryRunOption = False,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Distil a policy into the network: part of the gain for the cost of a single pass.

    The network is fine-tuned on unlabelled images to predict what the policy's views predict
    together. Labelled images that neither the search nor this training has used, by default the
    search's held-out ones, show the gain. Unless it is clear, no weights are written.
    """
    training = Training(epochs=epochs, learning_rate=learning_rate, seed=seed)
    inputs = scored.read()
    trainable(inputs.predictor)
    inputs.note_balance()
    dataset = _images(images, scored, inputs)
    say(
        f"{count(len(dataset), 'image')} without labels, {views_text(inputs.policies[0].views)} "
        f"each; the gain is measured on {len(inputs.dataset):,} labelled ones"
    )
    few = few_images_note(len(dataset))
    if few is not None:
        say(f"note: {few}")
    if dry_run:
        _print_cost(inputs, dataset, training, as_json)
        return
    with resumable(timeout=timeout), search_bars() as progress:
        found = distil_policy(
            inputs.predictor,
            dataset,
            inputs.policies[0],
            inputs.dataset,
            out=out,
            training=training,
            engine=scored.engine(out),
            batch=batch,
            progress=progress,
            record={**inputs.record, "images": {"spec": images}},
        )
    _print(found, out, _export_command(scored, inputs, found, out), as_json)


def _images(spec: str, scored: PolicySource, inputs: PolicyInputs) -> Dataset:
    """Read the unlabelled images, prepared like the images of the search."""
    policies, reading = inputs.policies, scored.reading
    channels, height, width = inputs.dataset.images.shape[1:]
    preparation = Preparation(
        (height, width),
        reading.crop,
        channels=channels,
        skip_bad=reading.skip_bad,
        full_size=loading.reads_full_size(
            reading.full_size, file_source(spec), scored.source.policy, policies
        ),
        log=say,
    )
    preparation = preparation.for_model(inputs.predictor).as_searched(policies[0].preparation)
    return read_unlabelled(spec, preparation)


def _print_cost(inputs: PolicyInputs, dataset: Dataset, training: Training, as_json: bool) -> None:
    policy = inputs.policies[0]
    views = [View(sub, index) for index, sub in enumerate(policy)]
    passes = (policy.views + 1) * (len(dataset) + 2 * len(inputs.dataset))
    steps = training.epochs * len(dataset)
    seconds_per_pass = estimate(inputs.predictor, dataset.images, views, seed=policy.seed)
    seconds = seconds_per_pass * (passes + _PASSES_PER_STEP * steps)
    if as_json:
        print_json({"model_passes": passes, "images_taught": steps, "estimated_seconds": seconds})
        return
    print_text(
        f"{passes:,} model passes and {steps:,} training images: about {duration(seconds)} with "
        "torch; nothing was written"
    )


def _export_command(
    scored: PolicySource, inputs: PolicyInputs, found: Distilled, out: Path
) -> str | None:
    """Return the command that exports the new weights; None if it could not load any."""
    spec = new_spec(str(inputs.record["model"]["spec"]), out) if found.record.written else None
    if spec is None:
        return None
    record = scored.source.search_record(scored.model)
    origin: Mapping[str, Any] = {} if record is None else record.origin
    channels, height, width = inputs.dataset.images.shape[1:]
    shape = {"size": f"{height}x{width}", "channels": channels}
    given = {**shape, **origin, **scored.network.given(), **scored.reading.given()}
    more = [
        word for name in _EXPORT_OPTIONS if name in given for word in (f"--{name}", given[name])
    ]
    words = ["relook", "export", str(out / "policy.json"), "--model", spec]
    return shlex.join([*words, *map(str, more), "--out", str(out / "model.onnx")])


def _print(found: Distilled, out: Path, export_command: str | None, as_json: bool) -> None:
    record = found.record
    if as_json:
        print_json({"out": str(out), "deploy": export_command, **DISTIL.to_json(record)})
        return
    if record.left_out:
        say(f"{count(record.left_out, 'image')} left out: the gain is measured on them")
    if record.verdict is not None:
        print_table(distil_table(record.verdict))
    print_verdict(record.sentence)
    if not record.written:
        say(f"no weights were written; {out} has the record")
        return
    say(f"written to {out}: {WEIGHTS}, policy.json (its temperature), distil.json")
    if export_command is not None:
        say(f"to deploy it:  {export_command}")
