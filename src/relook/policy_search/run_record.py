"""The files that a search leaves in its run directory: writing them and reading them back."""

from __future__ import annotations

import platform
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import zarr

from relook.data import Dataset, read_groups
from relook.errors import FileFormatError, RelookError, RunError
from relook.evaluation.comparison import save_comparison
from relook.foundation.wording import first_line
from relook.io.files import one_line, read_json, write_json_atomic
from relook.io.fingerprint import JSON, fingerprint
from relook.io.identities import checked_set, is_in, set_of, union
from relook.io.records import Kind
from relook.io.run_directory import RunDirectory
from relook.models import Predictor
from relook.numerics.arrays import Indices
from relook.numerics.splits import Shares, Split
from relook.policy import Policy, Step, SubPolicy
from relook.policy.file import subpolicy_from_json, subpolicy_to_json
from relook.policy.presets import is_preset
from relook.policy.recipes import Group, Recipe
from relook.policy_search.job import SearchJob, held_out_split, searched_beside_test
from relook.policy_search.pool_predictions import Probe
from relook.predictions.passes import KnownViews, View, distinct_views, fill_store
from relook.predictions.store import stored_passes
from relook.selection import SearchResult
from relook.transforms.full_images import FullImages
from relook.version import __version__

if TYPE_CHECKING:
    from relook.policy_search.search import PolicySearch

RUN_FORMAT = "relook-run"
SEARCH_FORMAT = "relook-search"
SEARCH_VERSION = 2
VERSION = 1
_LARGEST_SEARCH = 256_000_000


def record_search(
    directory: RunDirectory,
    found: PolicySearch,
    job: SearchJob,
    settings: Mapping[str, JSON],
    origin: Mapping[str, Any],
    compared_on: Dataset | None = None,
) -> None:
    """Write policy.json, search.json, the held-out comparison and run.json, each atomically.

    `settings` are the job's record; `compared_on` are the comparison's images, if not the job's.
    """
    dataset, test = job.dataset, job.test
    found.policy.save(directory.policy)
    write_json_atomic(directory.search, _trace_json(found))
    proof = dataset if test is None else test
    save_comparison(directory.path, found.comparison, compared_on or proof)
    write_json_atomic(
        directory.run,
        {
            "format": RUN_FORMAT,
            "version": VERSION,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "origin": dict(origin),
            "settings": dict(settings),
            "data": _data_record(dataset),
            "test": None if test is None else _data_record(test),
            "split": {
                "search": len(job.split.search),
                "held_out": len(job.split.held_out),
                "search_fingerprint": fingerprint(job.split.search),
                "held_out_fingerprint": fingerprint(job.split.held_out),
                "held_out_images": b64encode(set_of(job.proof.identities)).decode(),
            },
            "notes": list(found.notes),
            "set_up": found.comparison.settings.get("set_up"),
            "probe": None if found.probe is None else asdict(found.probe),
            "race": None if found.race is None else dict(found.race),
            "plan": None if found.time_plan is None else found.time_plan.to_json(),
            "selection": None if found.selection is None else asdict(found.selection),
            "seconds": dict(found.timings),
            "versions": versions(),
        },
    )


@dataclass(frozen=True)
class RunRecord:
    """run.json of a finished search: the origin of model and data, the settings and the split."""

    origin: Mapping[str, Any]
    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    split: Mapping[str, Any]
    probe: Probe | None = None
    race: Mapping[str, Any] | None = None
    set_up: str | None = None
    path: Path = Path()


RUN = Kind(RunRecord, RUN_FORMAT, VERSION, "a run's record", "search", partly=True)


def load_run(path: Path) -> RunRecord:
    """Read run.json of a run directory."""
    file = path / "run.json"
    if not file.is_file():
        check_ended(path)
        raise RunError(
            f"{path}: expected a finished run (run.json is missing); run  relook search  first"
        )
    return replace(RUN.read(file), path=path)


