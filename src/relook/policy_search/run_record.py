"""What a search leaves in its run directory, and reading it back."""

from __future__ import annotations

import platform
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import zarr

from relook.data.base import Dataset
from relook.errors import FileFormatError, RelookError, RunError
from relook.evaluation.comparison import save_comparison
from relook.foundation.wording import first_line
from relook.io.files import read_json, write_json_atomic
from relook.io.fingerprint import JSON, fingerprint
from relook.io.identities import set_of
from relook.io.records import Kind
from relook.io.run_directory import RunDirectory
from relook.policy import SubPolicy
from relook.policy.file import subpolicy_from_json, subpolicy_to_json
from relook.policy.recipes import AUTO, RECIPES
from relook.policy_search.job import SearchJob
from relook.policy_search.pool_predictions import Probe
from relook.policy_search.settings import SearchSettings
from relook.selection import SearchResult
from relook.transforms.full_images import FullImages
from relook.version import __version__

if TYPE_CHECKING:
    from relook.policy_search.search import PolicySearch

RUN_FORMAT = "relook-run"
SEARCH_FORMAT = "relook-search"
SEARCH_VERSION = 2  # 1 had `caution` and `guide` for `threshold` and `soft_targets`
VERSION = 1
_LARGEST_SEARCH = 256_000_000


def former_values(settings: SearchSettings) -> Mapping[tuple[str, JSON], JSON]:
    """Return values in earlier records of such a search, and what they are now."""
    former: dict[tuple[str, JSON], JSON] = {("strategy", "steady"): "conservative"}
    former["start_from", None] = []  # there was no such setting
    if settings.strategy == "conservative":  # the recipe's own number was not written down
        former["pool_size", None] = sum(group.count for group in settings.recipe.groups) + 1
    return former


def as_begun(run: str | Path | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a search's keywords; what they leave open is as a run in `run` has begun with.

    Defaults, and what `auto` chooses, may be others today.
    """
    wanted = {"recipe": AUTO, "accelerate": AUTO, "pool_size": None, **given}
    file = None if run is None else RunDirectory(run).settings
    if file is None or not file.is_file():
        return wanted
    try:
        content: Any = read_json(file, what="a run's settings")
        began = content["settings"]
        recipe, strategy, size = began["recipe"], began["strategy"], began["pool_size"]
        if size is None and strategy in ("conservative", "steady"):
            size = sum(group["count"] for group in recipe["groups"]) + 1
        known = {"accelerate": began["accelerate"], "pool_size": size}
        known |= {"recipe": recipe["name"]} if recipe["name"] in RECIPES else {}
    except (RelookError, KeyError, TypeError):  # the directory will say what is wrong with it
        return wanted
    return wanted | {name: one for name, one in known.items() if wanted[name] in (None, AUTO)}


def record_search(
    directory: RunDirectory,
    found: PolicySearch,
    job: SearchJob,
    settings: Mapping[str, JSON],
    origin: Mapping[str, Any],
) -> None:
    """Write policy.json, search.json, the held-out comparison and run.json, each whole.

    `settings` are the job's record.
    """
    dataset, test = job.dataset, job.test
    found.policy.save(directory.policy)
    write_json_atomic(directory.search, _trace(found))
    save_comparison(directory.path, found.comparison, dataset if test is None else test)
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
    """run.json of a finished search: where model and data came from, and how they were split."""

    origin: Mapping[str, Any]
    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    split: Mapping[str, Any]
    probe: Probe | None = None
    race: Mapping[str, Any] | None = None
    path: Path = Path()


RUN = Kind(RunRecord, RUN_FORMAT, VERSION, "a run's record", "search", partly=True)


def load_run(path: Path) -> RunRecord:
    """Read run.json of a run directory."""
    file = path / "run.json"
    if not file.is_file():
        raise RunError(
            f"{path}: expected a finished run (run.json is missing); run  relook search  first"
        )
    return replace(RUN.read(file), path=path)


def engine_of(record: RunRecord | None, asked: str, place: Path) -> dict[str, Any]:
    """Return how a model runs after a search, for `accelerate_run`: as there, if nothing is asked.

    What `auto` chooses where there is no search is kept in the directory `place`.
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
    """Return the versions of what a result depends on."""
    return {
        "relook": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "zarr": zarr.__version__,
        "machine": platform.machine(),
    }


def _trace(found: PolicySearch) -> dict[str, Any]:
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
    return {
        **full_size,
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "source": dataset.source_fingerprint,
        "images": len(dataset),
        "shape": list(dataset.images.shape[1:]),
        "classes": list(dataset.classes),
    }
