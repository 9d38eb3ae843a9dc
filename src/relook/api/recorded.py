"""Models and images as described in a run's record, with the command line's options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relook.data import Dataset, Preparation, as_dataset
from relook.data.specs import DATA_SOURCES
from relook.errors import RelookError, unknown_name
from relook.models import Predictor, as_predictor

FULL_SIZE = ("auto", "yes", "no")
OF_IMAGES = ("size", "crop", "channels", "classes", "skip_bad", "full_size", "cache")
"""The recorded options for reading images."""

OF_MODEL = ("mean", "std", "outputs", "size", "crop", "pretrained")


def recorded_model(origin: Mapping[str, Any], run: Path, more: Mapping[str, Any]) -> Predictor:
    """Load the model that a run was searched with; `more` keywords override the recorded ones."""
    if "model" not in origin:
        raise RelookError(
            f"{run} was searched with a model in memory: give it, as relook.load(run, model)"
        )
    given = {name: origin[name] for name in OF_MODEL if name in origin}
    for name in ("mean", "std"):
        if name in given:
            given[name] = numbers(given[name], name)
    if "size" in given:
        given["size"] = pixels(given["size"])
    return as_predictor(origin["model"], **{**given, **more})


def recorded_images(
    origin: Mapping[str, Any], run: Path, predictor: Predictor
) -> tuple[Dataset, Dataset | None]:
    """Read the images that a run was searched on, and those of its separate test."""
    if "data" not in origin:
        raise RelookError(
            f"{run} was searched on images in memory: give them, as relook.load(run, model, "
            "images, labels)"
        )
    how: dict[str, Any] = {
        "preparation": preparation(origin, overflow=next_to(run)).for_model(predictor),
        "classes": origin.get("classes"),
        "outputs": predictor.classes,
    }
    dataset = as_dataset(origin["data"], groups=origin.get("group"), **how)
    test = origin.get("test")
    return dataset, None if test is None else as_dataset(test, like=dataset, **how)


def preparation(given: Mapping[str, Any], **more: Any) -> Preparation:
    """Return the preparation given by options or their record; `more` is not recorded."""
    cache = given.get("cache")
    return Preparation(
        pixels(given.get("size")),
        given.get("crop"),
        channels=given.get("channels"),
        skip_bad=bool(given.get("skip_bad")),
        full_size=bool(given.get("full_size")),
        cache=None if cache is None else Path(cache).expanduser(),
        **more,
    )


def as_recorded(**given: Any) -> dict[str, Any]:
    """Return options of a model and images as kept in a run's record, as texts."""
    size = given.get("size")
    if isinstance(size, Sequence) and not isinstance(size, str):
        given["size"] = "x".join(map(str, size))
    elif size is not None:
        given["size"] = str(size)
    for name in ("mean", "std"):
        values = given.get(name)
        if values is not None and not isinstance(values, str):
            listed = values if isinstance(values, Sequence) else [values]
            given[name] = ",".join(repr(float(value)) for value in listed)
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if value is not None and value is not False
    }


def keeps_full_size(asked: str, spec: str, crops: bool) -> bool:
    """Return whether the files of `spec` are kept at full size; `crops`: views start with crops."""
    check_full_size(asked)
    source = DATA_SOURCES.get(spec.partition(":")[0])
    from_files = source is not None and source.prepares
    if asked == "yes" and not from_files:
        known = ", ".join(f"{name}:" for name, row in DATA_SOURCES.items() if row.prepares)
        raise RelookError(f"--full-size yes: expected image files ({known}), got {spec!r}")
    return from_files and (asked == "yes" or (asked == "auto" and crops))


def check_full_size(asked: str) -> None:
    """Raise unless this is a value of `--full-size`."""
    if asked not in FULL_SIZE:
        raise unknown_name("answer to --full-size", asked, FULL_SIZE)


def next_to(run: Path) -> Path:
    """Return where images are kept that do not fit into memory."""
    return run.with_name(f"{run.name}.images")


def pixels(text: str | None) -> tuple[int, int] | None:
    """Read `224` or `192x256` (height × width)."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9]{1,5})\s*(?:[x×]\s*([0-9]{1,5})\s*)?", text)
    if found is None:
        raise RelookError(
            f"--size: expected pixels like 224 or 192x256 (height × width), got {text!r}"
        )
    return int(found[1]), int(found[2] or found[1])


def numbers(text: str | None, option: str) -> float | tuple[float, ...] | None:
    """Read `0.5` or `0.49,0.48,0.45`."""
    if text is None:
        return None
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise RelookError(
            f"{option}: expected a number, or one per channel like 0.49,0.48,0.45; got {text!r}"
        ) from None
    return values[0] if len(values) == 1 else values
