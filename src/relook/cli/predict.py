"""`relook predict`: classes, probabilities and uncertainty of images without labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from relook.cli import full_size as images_kept
from relook.cli import groups, options, sources
from relook.cli.console import print_json, progress_bar, resumable, say
from relook.cli.of_run import model_of, names_of, of_run, shape_of, size_of, temperature_of
from relook.data import Preparation
from relook.deploy.batch.files import writer_for
from relook.deploy.batch.image_source import ImageSource, file_source, open_source
from relook.deploy.batch.prediction import Predicted, predict_source
from relook.deploy.tta import TTA
from relook.errors import RelookError
from relook.io.files import one_line
from relook.models import Predictor
from relook.policy_search.run_record import RunRecord, load_run

_SHOWN = 20


@groups.spelled_out
def predict_command(
    *,
    policy: Annotated[
        Path,
        typer.Option(
            "--policy",
            "-p",
            help="A policy file, or the directory of a search: its policy, model and classes.",
            show_default=False,
        ),
    ],
    data: Annotated[
        str,
        typer.Option(
            "--data",
            "-d",
            help="Images: folder:DIR (at any depth, labels are left alone), files:LIST (a path a "
            "line), an image file, or a data set (npz:FILE, csv:FILE …).",
            show_default=False,
            rich_help_panel=sources.PANEL,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="A .csv, .json or .parquet file to write.", show_default=False
        ),
    ],
    model: sources.SearchedModelOption = None,
    views: sources.ViewsOption = None,
    top: Annotated[int, typer.Option(help="Likeliest classes to write.", min=1)] = 5,
    temperature: sources.TemperatureOption = "policy",
    early_exit: Annotated[
        Path | None,
        typer.Option(
            help="A rule of  relook early-exit  for this policy: each image gets as many views as "
            "it needs, with the rule's own temperatures.",
            show_default=False,
        ),
    ] = None,
    draws: Annotated[
        str, typer.Option(help="fixed (a fresh policy is frozen by its seed) or fresh.")
    ] = "fixed",
    force: sources.ForceOption = False,
    size: options.SizeOption = None,
    crop: options.CropOption = None,
    channels: options.ChannelsOption = None,
    skip_bad: options.SkipBadOption = False,
    classes: options.ClassesOption = None,
    full_size: images_kept.FullSizeOption = "auto",
    network: groups.NetworkOptions,
    device: options.DeviceOption = "cpu",
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Predict images without labels with a policy: top classes, entropy, views' disagreement.

    An interrupted run goes on when the same command is given again.
    """
    writer_for(out)
    if out.exists() and not force:
        raise RelookError(f"{out} exists: give another --out, or --force to overwrite it")
    record = load_run(policy) if policy.is_dir() else None
    given = options.origin(
        model=model or None,
        size=size,
        crop=crop,
        channels=channels,
        classes=classes,
        **network.given(),
    )
    given = {**of_run(record), **given}
    predictor = model_of(given, device)
    file = policy / "policy.json" if record is not None else policy
    tta = TTA(
        predictor,
        file,
        views=views,
        temperature=temperature_of(temperature),
        draws=draws,  # type: ignore[arg-type]  # checked by TTA
        size=size_of(given, record),
        classes=names_of(given, record, predictor),
        max_batch=batch,
        early_exit=early_exit,
    )
    full = images_kept.kept_as_searched(full_size, file_source(data), file, [tta.policy])
    source = _source(data, given, predictor, record, skip_bad, full)
    most = "" if early_exit is None else "at most "
    say(f"{len(source.names):,} images of {source.prepared}, {most}{tta.views} views each")
    with (
        resumable("Run the same command again to go on.", timeout),
        progress_bar("predicting", "images") as bar,
    ):
        done = predict_source(
            tta,
            source,
            out,
            model=predictor.fingerprint,
            top=top,
            skip_bad=skip_bad,
            force=force,
            progress=bar,
        )
    _print(done, as_json)


def _source(
    data: str,
    given: Mapping[str, Any],
    predictor: Predictor,
    record: RunRecord | None,
    skip_bad: bool,
    full_size: bool,
) -> ImageSource:
    wanted = Preparation(
        options.pixels(given.get("size")),
        given.get("crop"),
        channels=given.get("channels"),
        skip_bad=skip_bad,
        full_size=full_size,
        tell=say,
    ).for_model(predictor)
    shape = shape_of(record)
    if shape is not None:
        wanted = replace(
            wanted, size=wanted.size or shape[1:], channels=wanted.channels or shape[0]
        )
    with options.reading_bars() as progress:
        return open_source(data, replace(wanted, progress=progress))


def _print(done: Predicted, as_json: bool) -> None:
    for name, reason in done.faults[:_SHOWN]:
        say(f"skipped: {one_line(name)}: {reason}")
    if len(done.faults) > _SHOWN:
        say(f"… and {len(done.faults) - _SHOWN:,} more")
    if done.faults_file is not None:
        say(f"{len(done.faults):,} files could not be read: listed in {done.faults_file}")
    if as_json:
        bad = [{"file": name, "reason": reason} for name, reason in done.faults]
        print_json({"out": str(done.out), "images": done.images, "bad": bad})
        return
    say(f"{done.images:,} predictions written to {done.out}")
