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
        "Images: folder:DIR (at any depth, labels are left alone), files:LIST (one path per "
        "line), an image file, or a data set (npz:FILE, csv:FILE …).",
        "--data",
        "-d",
        default=...,
    ),
    out: Path = option("A .csv, .json or .parquet file to write.", "--out", "-o", default=...),
    model: options.SearchedModelOption = None,
    method: options.MethodOption = None,
    views: options.ViewsOption = None,
    top: int = option("Likeliest classes to write.", default=5, min=1),
    temperature: options.TemperatureOption = "policy",
    early_exit: Path | None = option(
        "A rule of  relook early-exit  for this policy: each image gets as many views as it "
        "needs, with the rule's own temperatures."
    ),
    draws: str = option("fixed (a fresh policy is frozen by its seed) or fresh.", default="fixed"),
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
    """Predict images without labels with a policy: top classes, entropy, views' disagreement.

    An interrupted run goes on when the same command is given again.
    """
    writer_for(out)
    sources.refuse_to_overwrite(out, force)
    policy = source.policy
    given = as_recorded(model=model or None, **images.given(), **network.given())
    method = "policy" if method is None and early_exit is not None else method
    chosen = sources.choose_deployed(source, given, method, views)
    calibrated_by = sources.read_temperature(temperature, chosen.temperature)
    known = sources.ModelOfRun.load(source.search_record(model), given, device)
    tta = TTA(
        known.predictor,
        _of_files(known.checked(chosen.policy, calibrated_by)),
        temperature=calibrated_by,
        draws=draws,  # type: ignore[arg-type]  # checked by TTA
        size=known.size,
        classes=known.class_names,
        max_batch=batch,
        early_exit=early_exit,
    )
    full = loading.keeps_full_size_as_searched(full_size, file_source(data), policy, [tta.policy])
    found = known.images(data, tta.policy.preparation, skip_bad, full)
    each = ("" if early_exit is None else "at most ") + views_text(tta.views)
    say(f"{count(len(found.names), 'image')} of {found.prepared}, {each} each")
    with resumable(timeout=timeout), progress_bar("predicting", "images") as bar:
        done = predict_source(
            tta,
            found,
            out,
            model=known.predictor.fingerprint,
            top=top,
            skip_bad=skip_bad,
            force=force,
            progress=bar,
        )
    _print(done, as_json)


def _of_files(policy: Policy) -> Policy:
    """Return a policy for images that come from files: what they are cut from was decided there."""
    searched = policy.preparation
    read = None if searched is None else replace(searched, full_size=False)
    return replace(policy, preparation=read)


def _print(done: Predicted, as_json: bool) -> None:
    for name, reason in done.faults[:_SHOWN]:
        say(f"skipped: {one_line(name)}: {reason}")
    if len(done.faults) > _SHOWN:
        say(f"… and {len(done.faults) - _SHOWN:,} more")
    if done.faults_file is not None:
        say(f"{count(len(done.faults), 'file')} could not be read: listed in {done.faults_file}")
    if as_json:
        bad = [{"file": name, "reason": reason} for name, reason in done.faults]
        print_json({"out": str(done.out), "images": done.images, "bad": bad})
        return
    say(f"{done.images:,} predictions written to {done.out}")