def check_ended(path: Path) -> None:
    """Raise if a search has begun in a directory, but not ended: how far it is, and what to do."""
    run = RunDirectory(path)
    if run.run.is_file() or not run.settings.is_file():
        return
    content: Any = read_json(run.settings, what="the settings of a relook run")
    settings = content.get("settings") if isinstance(content, dict) else None
    if not isinstance(settings, dict) or not {"strategy", "recipe"} <= settings.keys():
        return  # of another command
    known, done = stored_passes(run.predictions), "no result yet"
    more = "run the same command again"
    if known is not None:
        done = f"{known.done:,} of {known.total:,} passes over the candidates are done"
        in_rounds = settings["strategy"] == "conservative"
        in_rounds = in_rounds and not (settings.get("race") or settings.get("cross_fit"))
        if known.views and in_rounds:
            more += f", with --finish to end with the {known.views} candidates that are complete"
    raise RunError(f"{one_line(str(path))}: unfinished: {done}; {more}")


def engine_of(record: RunRecord | None, asked: str, place: Path) -> dict[str, Any]:
    """Return arguments of `accelerate_run` for a model after a search: its engine, if `auto`.

    Without a search, the engine that `auto` chooses is kept in the directory `place`.
    """
    if asked == "auto" and record is not None:
        asked, place = str(record.settings.get("accelerate", "torch")), record.path
    return {"mode": asked, "record": RunDirectory(place).engine}


def was_balanced(record: RunRecord | None) -> bool:
    """Whether a search gave each class the same weight."""
    return record is not None and record.settings.get("balanced") is True


def load_trace(path: Path) -> tuple[tuple[SubPolicy, ...], SearchResult]:
    """Read a run's pool and picks, as `record_search` wrote them."""
    content: Any = read_json(path / "search.json", what="a search", max_bytes=_LARGEST_SEARCH)
    try:
        if content["format"] != SEARCH_FORMAT or content["version"] != SEARCH_VERSION:
            raise ValueError(f"version {content['version']}")
        steps, threshold = content["steps"], content["threshold"]
        trace = SearchResult(
            picks=tuple(int(step["pick"]) for step in steps),
            scores=tuple(float(step["score"]) for step in steps),
            temperatures=tuple(float(step["temperature"]) for step in steps),
            threshold=None if threshold is None else float(threshold),
            soft_targets=content["soft_targets"],
            view_temperature=float(content.get("view_temperature", 1.0)),
        )
        return tuple(map(subpolicy_from_json, content["pool"])), trace
    except (KeyError, TypeError, ValueError, RelookError) as error:
        raise FileFormatError(
            f"{path / 'search.json'}: expected what a search left ({type(error).__name__}: "
            f"{first_line(error)}): run  relook search  again"
        ) from None


def versions() -> dict[str, str]:
    """Return the versions of everything that a result depends on."""
    return {
        "relook": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "zarr": zarr.__version__,
        "machine": platform.machine(),
    }


def _trace_json(found: PolicySearch) -> dict[str, Any]:
    trace = found.trace
    return {
        "format": SEARCH_FORMAT,
        "version": SEARCH_VERSION,
        "threshold": None if trace.threshold is None else str(trace.threshold),
        "soft_targets": trace.soft_targets,
        **({} if trace.view_temperature == 1 else {"view_temperature": trace.view_temperature}),
        "steps": [
            {
                "pick": pick,
                "subpolicy": str(found.pool[pick]),
                "score": score,
                "temperature": temperature,
                "views": found.policy[: t + 1].views,
            }
            for t, (pick, score, temperature) in enumerate(
                zip(trace.picks, trace.scores, trace.temperatures, strict=True)
            )
        ],
        "pool": [subpolicy_to_json(sub) for sub in found.pool],
    }


