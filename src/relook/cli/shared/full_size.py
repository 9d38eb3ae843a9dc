"""Whether files are kept at full size, so that crops are cut from the originals, and where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from relook.cli.shared.options import of_model
from relook.data.specs import DATA_SOURCES
from relook.errors import RelookError, unknown_name
from relook.policy import Policy
from relook.policy.presets import is_preset
from relook.policy.recipes import STARTS
from relook.policy_search.run_record import load_run

CHOICES = ("auto", "yes", "no")

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


def keeps_full_size(asked: str, spec: str, crops: bool) -> bool:
    """Return whether the files of `spec` are kept at full size; `crops`: views begin with crops."""
    _check_answer(asked)
    source = DATA_SOURCES.get(spec.partition(":")[0])
    from_files = source is not None and source.prepares
    if asked == "yes" and not from_files:
        known = ", ".join(f"{name}:" for name, row in DATA_SOURCES.items() if row.prepares)
        raise RelookError(f"--full-size yes: expected image files ({known}), got {spec!r}")
    return from_files and (asked == "yes" or (asked == "auto" and crops))


def was_full_size(policy: Path) -> bool | None:
    """Return how the search next to a policy file saw its images; None: no such run."""
    if is_preset(policy) or not (policy.parent / "run.json").is_file():
        return None
    return bool(load_run(policy.parent).data.get("full_size", False))


def kept_as_searched(asked: str, spec: str, file: Path, policies: Iterable[Policy]) -> bool:
    """Return whether files are kept at full size: as in the search, where there is its record."""
    was = was_full_size(file) if asked == "auto" else None
    return keeps_full_size(asked, spec, begins_with_crops(policies) if was is None else was)


def takes_photos(asked: str, file: Path, policy: Policy) -> bool:
    """Return whether an exported file cuts its views from photos: as the search, unless told."""
    _check_answer(asked)
    if asked != "auto":
        return asked == "yes"
    was = was_full_size(file)
    if was is None and policy.preparation is not None:
        was = policy.preparation.full_size
    return begins_with_crops([policy]) if was is None else was


def _check_answer(asked: str) -> None:
    if asked not in CHOICES:
        raise unknown_name("answer to --full-size", asked, CHOICES)


def of_files(policy: Policy) -> Policy:
    """Return a policy for images that come from files: what they are cut from was decided there."""
    searched = policy.preparation
    read = None if searched is None else replace(searched, full_size=False)
    return replace(policy, preparation=read)


def begins_with_crops(policies: Iterable[Policy]) -> bool:
    """Whether a view of the policies is cut from the original."""
    steps = (sub.steps[0] for policy in policies for sub in policy if sub.steps)
    return any(step.transform in STARTS for step in steps)


def next_to(run: Path) -> Path:
    """Return where images go that are too many for the memory."""
    return run.with_name(f"{run.name}.images")
