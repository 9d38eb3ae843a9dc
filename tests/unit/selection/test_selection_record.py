import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.plain_search import Array, random_pool
from tests.support import refused

from relook.errors import RunError
from relook.io.records import Kind, checksum
from relook.numerics.metrics import accuracy
from relook.predictions.store import Predictions
from relook.selection import SearchResult, greedy, greedy_search
from relook.selection import record as selection_record
from relook.selection.plan import SelectionPlan
from relook.selection.record import Selected, Selection, plan_of, select, selection_identity

LOG_PROBS, LABELS = random_pool(0, 20, 80, 5)
LENGTH = 6


def predictions(log_probs: Array = LOG_PROBS) -> Predictions:
    return Predictions(log_probs.shape, log_probs.dtype, lambda: log_probs, lambda: log_probs)


def selected(
    path: Path | None, length: int = LENGTH, memory: int | None = None, **changes: Any
) -> Selected:
    deciding = {key: changes.pop(key) for key in ("objective", "balanced") if key in changes}
    selection = Selection(predictions(), LABELS, length, **deciding)
    how = {"identity": selection_identity(selection, "these"), "path": path, **changes}
    return select(selection, plan_of(selection, memory, path), **how)


class StopError(Exception):
    pass


def stop_after(steps: int) -> Callable[[int, int, float], None]:
    def progress(done: int, total: int, score: float) -> None:
        if done == steps:
            raise StopError

    return progress


def interrupted(path: Path, steps: int, **changes: Any) -> None:
    with pytest.raises(StopError):
        selected(path, progress=stop_after(steps), **changes)


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_a_selection_that_was_stopped_goes_on_to_the_same_bytes(tmp_path: Path, steps: int) -> None:
    whole, path = tmp_path / "whole.json", tmp_path / "trace.json"
    expected = selected(whole, memory=10**9).result
    assert expected == greedy_search(LOG_PROBS, LABELS, LENGTH)
    interrupted(path, steps, memory=10**9)
    assert len(json.loads(path.read_text())["picks"]) == steps
    told: list[str] = []
    assert selected(path, memory=10**9, log=told.append).result == expected
    assert path.read_bytes() == whole.read_bytes()
    assert told[1] == f"selection: going on after {steps} steps, kept in {path}"


def test_what_is_kept_is_not_picked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    expected = selected(path).result
    monkeypatch.setattr(selection_record, "greedy_search", None)
    assert selected(path).result == expected
    assert selected(path, 2).result == SearchResult(
        expected.picks[:2], expected.scores[:2], expected.temperatures[:2]
    )


def test_a_longer_selection_extends_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    selected(path, 3)
    assert selected(path, 9).result == greedy_search(LOG_PROBS, LABELS, 9)
    assert len(json.loads(path.read_text())["picks"]) == 9


def edited(**changes: Any) -> Callable[[str], str]:
    """Return what changes a trace and its checksum with it."""

    def edit(text: str) -> str:
        content = {**json.loads(text), **changes}
        del content["crc32"]
        return json.dumps({**content, "crc32": checksum(content)})

    return edit


STEP = {"candidate": 3, "score": -1.0, "temperature": 1.0}
DAMAGES: dict[str, Callable[[str], str]] = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "a list": lambda text: "[]",
    "null": lambda text: "null",
    "NaN": lambda text: text.replace('"score": -', '"score": NaN, "x": -', 1),
    "another format": edited(format="relook-search"),
    "another version": edited(version=99),
    "other settings": edited(belongs_to="something else"),
    "no picks": edited(picks=None),
    "a pick too high": edited(picks=[{**STEP, "candidate": 20}]),
    "a pick below 0": edited(picks=[{**STEP, "candidate": -1}]),
    "a pick that is true": edited(picks=[{**STEP, "candidate": True}]),
    "no score": edited(picks=[{"candidate": 3}]),
    "a temperature of 0": edited(picks=[{**STEP, "temperature": 0}]),
    "a text for a score": edited(picks=[{**STEP, "score": "low"}]),
    "no memory": edited(memory=None),
    "another checksum": lambda text: text.replace('"memory": ', '"memory": 1', 1),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_trace_of_no_use_is_told_of_and_computed_again(
    tmp_path: Path, damage: Callable[[str], str]
) -> None:
    path = tmp_path / "trace.json"
    interrupted(path, 3)
    path.write_text(damage(path.read_text()))
    told: list[str] = []
    assert selected(path, log=told.append).result == greedy_search(LOG_PROBS, LABELS, LENGTH)
    assert str(path) in told[0]
    assert told[0].endswith(": selecting from the start")
    assert len(json.loads(path.read_text())["picks"]) == LENGTH


