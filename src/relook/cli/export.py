"""`relook export`: a model with its policy as one file."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relook.api.recorded import as_recorded, pixels
from relook.cli.shared import loading, options, sources
from relook.cli.shared.console import print_json, resumable, say
from relook.cli.shared.option_groups import expand_options, option
from relook.cli.shared.options import LatencyOptions, keep_latency
from relook.data.base import names_of
from relook.data.specs import DATA_SOURCES
from relook.deploy.export import export
from relook.deploy.latency import fit_latency
from relook.errors import RelookError
from relook.policy import Policy
from relook.predictions.passes import Images
from relook.transforms.centre_crop import CentreCrop

_IMAGES = 16


@dataclass(frozen=True)
class FileOptions:
    """The inputs and outputs of the file."""

    seed: int | None = options.details_option(
        "Seed to freeze a policy of fresh draws with.", min=0, shown="the policy's own"
    )
    output: str = option(
        "What the file returns: probabilities, log_probs or logits.", default="probabilities"
    )
    layout: str = option("The images' layout: nchw or nhwc.", default="nchw")
    resize_from: str | None = options.details_option(
        "Size of the images that the file takes, such as 256x320 (height × width), if it is not "
        "the network's: the file resizes and crops them as relook reads images.",
        shown="the network's own size",
    )
    full_size: str = options.model_option(
        "Take photos of any size and cut views from them: yes, no, or auto (as in the search).",
        default="auto",
    )
    format: str = option("onnx, or torch-export (a .pt2 archive).", default="onnx")

    def takes_photos(self, source: Path, policy: Policy) -> bool:
        """Return whether the file cuts its views from photos; print a note if it cannot."""
        full = loading.takes_photos(self.full_size, source, policy)
        fixed_size = self.resize_from is not None or self.format != "onnx"
        if full and fixed_size and self.full_size == "auto":
            say(
                "the search cut its views from full-size photos; this file cuts them from its input"
            )
            return False
        return full


@expand_options
def export_command(
    *,
    source: sources.RunOrPolicy,
    out: Path = option("The file to write: model.onnx.", "--out", "-o", default=...),
    model: options.SearchedModelOption = None,
    data: str | None = options.model_option(
        f"Images to verify the file on ({_IMAGES} of them): folder:DIR, npz:FILE …; the names of "
        "their classes go into the file.",
        "--data",
        "-d",
        shown="those of the search, if they can be read, or generated ones",
    ),
    method: options.MethodOption = None,
    views: options.ViewsOption = None,
    speed: LatencyOptions,
    temperature: options.TemperatureOption = "policy",
    file: FileOptions,
    force: options.ForceOption = False,
    image: options.ImageOptions,
    network: options.NetworkOptions,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Export views, network, averaging and temperature as one ONNX file, and verify it."""
    sources.refuse_to_overwrite(out, force)
    limit = speed.limit()
    if limit is not None and views is not None:
        raise RelookError("expected --views or --latency, which finds it, got both: give one")
    record = source.search_record(model)
    given = as_recorded(model=model or None, **image.given(), **network.given())
    chosen = sources.choose_deployed(source, given, method, views, announce=limit is None)
    known = sources.ModelOfRun.load(record, given)
    full = file.takes_photos(source.policy, chosen.policy)
    images, names = _images(data, known, file.resize_from, full, chosen.policy.preparation)
    keywords: dict[str, Any] = {
        **vars(file),
        "size": known.size,
        "channels": known.channels,
        "resize_from": pixels(file.resize_from),
        "crop": given.get("crop"),
        "full_size": full,
        "classes": known.class_names or names,
        "images": images,
    }
    with resumable("Nothing was written.", timeout):
        fitting = None
        if limit is not None:
            say("measuring the file with several numbers of views …")
            judged = sources.load_judged(source, given)
            fitting = fit_latency(known.predictor, *judged, limit, method=method, **keywords)
            say(f"{fitting.latency.sentence} {fitting.latency.where}")
            if fitting.note:
                say(f"note: {fitting.note}")
            chosen = fitting.deployed
            keep_latency(source.directory, fitting.latency)
        calibrated_by = sources.read_temperature(temperature, chosen.temperature)
        policy = known.checked(chosen.policy, calibrated_by)
        exported = export(known.predictor, policy, out, temperature=calibrated_by, **keywords)
        exported = exported if fitting is None else fitting.verified(exported)
    if as_json:
        print_json({**asdict(exported), "path": str(exported.path)})
    else:
        for line in str(exported).splitlines():
            say(line)


def _images_of_search(
    known: sources.ModelOfRun, searched: CentreCrop | None, full_size: bool
) -> Images | None:
    """Return a few of the images searched on, if a few can be read without all others."""
    data = "" if known.record is None else str(known.record.origin.get("data", ""))
    prefix = data.partition(":")[0]
    row = DATA_SOURCES.get(prefix)
    if not data or (prefix != "folder" and (row is None or row.prepares)):
        return None
    try:
        found = known.images(data, searched, skip_bad=True, full_size=full_size)
    except RelookError as error:
        say(
            f"{data} cannot be read here: the file is verified on generated images (--data): "
            f"{error}"
        )
        return None
    few = range(min(_IMAGES, len(found.names)))
    with closing(found.read([few])) as blocks:
        images = next(blocks).images
    return images if len(images) else None


def _images(
    data: str | None,
    known: sources.ModelOfRun,
    resize_from: str | None,
    full_size: bool,
    searched: CentreCrop | None,
) -> tuple[Images | None, tuple[str, ...] | None]:
    """Return a few images as inputs of the file, and the names of their classes."""
    if data is None:
        if resize_from is not None:
            return None, None
        return _images_of_search(known, searched, full_size), None
    given = known.given
    dataset = loading.read_data(
        data,
        model=known.predictor,
        size=resize_from or given.get("size"),
        crop=1.0 if resize_from is not None else given.get("crop"),
        channels=known.channels,
        classes=given.get("classes"),
        full_size=full_size,
        searched=searched if full_size else None,
    )
    images = dataset.images if full_size else dataset.plain
    return images[:_IMAGES], names_of(dataset.classes, known.predictor.classes)
