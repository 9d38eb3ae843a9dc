"""What a command that uses a policy takes over from the search that found it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relook.cli import options
from relook.data.class_map import read_classes
from relook.deploy.tta.view_plan import TemperatureChoice
from relook.errors import RelookError
from relook.models import Predictor
from relook.policy_search.run_record import RunRecord

_OF_RUN = ("model", "mean", "std", "outputs", "pretrained", "size", "crop", "channels", "classes")


def of_run(record: RunRecord | None) -> dict[str, Any]:
    """Return the options of a search that hold for its policy's use too."""
    if record is None:
        return {}
    return {name: record.origin[name] for name in _OF_RUN if name in record.origin}


def model_of(given: Mapping[str, Any], device: str) -> Predictor:
    """Load the model that the options name."""
    if "model" not in given:
        raise RelookError("expected --model, or a --policy from a search that knows its model")
    return options.read_model(
        given["model"],
        given.get("mean"),
        given.get("std"),
        given.get("outputs"),
        device,
        size=given.get("size"),
        crop=given.get("crop"),
        pretrained=given.get("pretrained", False),
    )


def shape_of(record: RunRecord | None) -> tuple[int, int, int] | None:
    """Return channels, height and width of the images that were searched on."""
    shape = None if record is None else record.data.get("shape")
    if not isinstance(shape, list) or len(shape) != 3:
        return None
    channels, height, width = map(int, shape)
    return channels, height, width


def size_of(given: Mapping[str, Any], record: RunRecord | None) -> tuple[int, int] | None:
    """Return the size that images must have: as asked for, or as searched on."""
    if "size" in given:
        return options.pixels(given["size"])
    shape = shape_of(record)
    return None if shape is None else shape[1:]


def names_of(
    given: Mapping[str, Any], record: RunRecord | None, predictor: Predictor
) -> tuple[str, ...] | None:
    """Return the names of the classes: those given, or those of the images searched on."""
    if "classes" in given:
        return read_classes(given["classes"], predictor.classes)
    found = record.data.get("classes") if record is not None else None
    if not isinstance(found, list) or found == [str(i) for i in range(len(found))]:
        return None
    return tuple(map(str, found)) if predictor.classes in (None, len(found)) else None


def temperature_of(text: str) -> TemperatureChoice:
    """Read `policy`, `none` or a number."""
    if text in ("policy", "none"):
        return "policy" if text == "policy" else None
    try:
        return float(text)
    except ValueError:
        raise RelookError(
            f"--temperature: expected policy, none or a number, got {text!r}"
        ) from None
