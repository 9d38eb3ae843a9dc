"""How the texts of options are read: models, images, and how those are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from relook.api.recorded import (
    OF_IMAGES,
    check_full_size,
    keeps_full_size,
    numbers,
    pixels,
    preparation,
)
from relook.cli.shared.console import say, stage_bars
from relook.data import Dataset, as_dataset
from relook.errors import RelookError
from relook.foundation.progress import StageProgress
from relook.foundation.wording import count
from relook.models import EnsemblePredictor, Predictor, load_model
from relook.models.describe import describe_model
from relook.policy import Policy
from relook.policy.presets import is_preset
from relook.policy.recipes import STARTS
from relook.policy_search.run_record import RunRecord, load_run
from relook.transforms.centre_crop import CentreCrop


def read_model(
    specs: str | Sequence[str],
    *,
    mean: str | None = None,
    std: str | None = None,
    size: str | None = None,
    **options: Any,
) -> Predictor:
    """Load the model that the options describe, several as an ensemble, and say what it does."""
    options |= {"mean": numbers(mean, "--mean"), "std": numbers(std, "--std")}
    members = [load_model(spec, size=pixels(size), **options) for spec in as_list(specs)]
    predictor = members[0] if len(members) == 1 else EnsemblePredictor(members)
    if not all(spec.startswith("small@") for spec in as_list(specs)):  # they bring all they need
        say(f"model: {describe_model(predictor)}")
    return predictor


def as_list(specs: str | Sequence[str]) -> list[str]:
    """Return one spec or several as a list."""
    return [specs] if isinstance(specs, str) else list(specs)


def groups_for_test(group: str | None) -> str | None:
    """Return the groups of a test set: the same column, as a file has ids of other images."""
    if group is None or not Path(group.partition("?")[0]).expanduser().is_file():
        return group
    say(f"note: {group} has no groups of the test images: each of them counts by itself")
    return None


def read_data(
    spec: str,
    group: str | None = None,
    *,
    model: Predictor | None = None,
    like: Dataset | None = None,
    overflow: Path | None = None,
    searched: CentreCrop | None = None,
    **images: Any,
) -> Dataset:
    """Load the images that the options `images` describe, as the model takes them.

    `like` is the data set that they are used with: they get its size and its classes. `searched`
    is how the search of a policy prepared its images.
    """
    wanted = preparation(images, overflow=overflow, log=say).for_model(model)
    with reading_bars() as progress:
        dataset = as_dataset(
            spec,
            classes=images.get("classes"),
            groups=group,
            preparation=replace(wanted.as_searched(searched), progress=progress),
            like=like,
            outputs=None if model is None else model.classes,
        )
    known = dataset.identities[dataset.identities != 0]
    copies = len(known) - len(np.unique(known))
    if copies:
        some = count(copies, "image is a copy", "images are copies")
        say(f"{dataset.name}: {some} of others: an image and its copies count as one")
    return dataset


def image_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the recorded options that say how images are read."""
    return {name: given[name] for name in OF_IMAGES if name in given}


def reading_bars() -> AbstractContextManager[StageProgress]:
    """Show a bar for each stage of reading files, and none where no files are read."""
    return stage_bars(lambda stage: (stage, "files"))


def whole_numbers(text: str, option: str, example: str) -> tuple[int, ...]:
    """Read `1,5,10,20`."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise RelookError(f"{option}: expected whole numbers {example}; got {text!r}") from None


def read_budgets(text: str) -> tuple[int, ...]:
    """Read `--budgets`."""
    return whole_numbers(text, "--budgets", "like 1,5,10,20")


def read_names(text: str | None) -> tuple[str, ...]:
    """Read `cutout,invert`."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def load_search_record(policy: Path) -> RunRecord | None:
    """Read the record of the search next to a policy file; None: no such run."""
    if is_preset(policy) or not (policy.parent / "run.json").is_file():
        return None
    return load_run(policy.parent)


def keeps_full_size_as_searched(
    asked: str, spec: str, file: Path, policies: Iterable[Policy]
) -> bool:
    """Return whether files are kept at full size: as in the search, where there is its record."""
    was = _was_full_size(file) if asked == "auto" else None
    return keeps_full_size(asked, spec, _begins_with_crops(policies) if was is None else was)


def takes_photos(asked: str, file: Path, policy: Policy) -> bool:
    """Return whether an exported file cuts its views from photos: as the search, unless told."""
    check_full_size(asked)
    if asked != "auto":
        return asked == "yes"
    was = _was_full_size(file)
    if was is None and policy.preparation is not None:
        was = policy.preparation.full_size
    return _begins_with_crops([policy]) if was is None else was


def _was_full_size(policy: Path) -> bool | None:
    """Return how the search next to a policy file saw its images; None: no such run."""
    record = load_search_record(policy)
    return None if record is None else bool(record.data.get("full_size", False))


def _begins_with_crops(policies: Iterable[Policy]) -> bool:
    steps = (sub.steps[0] for policy in policies for sub in policy if sub.steps)
    return any(step.transform in STARTS for step in steps)
