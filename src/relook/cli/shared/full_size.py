"""Whether files are kept at full size, so that crops are cut from the originals, and where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from relook.api.recorded import check_full_size
from relook.api.recorded import keeps_full_size as keeps_full_size
from relook.api.recorded import next_to as next_to
from relook.cli.shared.options import of_model
from relook.policy import Policy
from relook.policy.presets import is_preset
from relook.policy.recipes import STARTS
from relook.policy_search.run_record import RunRecord, load_run

FullSizeOption = Annotated[
    str,
    of_model(
        "--full-size",
        help="Cut crops from the original files instead of from images of the model's size: yes, "
        "no, or auto: where the recipe or the policy begins with such crops.",
    ),
]
CacheOption = Annotated[
    Path | None,
    of_model(
        "--cache",
        help="A directory for decoded full-size images, which later commands find there.",
        show_default="memory; above 1 GB next to the run",
    ),
]


def search_of(policy: Path) -> RunRecord | None:
    """Read the record of the search next to a policy file; None: no such run."""
    if is_preset(policy) or not (policy.parent / "run.json").is_file():
        return None
    return load_run(policy.parent)


def was_full_size(policy: Path) -> bool | None:
    """Return how the search next to a policy file saw its images; None: no such run."""
    record = search_of(policy)
    return None if record is None else bool(record.data.get("full_size", False))


def kept_as_searched(asked: str, spec: str, file: Path, policies: Iterable[Policy]) -> bool:
    """Return whether files are kept at full size: as in the search, where there is its record."""
    was = was_full_size(file) if asked == "auto" else None
    return keeps_full_size(asked, spec, begins_with_crops(policies) if was is None else was)


def takes_photos(asked: str, file: Path, policy: Policy) -> bool:
    """Return whether an exported file cuts its views from photos: as the search, unless told."""
    check_full_size(asked)
    if asked != "auto":
        return asked == "yes"
    was = was_full_size(file)
    if was is None and policy.preparation is not None:
        was = policy.preparation.full_size
    return begins_with_crops([policy]) if was is None else was


def of_files(policy: Policy) -> Policy:
    """Return a policy for images that come from files: what they are cut from was decided there."""
    searched = policy.preparation
    read = None if searched is None else replace(searched, full_size=False)
    return replace(policy, preparation=read)


def begins_with_crops(policies: Iterable[Policy]) -> bool:
    """Whether a view of the policies is cut from the original."""
    steps = (sub.steps[0] for policy in policies for sub in policy if sub.steps)
    return any(step.transform in STARTS for step in steps)
