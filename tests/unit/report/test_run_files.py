import json
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import refused
from tests.unit.report.example_run import example_comparison, write_example_run

from relook.errors import FileFormatError, RelookError
from relook.report.html import ENVIRONMENT
from relook.report.run_files import read_run
from relook.report.series import curves, shown_range
from relook.report.summary import Summary

PARTS = ENVIRONMENT.from_string(
    '{% import "comparison.html" as parts %}{{ parts.verdict(summary) }}{{ parts.table(summary) }}'
    "{{ parts.legend(summary) }}{{ parts.methods(summary) }}"
)
CONTENT = example_comparison().to_json()
STRANGE: tuple[Any, ...] = (None, True, -1, 0, 10**30, 1.5, "text", [], {}, [[]], {"a": 1})


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in JSON data, but for the policy, which has tests of its own."""
    inside: list[tuple[Any, Any]] = list(enumerate(value[:3])) if isinstance(value, list) else []
    if isinstance(value, dict):
        inside = [(key, one) for key, one in value.items() if path or key != "policy"]
    return [place for key, one in inside for place in ((*path, key), *places(one, (*path, key)))]


PLACES = places(CONTENT)


def write_changed(run: Path, place: tuple[Any, ...], value: object, cut: bool = False) -> None:
    """Write the example's comparison with one place changed or cut."""
    content = deepcopy(CONTENT)
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    if cut:
        del inner[place[-1]]
    (run / "comparison.json").write_text(json.dumps(content))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.sampled_from(PLACES), st.sampled_from(STRANGE), st.booleans())
def test_a_changed_comparison_is_drawn_or_refused(
    tmp_path: Path, place: tuple[Any, ...], value: object, cut: bool
) -> None:
    write_changed(tmp_path, place, value, cut)
    comparison = None
    with suppress(RelookError):
        comparison = read_run(tmp_path).comparison
    if comparison is None:
        return
    assert PARTS.render(summary=Summary(comparison))
    shown_range(curves(comparison, "temperature"))


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (("rows",), [], "no rows"),
        (("rows", 0, "metrics", "cll"), None, r"rows\[0\].metrics.cll: expected an object"),
        (("rows", 0, "metrics"), {}, "a row without accuracy and cll"),
        (("rows", 0, "slowdown"), 0, "a cost that is not positive"),
        (("rows", 0, "views"), 10**13, r"a number beyond 1e\+12"),
        (("rows", 0, "label"), 3, r"rows\[0\].label: expected a text, got 3"),
        (("gained", 0, "index"), "x", r"gained\[0\].index: expected a whole number"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, place: tuple[Any, ...], value: object, problem: str
) -> None:
    write_changed(tmp_path, place, value)
    refused(problem, read_run, tmp_path, error=FileFormatError)


def test_settings_are_flat_and_commands_apart(tmp_path: Path) -> None:
    comparison = example_comparison(
        settings={"command": "relook compare --run runs/demo", "grid": [[5.0, -0.5222537999]]}
    )
    run = read_run(write_example_run(tmp_path / "demo", comparison))
    assert run.name == "demo"
    assert run.commands == (
        "relook search --model runs/demo/model.safetensors --data digits --out runs/demo",
        "relook compare --run runs/demo",
    )
    shown = dict(run.settings())
    assert shown["budgets"] == "1, 5, 10, 20"
    assert shown["grid"] == "(5, -0.522254)"
    assert shown["model.spec"] == "runs/demo/model.safetensors"
    assert shown["versions.torch"] == "2.13.0"
    assert not [name for name in shown if "command" in name]


def test_examples_are_found_by_their_index(tmp_path: Path) -> None:
    run = read_run(write_example_run(tmp_path))
    assert run.examples is not None
    kept, images = run.examples.pick([65, 10_000, 3])
    assert kept == [65, 3]
    assert images.shape == (2, 1, 32, 32)
