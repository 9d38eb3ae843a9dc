"""Which images of a data set a search has not seen, from the record that it left."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relook.data import Dataset, read_groups
from relook.errors import RelookError, RunError
from relook.io.fingerprint import fingerprint
from relook.io.identities import checked_set, union
from relook.models import Predictor
from relook.numerics.splits import Shares, Split
from relook.policy import Policy, Step
from relook.policy.presets import is_preset
from relook.policy.recipes import Group, Recipe
from relook.policy_search.job import held_out_split
from relook.policy_search.run_record import RunRecord, load_run, load_trace
from relook.predictions.passes import KnownViews, View, distinct_views, fill_store


@dataclass(frozen=True)
class SearchedData:
    """A data set that was searched on, and which of its images the search saw."""

    dataset: Dataset
    split: Split


def held_out_part(policy_path: Path, dataset: Dataset) -> SearchedData | None:
    """Return how the search next to a policy split this data set; None if that was another.

    The search's record is run.json; how the images are read now makes no difference. Only
    held-out images may be used for a claim; which others the policy was found on, it says itself.
    """
    if is_preset(policy_path) or not (policy_path.parent / "run.json").is_file():
        return None
    record = load_run(policy_path.parent)
    searched = _as_searched(record, dataset)
    if searched is None:
        return None
    if record.settings.get("test") is not None:
        raise RelookError(
            f"{policy_path} was searched on all images of {dataset.name}: compare on the test "
            "set of that search, or on other images"
        )
    return _split(record, searched)


def pool_views(run: Path, predictor: Predictor, dataset: Dataset) -> KnownViews | None:
    """Return what a cross-fit has predicted of its images, which prove its views too.

    None where the run is no cross-fit, or of other images or another model.
    """
    record = load_run(run) if (run / "run.json").is_file() else None
    if record is None or record.settings.get("cross_fit") is not True:
        return None
    store = run / "predictions.zarr"
    if not store.is_dir() or dataset.fingerprint != record.data.get("fingerprint"):
        return None
    pool, _ = load_trace(run)
    views, _ = distinct_views([View(sub, index) for index, sub in enumerate(pool)])
    how: Any = {name: record.settings.get(name) for name in ("seed", "batch")}
    precision = str(record.settings.get("store_precision"))
    try:
        found = fill_store(predictor, dataset.images, views, store, precision=precision, **how)
    except RunError:
        return None
    return KnownViews(views, found.read_all())


def used_images(policy_path: Path, policy: Policy) -> bytes:
    """Return the images that a policy was found on or, in the search next to it, compared on."""
    if is_preset(policy_path) or not (policy_path.parent / "run.json").is_file():
        return policy.seen
    record = load_run(policy_path.parent)
    try:
        compared = b64decode(record.split.get("held_out_images", ""), validate=True)
        return union(policy.seen, checked_set(compared))
    except (TypeError, ValueError, RelookError):
        raise _damaged(record, "expected the held-out images of the search") from None


def _as_searched(record: RunRecord, dataset: Dataset) -> Dataset | None:
    """Return the data set, with the groups of the search, if it is the one searched on."""
    if _is_searched(record, dataset):
        return dataset
    spec = record.origin.get("group")
    if not isinstance(spec, str):
        return None
    try:
        grouped = replace(dataset, groups=read_groups(spec, dataset))
    except RelookError:
        return None
    return grouped if _is_searched(record, grouped) else None


def _is_searched(record: RunRecord, dataset: Dataset) -> bool:
    """Whether these are the images searched on, or the same ones read in another way."""
    source = dataset.source_fingerprint
    if source is not None and source == record.data.get("source"):
        return True
    return dataset.fingerprint == record.data.get("fingerprint")


def _split(record: RunRecord, dataset: Dataset) -> SearchedData | None:
    share, seed = record.settings.get("holdout"), record.settings.get("seed")
    left_out = record.settings.get("left_out", 0.0)
    if not isinstance(share, int | float) or not isinstance(seed, int):
        raise _damaged(record, "expected the held-out share and the seed of the search")
    if not isinstance(left_out, int | float):
        raise _damaged(record, "expected the share of images that were left out")
    crossed = record.settings.get("cross_fit") is True
    split = held_out_split(dataset, None if crossed else Shares(share, left_out), seed)
    if fingerprint(split.held_out) == record.split.get("held_out_fingerprint"):
        return SearchedData(dataset, split)
    if dataset.fingerprint == record.data.get("fingerprint"):
        raise _damaged(record, "the held-out images do not follow from its settings")
    return None  # read with other labels, they are split otherwise


def _damaged(record: RunRecord, why: str) -> RunError:
    return RunError(f"{record.path / 'run.json'}: {why}; run  relook search  again")


def recorded_recipe(record: RunRecord) -> Recipe:
    """Return the recipe that a search drew its pool from, with what was excluded left out."""
    content = record.settings.get("recipe")
    try:
        if not isinstance(content, Mapping):
            raise TypeError(f"got {content!r}")
        ends = {end: _end(content[end]) for end in ("start", "finish")}
        groups = tuple(Group(**group) for group in content["groups"])
        lists = {"groups": groups, "transforms": tuple(content["transforms"])}
        return Recipe(**{**content, **ends, **lists})
    except (KeyError, TypeError, RelookError) as error:
        raise _damaged(record, f"expected a recipe ({error})") from None


def _end(content: Any) -> Step | None:
    return None if content is None else Step(**content)
