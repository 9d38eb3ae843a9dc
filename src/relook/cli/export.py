"""`relook export`: a model with its policy as one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import Tensor

from relook.cli import groups, options, sources
from relook.cli.console import print_json, resumable, say
from relook.cli.of_run import model_of, names_of, of_run, shape_of, size_of, temperature_of
from relook.deploy.export import export
from relook.errors import RelookError
from relook.models import Predictor
from relook.policy_search.run_record import load_run

_IMAGES = 16


@groups.spelled_out
def export_command(
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
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The file to write: model.onnx.", show_default=False),
    ],
    model: sources.SearchedModelOption = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help=f"Images to check the file on ({_IMAGES} of them): folder:DIR, npz:FILE …; their "
            "classes' names go into the file.",
            show_default="generated images",
            rich_help_panel=sources.PANEL,
        ),
    ] = None,
    views: sources.ViewsOption = None,
    temperature: sources.TemperatureOption = "policy",
    seed: Annotated[
        int | None,
        typer.Option(
            help="Freezes a policy of fresh draws.", min=0, show_default="the policy's own"
        ),
    ] = None,
    output: Annotated[
        str, typer.Option(help="What the file returns: probabilities, log_probs or logits.")
    ] = "probabilities",
    layout: Annotated[str, typer.Option(help="The images' layout: nchw or nhwc.")] = "nchw",
    resize_from: Annotated[
        str | None,
        typer.Option(
            "--resize-from",
            help="Size of the images that the file takes, 256x320 (height × width), if it is not "
            "the network's: they are resized and cropped inside, as relook reads images.",
            show_default="the network's own size",
        ),
    ] = None,
    format: Annotated[
        str, typer.Option("--format", help="onnx, or torch-export (a .pt2 archive).")
    ] = "onnx",
    force: sources.ForceOption = False,
    size: options.SizeOption = None,
    crop: options.CropOption = None,
    channels: options.ChannelsOption = None,
    classes: options.ClassesOption = None,
    network: groups.NetworkOptions,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Write views, network, average and temperature as one ONNX file, checked on images."""
    if out.exists() and not force:
        raise RelookError(f"{out} exists: give another --out, or --force to overwrite it")
    record = load_run(policy) if policy.is_dir() else None
    given = {
        **of_run(record),
        **options.origin(
            model=model or None,
            size=size,
            crop=crop,
            channels=channels,
            classes=classes,
            **network.given(),
        ),
    }
    if record is not None and record.data.get("full_size"):
        say("the search cut its views from full-size images; the file cuts them from its input")
    shape = shape_of(record)
    if shape is not None:
        given.setdefault("channels", shape[0])
    predictor = model_of(given, "cpu")
    names = names_of(given, record, predictor)
    images, found = _images(data, given, predictor, resize_from)
    with resumable("Nothing was written.", timeout):
        done = export(
            predictor,
            policy / "policy.json" if record is not None else policy,
            out,
            views=views,
            temperature=temperature_of(temperature),
            seed=seed,
            output=output,
            layout=layout,
            format=format,
            size=size_of(given, record),
            channels=given.get("channels"),
            resize_from=options.pixels(resize_from),
            classes=names or found,
            images=images,
        )
    if as_json:
        print_json({**asdict(done), "path": str(done.path)})
        return
    say(str(done))


def _images(
    data: str | None,
    given: Mapping[str, Any],
    predictor: Predictor,
    resize_from: str | None,
) -> tuple[Tensor | None, tuple[str, ...] | None]:
    """Return a few images as the file takes them, and the names of their classes."""
    if data is None:
        return None, None
    dataset = options.read_data(
        data,
        model=predictor,
        size=resize_from or given.get("size"),
        crop=1.0 if resize_from is not None else given.get("crop"),
        channels=given.get("channels"),
        classes=given.get("classes"),
    )
    names = dataset.classes
    named = predictor.classes in (None, len(names)) and names != tuple(map(str, range(len(names))))
    return dataset.plain[:_IMAGES], names if named else None
