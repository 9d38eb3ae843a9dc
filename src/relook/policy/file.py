"""Policies as versioned JSON (docs/policy.schema.json), checked by hand on reading."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeGuard

from relook.errors import FileFormatError, RelookError, unknown_name
from relook.io.files import (
    LARGEST_JSON,
    describe,
    json_text,
    one_line,
    read_json,
    write_text_atomic,
)
from relook.policy import Policy, Step, SubPolicy
from relook.transforms import DRAWS, TRANSFORMS

FORMAT = "relook-policy"
VERSION = 1
MOST_SUBPOLICIES = 10_000
MOST_STEPS = 64

_LONGEST_RECIPE = 200
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_CHOICES = {"sign": (-1, 1), "edge": (0, 1)}


def save_policy(policy: Policy, path: str | Path) -> None:
    """Write a policy as JSON, whole or not at all; what could not be read back is refused."""
    content = policy_to_json(policy)
    policy_from_json(content, where=f"cannot write {path}")
    text = json_text(content)
    if len(text.encode()) > LARGEST_JSON:
        raise RelookError(
            f"cannot write {path}: expected a policy of at most {LARGEST_JSON:,} bytes, "
            f"got {len(text.encode()):,}"
        )
    write_text_atomic(path, text)


def load_policy(path: str | Path) -> Policy:
    """Read a policy file; one that is damaged or strange raises an error that says where."""
    return policy_from_json(read_json(path, what="a relook policy"), where=one_line(str(path)))


def policy_to_json(policy: Policy) -> dict[str, object]:
    """Return the policy as JSON-able data, exact to the last bit."""
    temperatures = policy.temperatures
    return {
        "format": FORMAT,
        "version": VERSION,
        "recipe": policy.recipe,
        "seed": policy.seed,
        "temperatures": None if temperatures is None else list(temperatures),
        "subpolicies": [subpolicy_to_json(sub) for sub in policy],
    }


def policy_from_json(content: object, where: str = "policy") -> Policy:
    """Build a policy from parsed JSON; errors start with `where` and the place in it."""
    root = _Place(where)
    _check_format(content, root)
    fields = _fields(
        content, root, ("format", "version", "subpolicies"), ("recipe", "seed", "temperatures")
    )
    entries = _list(fields["subpolicies"], root / "subpolicies", MOST_SUBPOLICIES)
    subpolicies = tuple(_subpolicy(entry, at) for entry, at in entries)
    return Policy(
        subpolicies,
        temperatures=_temperatures(fields.get("temperatures"), len(entries), root / "temperatures"),
        recipe=_recipe(fields.get("recipe"), root / "recipe"),
        seed=_seed(fields.get("seed", 0), root / "seed"),
    )


def subpolicy_to_json(subpolicy: SubPolicy) -> dict[str, object]:
    """Return one sub-policy as an entry of the policy's `subpolicies`."""
    content: dict[str, object] = {"steps": [_step_to_json(step) for step in subpolicy.steps]}
    if subpolicy.finish is not None:
        content["finish"] = _step_to_json(subpolicy.finish)
    return content


def _step_to_json(step: Step) -> dict[str, object]:
    content: dict[str, object] = {"transform": step.transform, "magnitude": step.magnitude}
    if step.direction is not None:
        content["direction"] = step.direction
    if step.fixed_draws is not None:
        content["draws"] = {
            name: _draw_to_json(name, value) for name, value in step.fixed_draws.items()
        }
    return content


def _draw_to_json(name: str, value: float) -> float | int | bool:
    if name == "flip":
        return bool(value)
    return int(value) if name in _CHOICES else value


@dataclass(frozen=True)
class _Place:
    """Where in a file we are: `policy.json: subpolicies[3].steps[1]`."""

    file: str
    inside: str = ""

    def __truediv__(self, key: str) -> _Place:
        return _Place(self.file, f"{self.inside}.{key}" if self.inside else key)

    def __getitem__(self, index: int) -> _Place:
        return _Place(self.file, f"{self.inside}[{index}]")

    def fail(self, problem: str) -> NoReturn:
        raise FileFormatError(": ".join(part for part in (self.file, self.inside, problem) if part))

    def expected(self, what: str, got: object) -> NoReturn:
        self.fail(f"expected {what}, got {describe(got)}")


