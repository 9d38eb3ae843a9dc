"""Reading a run's files: any may be missing, and none is trusted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relook.errors import FileFormatError, RelookError, RunError
from relook.evaluation.comparison import Comparison, load_comparison
from relook.evaluation.latency import LATENCY, Latency, policy_mark
from relook.evaluation.set_sizes import SETS, SetsRecord
from relook.io.arrays import read_npz
from relook.io.files import one_line, read_json
from relook.policy import Policy
from relook.policy_search.run_record import check_ended
from relook.transforms.checks import check_images

_LARGEST_EXAMPLES = 512_000_000
_LARGEST_NUMBER = 1e12
_NEEDED = {"cll", "accuracy"}


@dataclass(frozen=True)
class Examples:
    """Images kept for showing, uint8 `[n, c, h, w]`, by their index in the data set.

    `names` are their files', if they have any.
    """

    images: Tensor
    labels: tuple[int, ...]
    places: Mapping[int, int]
    names: tuple[str, ...] = ()

    def name(self, index: int) -> str | None:
        """Return the file's name of an image, if it has one."""
        return self.names[self.places[index]] if self.names and index in self.places else None

    def pick(self, indices: Sequence[int]) -> tuple[list[int], Tensor]:
        """Return those of the indices that were kept, and their images."""
        kept = [index for index in indices if index in self.places]
        return kept, self.images[[self.places[index] for index in kept]]


@dataclass(frozen=True)
class RunFiles:
    """The files of a run, None for missing ones; `scores` are those of the search's steps."""

    path: Path
    comparison: Comparison | None
    policy: Policy | None
    scores: tuple[float, ...]
    examples: Examples | None
    record: Mapping[str, Any]
    latency: Latency | None = None
    sets: SetsRecord | None = None

    @property
    def name(self) -> str:
        """The run's name, which is its directory's."""
        return self.path.resolve().name

    @property
    def title(self) -> str:
        """The run's name; if that is only a seed, after the model and the images."""
        origin = self.record.get("origin")
        if not isinstance(origin, Mapping) or not re.fullmatch(r"seed-\d+", self.name):
            return self.name
        known = [_text(origin[part]) for part in ("model", "data") if part in origin]
        what = " on ".join(re.sub(r"[^@:]*[/\\]", "", one) for one in known)
        return f"{what}, {self.name}" if what else self.name

    @property
    def commands(self) -> tuple[str, ...]:
        """The recorded command lines of the run: search, compare."""
        settings = {} if self.comparison is None else self.comparison.settings
        places = (self.record, self.record.get("origin"), settings)
        found = [place.get("command") for place in places if isinstance(place, Mapping)]
        return tuple(dict.fromkeys(_command(one) for one in found if one))

    def settings(self) -> list[tuple[str, str]]:
        """Return names and values of everything that was recorded about the run."""
        settings = {} if self.comparison is None else self.comparison.settings
        return [*_flat("", settings), *_flat("", self.record)]


def read_run(path: Path) -> RunFiles:
    """Read a run directory; one without a comparison, search or policy raises a RunError."""
    where = one_line(str(path))
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing: there is no such directory"
        raise RunError(f"{where}: expected a run's directory, got {found}")
    comparison = policy = None
    if (path / "comparison.json").exists():
        comparison = _read_comparison(path / "comparison.json")
        policy = comparison.policy
    elif (path / "policy.json").exists():
        policy = Policy.load(path / "policy.json")
    scores = _read_scores(path / "search.json")
    if comparison is None and policy is None and not scores:
        check_ended(path)
        raise RunError(
            f"{where}: expected a run with comparison.json, search.json or policy.json, got none: "
            f"run  relook search --out {where}  first"
        )
    record = _read_record(path / "run.json")
    measured = _read_latency(path / "latency.json", policy), _read_sets(path / "sets.json", policy)
    return RunFiles(path, comparison, policy, scores, _read_examples(path), record, *measured)