def _data_record(dataset: Dataset) -> dict[str, Any]:
    full_size = {"full_size": True} if isinstance(dataset.images, FullImages) else {}
    grouped = {} if dataset.groups is None else {"grouped": True}
    return {
        **full_size,
        **grouped,
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "source": dataset.source_fingerprint,
        "images": len(dataset),
        "shape": list(dataset.images.shape[1:]),
        "classes": list(dataset.classes),
    }


@dataclass(frozen=True)
class SearchedData:
    """A data set that was searched on, and how the search split it."""

    dataset: Dataset
    split: Split

    @property
    def unseen(self) -> Indices:
        """The images that are held out, or that the search left out."""
        known = self.dataset.identities
        others = ~is_in(known, set_of(known[self.split.search]))
        return np.union1d(self.split.held_out, np.flatnonzero(others))


def held_out_part(policy_path: Path, dataset: Dataset) -> SearchedData | None:
    """Return how the search next to a policy split this data set; None if it used another one.

    The way in which the images are read now makes no difference. Only held-out images support a
    claim; the policy itself lists other images that it was found on.
    """
    record = _record_next_to(policy_path)
    if record is None:
        return None
    searched = _as_searched(record, dataset)
    if searched is None:
        return None
    if record.settings.get("test") is not None and not record.settings.get("left_out"):
        raise RelookError(
            f"{policy_path} was searched on all images of {dataset.name}: compare on the test "
            "set of that search, or on other images"
        )
    return _split_again(record, searched)


def _record_next_to(policy_path: Path) -> RunRecord | None:
    """Return the record of the search that a policy file belongs to, if there is one."""
    if is_preset(policy_path) or not (policy_path.parent / "run.json").is_file():
        return None
    return load_run(policy_path.parent)


def pool_views(run: Path, predictor: Predictor, dataset: Dataset) -> KnownViews | None:
    """Return a cross-fit's stored predictions of its images, on which its views are compared too.

    None if the run is no cross-fit, or used other images or another model.
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
    record = _record_next_to(policy_path)
    if record is None:
        return policy.seen
    try:
        compared = b64decode(record.split.get("held_out_images", ""), validate=True)
        return union(policy.seen, checked_set(compared))
    except (TypeError, ValueError, RelookError):
        raise _damaged(record, "expected the held-out images of the search") from None


def _as_searched(record: RunRecord, dataset: Dataset) -> Dataset | None:
    """Return the data set, with the search's groups, if it is the one searched on."""
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
    """Whether these are the images searched on, however they are read."""
    source = dataset.source_fingerprint
    if source is not None and source == record.data.get("source"):
        return True
    return dataset.fingerprint == record.data.get("fingerprint")


def _split_again(record: RunRecord, dataset: Dataset) -> SearchedData | None:
    share, seed = record.settings.get("holdout"), record.settings.get("seed")
    left_out = record.settings.get("left_out", 0.0)
    if not isinstance(share, int | float) or not isinstance(seed, int):
        raise _damaged(record, "expected the held-out share and the seed of the search")
    if not isinstance(left_out, int | float):
        raise _damaged(record, "expected the share of images that were left out")
    if record.settings.get("test") is not None:
        split = Split(searched_beside_test(dataset, left_out, seed), np.empty(0, np.int64))
        same = fingerprint(split.search) == record.split.get("search_fingerprint")
    else:
        crossed = record.settings.get("cross_fit") is True
        split = held_out_split(dataset, None if crossed else Shares(share, left_out), seed)
        same = fingerprint(split.held_out) == record.split.get("held_out_fingerprint")
    if same:
        return SearchedData(dataset, split)
    if dataset.fingerprint == record.data.get("fingerprint"):
        raise _damaged(record, "the held-out images do not follow from its settings")
    return None  # other labels give another split


def _damaged(record: RunRecord, why: str) -> RunError:
    return RunError(f"{record.path / 'run.json'}: {why}; run  relook search  again")


def recorded_recipe(record: RunRecord) -> Recipe:
    """Return the recipe that a search drew its pool from, without excluded transforms."""
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