def _check_format(content: object, at: _Place) -> None:
    # Before anything else, so that a newer file is not blamed for keys that we do not know.
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        got = content.get("format") if isinstance(content, dict) else content
        at.expected(f'a relook policy ("format": "{FORMAT}")', got)
    version = content.get("version")
    if not _is_whole(version) or version < 1:
        (at / "version").expected(f"the number {VERSION}", version)
    if version > VERSION:
        at.fail(
            f"expected version {VERSION}, got version {describe(version)}, "
            "written by a newer relook: upgrade relook to read it"
        )


def _subpolicy(content: object, at: _Place) -> SubPolicy:
    fields = _fields(content, at, ("steps",), ("finish",))
    steps = tuple(
        _step(entry, place) for entry, place in _list(fields["steps"], at / "steps", MOST_STEPS)
    )
    finish = _step(fields["finish"], at / "finish") if "finish" in fields else None
    return SubPolicy(steps, finish)


def _step(content: object, at: _Place) -> Step:
    fields = _fields(content, at, ("transform", "magnitude"), ("direction", "draws"))
    transform = fields["transform"]
    if not isinstance(transform, str):
        (at / "transform").expected("the name of a transform", transform)
    if transform not in TRANSFORMS:
        (at / "transform").fail(_unknown("transform", transform, TRANSFORMS))
    magnitude = _number(fields["magnitude"], "a finite number ≥ 0", at / "magnitude")
    direction = (
        _choice(fields["direction"], (-1, 1), at / "direction") if "direction" in fields else None
    )
    draws = _draws(fields["draws"], at / "draws") if "draws" in fields else None
    try:
        return Step(transform, magnitude, direction, draws)
    except RelookError as error:
        at.fail(str(error))


def _draws(content: object, at: _Place) -> dict[str, float]:
    fields = _fields(content, at, (), tuple(DRAWS))
    return {name: _draw(name, value, at / name) for name, value in fields.items()}


def _draw(name: str, value: object, at: _Place) -> float:
    if name == "flip":
        if not isinstance(value, bool):
            at.expected("true or false", value)
        return float(value)
    if name in _CHOICES:
        return float(_choice(value, _CHOICES[name], at))
    return _number(value, "a number from 0 to 1", at, most=1.0)


def _choice(value: object, choices: tuple[int, int], at: _Place) -> int:
    if not _is_whole(value) or value not in choices:
        at.expected(f"{choices[0]} or {choices[1]}", value)
    return value


def _temperatures(content: object, length: int, at: _Place) -> tuple[float, ...] | None:
    if content is None:
        return None
    entries = _list(content, at, MOST_SUBPOLICIES)
    if len(entries) != length:
        at.expected(f"{length} numbers, one for each sub-policy", content)
    smallest = math.ulp(0.0)
    return tuple(_number(entry, "a finite number > 0", at, least=smallest) for entry, at in entries)


def _recipe(content: object, at: _Place) -> str | None:
    if content is None:
        return None
    if not isinstance(content, str) or len(content) > _LONGEST_RECIPE:
        at.expected(f"a name of at most {_LONGEST_RECIPE} characters, or null", content)
    if _UNPRINTABLE.search(content):
        at.expected("a name without control characters", content)
    return content


def _seed(content: object, at: _Place) -> int:
    if not (_is_whole(content) and 0 <= content < 2**64):
        at.expected("a whole number from 0 to 2^64 - 1", content)
    return content


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(
    value: object, what: str, at: _Place, least: float = 0.0, most: float = math.inf
) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        at.expected(what, value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and least <= number <= most):
        at.expected(what, value)
    return number


def _list(content: object, at: _Place, most: int) -> list[tuple[object, _Place]]:
    if not isinstance(content, list) or len(content) > most:
        at.expected(f"a list of at most {most:,}", content)
    return [(entry, at[i]) for i, entry in enumerate(content)]


def _fields(
    content: object, at: _Place, required: tuple[str, ...], optional: tuple[str, ...]
) -> dict[str, object]:
    known = (*required, *optional)
    if not isinstance(content, dict):
        at.expected(f"an object with {', '.join(known)}", content)
    for key in content:
        if key not in known:
            at.fail(_unknown("key", key, known))
    for key in required:
        if key not in content:
            at.fail(f"expected the key {describe(key)}, got none")
    return content


def _unknown(kind: str, name: object, known: Iterable[str]) -> str:
    # Looking for the nearest name takes time that grows with the name.
    return str(unknown_name(kind, str(name)[:60], known))