def test_the_identity_tells_apart_all_that_decides_picks() -> None:
    other_labels = (LABELS + 1) % 5
    different = [
        identity_of("these"),
        identity_of("those"),
        identity_of("these", labels=other_labels),
        identity_of("these", objective="ll"),
        identity_of("these", balanced=True),
    ]
    assert len(set(different)) == len(different)
    assert different[0] == identity_of("these", labels=LABELS.copy())


def identity_of(these: str, **changes: Any) -> str | None:
    return selection_identity(replace(Selection(predictions(), LABELS, LENGTH), **changes), these)


def test_a_function_as_objective_is_never_gone_on_with(tmp_path: Path) -> None:
    assert identity_of("these", objective=accuracy) is None
    path = tmp_path / "trace.json"
    for _ in range(2):
        result = selected(path, 3, objective=accuracy).result
        assert result == greedy_search(LOG_PROBS, LABELS, 3, accuracy)


def test_the_trace_is_written_at_most_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    clock = iter(np.arange(0, 100, 0.4))
    monkeypatch.setattr("relook.selection.record.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(Kind, "write", lambda kind, path, trace: writes.append(len(trace.picks)))
    selected(tmp_path / "trace.json", 20)
    assert writes[0] == 1
    assert writes[-1] == 20
    assert 5 <= len(writes) <= 11
    assert writes == sorted(set(writes))


def test_predictions_are_mapped_only_where_they_must_be() -> None:
    wide, labels = np.repeat(LOG_PROBS, 40, axis=1), np.repeat(LABELS, 40)
    asked: list[str] = []

    def get(how: str) -> Array:
        asked.append(how)
        return wide

    source = Predictions(wide.shape, wide.dtype, lambda: get("load"), lambda: get("map"))
    selection = Selection(source, labels, 3)
    roomy = plan_of(selection, 10**8)
    tight = plan_of(selection, roomy.memory - 1)
    told: list[str] = []
    assert select(selection, roomy).result == select(selection, tight, log=told.append).result
    assert asked == ["load", "map"]
    assert "mapped from disk" in told[0]
    assert tight.memory == roomy.working
    refused("take fewer images or candidates", plan_of, selection, roomy.working - 1)


def test_a_limit_that_is_too_small_is_one_line() -> None:
    refused("memory: expected at least", selected, None, memory=1000)


def test_many_classes_keep_the_limit_that_they_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_probs, labels = random_pool(3, 12, 40, 210)
    monkeypatch.setattr(greedy, "COMPILED_FROM", 1)
    path = tmp_path / "trace.json"

    selection = Selection(predictions(log_probs), labels, 3)

    def run(memory: int | None = None, **arguments: Any) -> SelectionPlan:
        plan = plan_of(selection, memory, path)
        select(selection, plan, identity="these", path=path, **arguments)
        return plan

    with pytest.raises(StopError):
        run(memory=10**9, progress=stop_after(2))
    with pytest.raises(RunError, match=r"begun with a memory limit of 1,000,000,000 bytes, got 2,"):
        run(memory=2 * 10**9)
    assert run().limit == 10**9
    path.unlink()
    assert run(memory=2 * 10**9).limit == 2 * 10**9