def _command(words: object) -> str:
    return shlex.join(map(str, words)) if isinstance(words, list) else str(words)


def _read_comparison(path: Path) -> Comparison:
    comparison = load_comparison(path)
    wrong = _flaw(comparison)
    if wrong is not None:
        raise FileFormatError(
            f"{one_line(str(path))}: expected a comparison written by relook, got {wrong}; "
            "run  relook compare  again"
        )
    return comparison


def _flaw(comparison: Comparison) -> str | None:
    """Return in a few words why a comparison cannot be drawn; None if it can."""
    if not comparison.rows or not comparison.budgets:
        return "no rows or no budgets"
    for row in comparison.rows:
        if missing := _NEEDED - set(row.metrics):
            return f"a row without {' and '.join(sorted(missing))}"
        if min(row.views, row.budget, row.slowdown) <= 0:
            return "a cost that is not positive"
    if min(comparison.budgets) <= 0:
        return "a cost that is not positive"
    content = {**comparison.to_json(), "policy": None, "settings": None}
    if any(abs(number) >= _LARGEST_NUMBER for number in _numbers(content)):
        return f"a number beyond {_LARGEST_NUMBER:.0e}"
    return None


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _numbers(one)


def _read_latency(path: Path, policy: Policy | None) -> Latency | None:
    """Read the latencies measured for this policy; None if they are of a former one."""
    found = LATENCY.read(path) if path.exists() else None
    if found is None or policy is None or policy_mark(policy) != found.policy:
        return None
    if not 0 <= found.chosen < len(found.rungs):
        raise FileFormatError(
            f"{one_line(str(path))}: chosen: expected a place in {len(found.rungs)} rungs, got "
            f"{found.chosen}; run  relook export --latency  again"
        )
    return found


def _read_sets(path: Path, policy: Policy | None) -> SetsRecord | None:
    found = SETS.read(path) if path.exists() else None
    own = found is not None and policy is not None and policy_mark(policy) == found.policy
    return found if own else None


def _read_record(path: Path) -> Mapping[str, Any]:
    if not path.exists():
        return {}
    content = read_json(path, what="a run's record")
    if not isinstance(content, dict):
        raise FileFormatError(f"{path}: expected a run's record (an object)")
    return content


def _read_scores(path: Path) -> tuple[float, ...]:
    if not path.exists():
        return ()
    content = read_json(path, what="a search's record", max_bytes=256_000_000)
    try:
        entries = content["steps"]  # type: ignore[index]
        steps = [(float(e["score"]), int(e["views"]), float(e["temperature"])) for e in entries]
        return tuple(score for score, *_ in steps)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise FileFormatError(
            f"{path}: expected the steps of a search, each with views, score and temperature; "
            "run  relook search  again"
        ) from None


def _read_examples(directory: Path) -> Examples | None:
    path = directory / "examples.npz"
    if not path.exists():
        return None
    try:
        arrays = read_npz(path, max_bytes=_LARGEST_EXAMPLES)
        indices = [int(index) for index in arrays["indices"]]
        images = torch.from_numpy(arrays["images"])
        labels = tuple(int(label) for label in arrays["labels"])
        check_images(images)
        names = tuple(str(name) for name in arrays.get("names", ()))
        if not len(images) == len(indices) == len(labels) == len(names or labels):
            raise ValueError("indices, images, labels and names of different lengths")
    except (RelookError, KeyError, ValueError, TypeError) as error:
        raise FileFormatError(f"{path}: expected the run's example images, got: {error}") from None
    return Examples(images, labels, {index: place for place, index in enumerate(indices)}, names)


def _flat(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            if key != "command" and (name or key not in ("format", "version")):
                yield from _flat(f"{name}.{key}" if name else str(key), one)
    elif isinstance(value, list | tuple):
        if value:
            yield name, ", ".join(map(_text, value))
    elif value is not None:
        yield name, _text(value)


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_text, value))})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
