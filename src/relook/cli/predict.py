"""`relook predict`: classes, probabilities and uncertainty of images without labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from relook.api.recorded import as_recorded
from relook.cli.shared import loading, options, sources
from relook.cli.shared.console import print_json, progress_bar, resumable, say
from relook.cli.shared.option_groups import expand_options, option
from relook.deploy.batch.image_source import file_source
from relook.deploy.batch.prediction import Predicted, predict_source, writer_for
from relook.deploy.tta import TTA
from relook.foundation.wording import count, views_text
from relook.io.files import one_line
from relook.policy import Policy

_SHOWN = 20


@expand_options
def predict_command(
    *,
    source: sources.RunOrPolicy,
    data: str = options.model_option(
        "Images: folder:DIR (at any depth), files:LIST (one path per line), an image file, or a "
        "data set (npz:FILE, csv:FILE …), whose labels are ignored.",
        "--data",
        "-d",
        default=...,
    ),
    out: Path = option("The .csv, .json or .parquet file to write.", "--out", "-o", default=...),
    model: options.SearchedModelOption = None,
    method: options.MethodOption = None,
    views: options.ViewsOption = None,
    top: int = option("How many of the most likely classes to write.", default=5, min=1),
    temperature: options.TemperatureOption = "policy",
    early_exit: Path | None = option(
        "A rule from  relook early-exit  for this policy: each image gets as many views as it "
        "needs, with the rule's own temperatures."
    ),
    draws: str = option(
        "fixed (a policy of fresh draws is frozen by its seed) or fresh.", default="fixed"
    ),
    force: options.ForceOption = False,
    images: options.ImageOptions,
    skip_bad: options.SkipBadOption = False,
    full_size: options.FullSizeOption = "auto",
    network: options.NetworkOptions,
    device: options.DeviceOption = "auto",
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Predict unlabelled images with a policy: top classes, entropy, disagreement of views.

    Rerun the same command to resume an interrupted run.
    """
    writer_for(out)  # raises if the ending of the file is unknown
    sources.refuse_to_overwrite(out, force)
    policy = source.policy
    given = as_recorded(model=model or None, **images.given(), **network.given())
    method = "policy" if method is None and early_exit is not None else method
    chosen = sources.choose_deployed(source, given, method, views)
    calibrated_by = sources.read_temperature(temperature, chosen.temperature)
    known = sources.ModelOfRun.load(source.search_record(model), given, device)
    tta = TTA(
        known.predictor,
        _for_files(known.checked(chosen.policy, calibrated_by)),
        temperature=calibrated_by,
        draws=draws,  # type: ignore[arg-type]  # checked by TTA
        size=known.size,
        classes=known.class_names,
        max_batch=batch,
        early_exit=early_exit,
    )
    full = loading.reads_full_size(full_size, file_source(data), policy, [tta.policy])
    images_source = known.images(data, tta.policy.preparation, skip_bad, full)
    each = ("" if early_exit is None else "at most ") + views_text(tta.views)
    say(f"{count(len(images_source.names), 'image')} of {images_source.prepared}, {each} each")
    with resumable(timeout=timeout), progress_bar("predicting", "images") as bar:
        predicted = predict_source(
            tta,
            images_source,
            out,
            model=known.predictor.fingerprint,
            top=top,
            skip_bad=skip_bad,
            force=force,
            progress=bar,
        )
    _print(predicted, as_json)


def _for_files(policy: Policy) -> Policy:
    """Return the policy without full-size cropping, which reading the files takes care of."""
    preparation = policy.preparation
    if preparation is None:
        return policy
    return replace(policy, preparation=replace(preparation, full_size=False))


def _print(predicted: Predicted, as_json: bool) -> None:
    faults = predicted.faults
    for name, reason in faults[:_SHOWN]:
        say(f"skipped: {one_line(name)}: {reason}")
    if len(faults) > _SHOWN:
        say(f"… and {len(faults) - _SHOWN:,} more")
    if predicted.faults_file is not None:
        say(f"{count(len(faults), 'file')} could not be read: listed in {predicted.faults_file}")
    if as_json:
        bad = [{"file": name, "reason": reason} for name, reason in faults]
        print_json({"out": str(predicted.out), "images": predicted.images, "bad": bad})
        return
    say(f"{predicted.images:,} predictions written to {predicted.out}")
