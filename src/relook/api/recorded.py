"""Models and images as described in a run's record, with the command line's options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from relook.data import Dataset, Preparation, as_dataset
from relook.data.adapt import prepared_for
from relook.data.base import are_numbers
from relook.data.specs import DATA_SOURCES
from relook.errors import RefusedKeywordError, RelookError, RunError, unknown_name, warn
from relook.models import Predictor, as_predictor
from relook.models.describe import model_record
from relook.policy_search.run_record import RunRecord

FULL_SIZE = ("auto", "yes", "no")
OF_IMAGES = ("size", "crop", "channels", "classes", "skip_bad", "full_size", "cache")
"""The recorded options for reading images."""

OF_MODEL = ("mean", "std", "outputs", "size", "crop", "pretrained")
OF_SESSION = ("layout", "output")
"""The recorded keywords of an ONNX Runtime session, which a spec has in itself."""

_INPUTS_AND_OUTPUTS = ("mean", "std", "outputs", *OF_SESSION)


def recorded_model(
    origin: Mapping[str, Any], run: Path, given: Mapping[str, Any], model: object = None
) -> Predictor:
    """Return the model that a run was searched with: as recorded, or as given in memory.

    The recorded keywords hold for both, as far as the model takes them; `given` ones override them.
    """
    if model is None:
        if "model" not in origin:
            raise RelookError(
                f"{run} was searched with a model in memory: give it, as relook.load(run, model)"
            )
        model = origin["model"]
    known = {name: origin[name] for name in (*OF_MODEL, *OF_SESSION) if name in origin}
    for name in ("mean", "std"):
        if name in known:
            known[name] = numbers(known[name], name)
    if "size" in known:
        known["size"] = pixels(known["size"])
    predictor = _with_known(model, known, given)
    _compare_inputs(origin, run, given, predictor)
    return predictor


def _with_known(model: object, known: Mapping[str, Any], given: Mapping[str, Any]) -> Predictor:
    """Return a model as a predictor with the given keywords, and the known ones that it takes."""
    if isinstance(model, list | tuple):
        return as_predictor([_with_known(member, known, given) for member in model])
    try:
        return as_predictor(model, **{**known, **given})
    except RefusedKeywordError as error:
        taken = {name: value for name, value in known.items() if name not in error.names}
        if len(taken) == len(known):
            raise
        return _with_known(model, taken, given)


def _compare_inputs(
    origin: Mapping[str, Any], run: Path, given: Mapping[str, Any], predictor: Predictor
) -> None:
    """Warn if the model's inputs or outputs are not those that the run was searched with."""
    then = _as_texts({**origin, **origin.get("model_inputs", {})})
    now = _as_texts({**given, **model_record(predictor)})
    changed = [name for name in then if now.get(name, then[name]) != then[name]]
    if changed:
        before, after = (
            ", ".join(f"{name} {one[name]}" for name in changed) for one in (then, now)
        )
        warn(f"{run} was searched with {before}, not {after}: its figures do not hold for that")


def _as_texts(known: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of a model's inputs and outputs, as texts."""
    found = as_recorded(**{name: known[name] for name in _INPUTS_AND_OUTPUTS if name in known})
    return {name: str(text).rstrip(",") for name, text in found.items()}


def recorded_images(
    record: RunRecord,
    predictor: Predictor,
    images: Any = None,
    labels: ArrayLike | None = None,
    **given: Any,
) -> tuple[Dataset, Dataset | None]:
    """Read the images that a run was searched on, and those of its separate test.

    They are read as recorded, also if `images` are given in memory; `given` are their classes and
    groups, if not the recorded ones.
    """
    origin, test = record.origin, None
    names = tuple(map(str, record.data.get("classes") or ()))
    known: dict[str, Any] = {"classes": None if are_numbers(names) else names}
    if images is None:
        if "data" not in origin:
            raise RelookError(
                f"{record.path} was searched on images in memory: give them, as relook.load(run, "
                "model, images, labels)"
            )
        images, test = origin["data"], origin.get("test")
        known = {"classes": origin.get("classes"), "groups": origin.get("group")}
    known |= given
    wanted = preparation(origin, overflow=next_to(record.path))
    how: dict[str, Any] = {
        "preparation": prepared_for(images, wanted, predictor),
        "outputs": predictor.classes,
    }
    dataset = as_dataset(images, labels, **known, **how)
    if record.data.get("grouped") and dataset.groups is None:
        raise RunError(
            f"{record.path} was searched with groups: give them too, as relook.load(run, model, "
            "images, labels, groups=…)"
        )
    if test is None:
        return dataset, None
    return dataset, as_dataset(test, like=dataset, classes=known["classes"], **how)


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
            end = "," if isinstance(values, Sequence) and len(values) == 1 else ""
            given[name] = ",".join(repr(float(value)) for value in listed) + end
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
    """Read `0.5`, or one number per channel: `0.49,0.48,0.45`, or `0.5,` for a single one."""
    if text is None:
        return None
    try:
        first, *more = text.split(",")
        values = tuple(float(part) for part in (first, *([] if more == [""] else more)))
    except ValueError:
        raise RelookError(
            f"{option}: expected a number, or one per channel like 0.49,0.48,0.45; got {text!r}"
        ) from None
    return values if more else values[0]
