"""Parse the values of options, and load the models and images that they name."""

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
    """Load the model that the options describe (several: an ensemble), and print a description."""
    options |= {"mean": numbers(mean, "--mean"), "std": numbers(std, "--std")}
    members = [load_model(spec, size=pixels(size), **options) for spec in as_list(specs)]
    predictor = members[0] if len(members) == 1 else EnsemblePredictor(members)
    # Files of `small` hold all of their settings, so there is nothing to check for the user.
    if not all(spec.startswith("small@") for spec in as_list(specs)):
        say(f"model: {describe_model(predictor)}")
    return predictor


def as_list(specs: str | Sequence[str]) -> list[str]:
    """Return one spec or several as a list."""
    return [specs] if isinstance(specs, str) else list(specs)


def groups_for_test(group: str | None) -> str | None:
    """Return --group for a separate test set: a column applies there too, but not a file of ids."""
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
    """Load images in the form that the model takes; `images` are the options of reading them.

    `like` is a data set whose size and classes they get. `searched` is how a policy's search
    prepared its images.
    """
    plan = preparation(images, overflow=overflow, log=say).for_model(model)
    with reading_bars() as progress:
        dataset = as_dataset(
            spec,
            classes=images.get("classes"),
            groups=group,
            preparation=replace(plan.as_searched(searched), progress=progress),
            like=like,
            outputs=None if model is None else model.classes,
        )
    known = dataset.identities[dataset.identities != 0]
    copies = len(known) - len(np.unique(known))
    if copies:
        found = count(copies, "image is a copy", "images are copies")
        say(f"{dataset.name}: {found} of others: an image and its copies count as one")
    return dataset


def image_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded options that concern reading images."""
    return {name: given[name] for name in OF_IMAGES if name in given}


def reading_bars() -> AbstractContextManager[StageProgress]:
    """Show a progress bar for each stage of reading files."""
    return stage_bars(lambda stage: (stage, "files"))


def whole_numbers(text: str, option: str, example: str) -> tuple[int, ...]:
    """Parse `1,5,10,20`."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise RelookError(f"{option}: expected whole numbers {example}; got {text!r}") from None


def read_budgets(text: str) -> tuple[int, ...]:
    """Parse `--budgets`."""
    return whole_numbers(text, "--budgets", "like 1,5,10,20")


def read_names(text: str | None) -> tuple[str, ...]:
    """Parse `cutout,invert`."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def load_search_record(policy: Path) -> RunRecord | None:
    """Read the record of the search whose directory holds a policy file; None if there is none."""
    if is_preset(policy) or not (policy.parent / "run.json").is_file():
        return None
    return load_run(policy.parent)


def reads_full_size(full_size: str, spec: str, file: Path, policies: Iterable[Policy]) -> bool:
    """Return whether images stay at full size; auto: as in the search whose policy is `file`."""
    searched = _searched_at_full_size(file) if full_size == "auto" else None
    crops = _begins_with_crops(policies) if searched is None else searched
    return keeps_full_size(full_size, spec, crops)


def takes_photos(full_size: str, file: Path, policy: Policy) -> bool:
    """Return whether an exported model cuts its views from photos; auto: as the search did."""
    check_full_size(full_size)
    if full_size != "auto":
        return full_size == "yes"
    searched = _searched_at_full_size(file)
    if searched is None and policy.preparation is not None:
        searched = policy.preparation.full_size
    return _begins_with_crops([policy]) if searched is None else searched


def _searched_at_full_size(policy: Path) -> bool | None:
    """Return whether a policy's search read full-size images; None if it left no record."""
    record = load_search_record(policy)
    return None if record is None else bool(record.data.get("full_size", False))


def _begins_with_crops(policies: Iterable[Policy]) -> bool:
    steps = (sub.steps[0] for policy in policies for sub in policy if sub.steps)
    return any(step.transform in STARTS for step in steps)
