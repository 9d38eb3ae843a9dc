"""`relook calibrate`: fit a policy's temperatures anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relook.cli import full_size as images_kept
from relook.cli import options
from relook.cli.console import console, print_json, progress_bar, resumable, say
from relook.errors import RelookError
from relook.policy import Policy
from relook.policy_calibration import calibrate_policy
from relook.policy_file import policy_to_json


def calibrate_command(
    model: options.ModelOption,
    policy: options.PolicyOption,
    data: options.DataOption,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the calibrated policy; beside the old one by default."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Give each class the same weight.")
    ] = False,
    size: options.SizeOption = None,
    crop: options.CropOption = None,
    channels: options.ChannelsOption = None,
    skip_bad: options.SkipBadOption = False,
    classes: options.ClassesOption = None,
    full_size: images_kept.FullSizeOption = "auto",
    cache: images_kept.CacheOption = None,
    mean: options.MeanOption = None,
    std: options.StdOption = None,
    outputs: options.OutputsOption = None,
    pretrained: options.PretrainedOption = False,
    device: options.DeviceOption = "cpu",
    batch: options.BatchOption = 256,
    as_json: options.JsonOption = False,
) -> None:
    """Fit a policy's temperatures on labelled images: other data, another model, a frozen policy.

    Use images that are not used to claim a gain.
    """
    found = Policy.load(policy)
    target = policy.with_suffix(".calibrated.json") if out is None else out
    if target.exists() and not force:
        raise RelookError(f"{target} exists: give another --out, or --force to overwrite it")
    predictor = options.read_model(
        model, mean, std, outputs, device, size=size, crop=crop, pretrained=pretrained
    )
    dataset = options.read_data(
        data,
        model=predictor,
        size=size,
        crop=crop,
        channels=channels,
        skip_bad=skip_bad,
        classes=classes,
        full_size=images_kept.keeps_full_size(
            full_size, data, images_kept.begins_with_crops([found])
        ),
        cache=cache,
    )
    with resumable("Nothing was written."), progress_bar("predicting", "views") as bar:
        calibrated = calibrate_policy(
            predictor, dataset, found, balanced=balanced, batch=batch, progress=bar
        )
    calibrated.save(target)
    if as_json:
        print_json({"out": str(target), "policy": policy_to_json(calibrated)})
        return
    temperatures = calibrated.temperatures or ()
    shown = sorted(
        {1, 2, 5, 10, 20, 50, 100, len(temperatures)} & set(range(len(temperatures) + 1))
    )
    for length in shown:
        console.print(f"first {length:>3}: temperature {temperatures[length - 1]:.4f}")
    say(f"written to {target}")
