import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.unit.policy.policy_cases import SCHEMA, SMALL, STRANGE, VALIDATOR, is_read, with_step

from relook import TRANSFORMS
from relook.numerics.conformal import SetRule
from relook.policy.file import policy_to_json
from relook.transforms import DRAWS


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_knows_every_transform_and_draw() -> None:
    assert SCHEMA["$defs"]["step"]["properties"]["transform"]["anyOf"][0]["enum"] == list(
        TRANSFORMS
    )
    assert set(SCHEMA["$defs"]["draws"]["properties"]) == set(DRAWS)


@pytest.mark.parametrize("row", TRANSFORMS.values(), ids=lambda row: row.name)
def test_the_schema_and_the_reader_agree_on_every_transform(row: Any) -> None:
    good = {name: name == "flip" or 1 for name in row.draws}
    trials: list[dict[str, Any]] = [{}, {"direction": -1}, {"draws": {}}, {"draws": good}]
    trials += [{"draws": {**good, name: name == "flip" or 1}} for name in DRAWS]
    trials += [{"draws": {k: v for k, v in good.items() if k != name}} for name in row.draws]
    for trial in trials:
        content = with_step(transform=row.name, **trial)
        assert VALIDATOR.is_valid(content) == is_read(content), (row.name, trial)
    assert VALIDATOR.is_valid(with_step(transform=row.name, draws=good))
    assert VALIDATOR.is_valid(with_step(transform=row.name, direction=1)) == row.signed


def _nodes(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(content, dict | list):
        for key in content if isinstance(content, dict) else range(len(content)):
            yield from _nodes(content[key], (*path, key))


def _swapped(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    result = copy.deepcopy(content)
    target = result
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return result


def test_every_node_swapped_for_something_strange_is_judged_as_the_schema_does() -> None:
    rule = SetRule("raps", 0.9, (0.5, 1.5), 7, penalty=0.01, free=5)
    content = policy_to_json(replace(SMALL, view_temperature=4, sets=rule))
    cases = [_swapped(content, path, value) for path in _nodes(content) for value in STRANGE]
    assert len(cases) > 1_200
    read = 0
    for case in cases:
        valid = VALIDATOR.is_valid(case)
        # The two rules that the schema cannot say.
        if valid and case.get("temperatures") is not None:
            valid = len(case["temperatures"]) == len(case["subpolicies"])
        if valid and case.get("sets") is not None:
            valid = case["sets"]["temperature"] in (case.get("temperatures") or [])[-1:]
        assert is_read(case) == valid, case
        read += valid
    assert 0 < read < len(cases) / 2
