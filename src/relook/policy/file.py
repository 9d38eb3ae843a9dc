"""Policies as versioned JSON (docs/policy.schema.json), whose content is defined by types."""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from relook.errors import FileFormatError, NotRegisteredError, RelookError, unknown_name
from relook.io.files import LARGEST_JSON, describe, json_text, one_line, write_text_atomic
from relook.io.identities import BYTES, UNKNOWN
from relook.io.records import Form, Kind, convert
from relook.numerics.calibration import SOUND_TEMPERATURES
from relook.numerics.conformal import SetRule
from relook.policy import Policy, Step, SubPolicy
from relook.transforms import TRANSFORMS
from relook.transforms.centre_crop import INTERPOLATIONS, CentreCrop

MOST_SUBPOLICIES = 10_000
MOST_STEPS = 64
MOST_THRESHOLDS = 100_000

_LONGEST_RECIPE = 200
_LARGEST_SIDE = 100_000
_LARGEST = sys.float_info.max
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_WHOLE_DRAWS = ("sign", "edge")

_Magnitude = Annotated[float, Meta(ge=0, le=_LARGEST, description="a finite number ≥ 0")]
_COLDEST, _HOTTEST = SOUND_TEMPERATURES
_Temperature = Annotated[
    float,
    Meta(ge=_COLDEST, le=_HOTTEST, description=f"a number from {_COLDEST:g} to {_HOTTEST:g}"),
]
_Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
_Seed = Annotated[int, Meta(ge=0, description="a whole number from 0 to 2^64 - 1")]
_Recipe = Annotated[
    str,
    Meta(
        max_length=_LONGEST_RECIPE,
        description=f"a name of at most {_LONGEST_RECIPE} characters, or null",
    ),
]
_Images = Annotated[
    bytes,
    Meta(description=f"a set of images as base64 of {BYTES} bytes per image"),
]
_MODULE_AND_NAME = re.compile(r"[\w.<>-]{1,200}:[A-Za-z0-9_][A-Za-z0-9_.-]{0,59}")
_NetworkMark = Annotated[
    str,
    Meta(pattern="^[a-z0-9]{1,8} [0-9a-f]{32}$", description="a network's mark, or null"),
]
_AtMostSubPolicies = Meta(
    max_length=MOST_SUBPOLICIES, description=f"a list of at most {MOST_SUBPOLICIES:,}"
)
_Thresholds = Meta(
    min_length=1,
    max_length=MOST_THRESHOLDS,
    description=f"a list of 1 to {MOST_THRESHOLDS:,}",
)
_Free = Meta(ge=0, le=MOST_THRESHOLDS, description=f"a whole number from 0 to {MOST_THRESHOLDS:,}")
_AtMostSteps = Meta(max_length=MOST_STEPS, description=f"a list of at most {MOST_STEPS}")


class _Draws(Struct):
    """Every draw that a fixed step may have; `Step` checks which ones it must have."""

    sign: Literal[-1, 1] | UnsetType = UNSET
    edge: Literal[0, 1] | UnsetType = UNSET
    flip: bool | UnsetType = UNSET
    x: _Share | UnsetType = UNSET
    y: _Share | UnsetType = UNSET
    area: _Share | UnsetType = UNSET
    aspect: _Share | UnsetType = UNSET


class _Step(Struct):
    transform: Annotated[str, Meta(description="the name of a transform")]
    magnitude: _Magnitude
    direction: Literal[-1, 1] | UnsetType = UNSET
    draws: _Draws | UnsetType = UNSET


class _SubPolicy(Struct):
    steps: Annotated[tuple[_Step, ...], _AtMostSteps]
    finish: _Step | UnsetType = UNSET


class _HalfFile(Struct):
    """The policy of a half: the fields that every policy has."""

    subpolicies: Annotated[tuple[_SubPolicy, ...], _AtMostSubPolicies]
    recipe: _Recipe | None = None
    seed: _Seed = 0
    temperatures: Annotated[tuple[_Temperature, ...], _AtMostSubPolicies] | None = None
    view_temperature: _Temperature = 1.0
    preparation: CentreCrop | None = None
    seen: _Images = UNKNOWN
    fitted_on: _NetworkMark | None = None


class _Sets(Struct):
    score: Literal["lac", "aps", "raps"]
    coverage: Annotated[float, Meta(gt=0, lt=1, description="a number between 0 and 1")]
    thresholds: Annotated[tuple[_Magnitude, ...], _Thresholds]
    temperature: _Temperature
    penalty: _Magnitude = 0.0
    free: Annotated[int, _Free] = 0


class _PolicyFile(_HalfFile):
    sets: _Sets | None = None
    halves: Annotated[tuple[_HalfFile, ...], Meta(max_length=2, description="a list of two")] = ()


_POLICY = Kind(_PolicyFile, "relook-policy", 2, "a relook policy", oldest=1)


def save_policy(policy: Policy, path: str | Path) -> None:
    """Write a policy as JSON, atomically; refuse one that could not be read back."""
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
    """Read a policy file; the error for a damaged one says where."""
    return _policy(_POLICY.read(path), one_line(str(path)))


def policy_to_json(policy: Policy) -> dict[str, object]:
    """Return the policy as JSON-able data, exact to the last bit."""
    temperatures, preparation = policy.temperatures, policy.preparation
    added: dict[str, object] = {}
    if policy.view_temperature != 1:
        added["view_temperature"] = policy.view_temperature
    if policy.seen != UNKNOWN:
        added["seen"] = b64encode(policy.seen).decode()
    if policy.fitted_on is not None:
        added["fitted_on"] = policy.fitted_on
    if policy.sets is not None:
        added["sets"] = {**asdict(policy.sets), "thresholds": list(policy.sets.thresholds)}
    if policy.halves:
        halves = [policy_to_json(half) for half in policy.halves]
        added["halves"] = [
            {name: value for name, value in half.items() if name not in ("format", "version")}
            for half in halves
        ]
    if preparation is not None:
        added["preparation"] = {**asdict(preparation), "size": list(preparation.size)}
    has_users = any(TRANSFORMS[step.transform].origin for sub in policy for step in sub.all_steps)
    return {
        "format": _POLICY.format,
        # Version 1 where it suffices, so that an older relook can read the file.
        "version": _POLICY.version if added or has_users else 1,
        "recipe": policy.recipe,
        "seed": policy.seed,
        **added,
        "temperatures": None if temperatures is None else list(temperatures),
        "subpolicies": [subpolicy_to_json(sub) for sub in policy],
    }


def policy_from_json(content: object, where: str = "policy") -> Policy:
    """Build a policy from parsed JSON; errors begin with `where` and the place in it."""
    return _policy(_POLICY.from_json(content, where), where)


def subpolicy_to_json(subpolicy: SubPolicy) -> dict[str, object]:
    """Return one sub-policy as an entry of the policy's `subpolicies`."""
    content: dict[str, object] = {"steps": [_step_to_json(step) for step in subpolicy.steps]}
    if subpolicy.finish is not None:
        content["finish"] = _step_to_json(subpolicy.finish)
    return content


def subpolicy_from_json(content: object) -> SubPolicy:
    """Build one sub-policy from parsed JSON."""
    return _subpolicy(convert(content, _SubPolicy, "sub-policy"), "sub-policy")


POLICY_FORM = Form(policy_to_json, policy_from_json)
"""A policy as a field of a larger record."""


def _step_to_json(step: Step) -> dict[str, object]:
    name = TRANSFORMS[step.transform].origin or step.transform
    content: dict[str, object] = {"transform": name, "magnitude": step.magnitude}
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
    return int(value) if name in _WHOLE_DRAWS else value


def _policy(file: _HalfFile, where: str) -> Policy:
    if file.recipe is not None and _UNPRINTABLE.search(file.recipe):
        raise FileFormatError(
            f"{where}: recipe: expected a name without control characters, "
            f"got {describe(file.recipe)}"
        )
    count = len(file.subpolicies)
    if file.temperatures is not None and len(file.temperatures) != count:
        raise FileFormatError(
            f"{where}: temperatures: expected {count} numbers, one for each sub-policy, "
            f"got {describe(file.temperatures)}"
        )
    subpolicies = tuple(
        _subpolicy(sub, f"{where}: subpolicies[{i}]") for i, sub in enumerate(file.subpolicies)
    )
    _check_preparation(file.preparation, f"{where}: preparation")
    halves, sets = (file.halves, file.sets) if isinstance(file, _PolicyFile) else ((), None)
    if len(file.seen) % BYTES:
        raise FileFormatError(
            f"{where}: seen: expected {BYTES} bytes per image, got {len(file.seen)} bytes"
        )
    return Policy(
        subpolicies,
        file.temperatures,
        file.recipe,
        file.seed,
        view_temperature=file.view_temperature,
        preparation=file.preparation,
        seen=file.seen,
        fitted_on=file.fitted_on,
        halves=tuple(_policy(half, f"{where}: halves[{i}]") for i, half in enumerate(halves)),
        sets=None if sets is None else _set_rule(sets, file.temperatures, f"{where}: sets"),
    )


def _set_rule(file: _Sets, temperatures: tuple[float, ...] | None, where: str) -> SetRule:
    if (file.temperature,) != (temperatures or ())[-1:]:
        raise FileFormatError(
            f"{where}.temperature: expected the last of the policy's temperatures, got "
            f"{describe(file.temperature)}: make the sets again with  relook conformal"
        )
    return SetRule(**structs.asdict(file))


def _check_preparation(plan: CentreCrop | None, where: str) -> None:
    if plan is None:
        return
    for name, sound, wanted in (
        ("size", all(1 <= side <= _LARGEST_SIDE for side in plan.size), "a height and a width"),
        ("crop", 0 < plan.crop <= 1, "a share above 0 and at most 1"),
        ("channels", plan.channels in (1, 3), "1 or 3"),
        ("interpolation", plan.interpolation in INTERPOLATIONS, " or ".join(INTERPOLATIONS)),
    ):
        if not sound:
            got = describe(getattr(plan, name))
            raise FileFormatError(f"{where}.{name}: expected {wanted}, got {got}")


def _subpolicy(file: _SubPolicy, where: str) -> SubPolicy:
    steps = tuple(_step(step, f"{where}.steps[{i}]") for i, step in enumerate(file.steps))
    if isinstance(file.finish, UnsetType):
        return SubPolicy(steps)
    return SubPolicy(steps, _step(file.finish, f"{where}.finish"))


def _step(file: _Step, where: str) -> Step:
    name = _transform(file.transform, f"{where}.transform")
    direction = None if isinstance(file.direction, UnsetType) else file.direction
    draws = None
    if not isinstance(file.draws, UnsetType):
        known = structs.asdict(file.draws).items()
        draws = {name: float(value) for name, value in known if value is not UNSET}
    try:
        return Step(name, file.magnitude, direction, draws)
    except RelookError as error:
        raise FileFormatError(f"{where}: {error}") from None


def _transform(written: str, where: str) -> str:
    """Return a transform's name; a user's is written `module:name`.

    The module is never imported, so that a file cannot run code.
    """
    module, colon, name = written.rpartition(":")
    is_users = bool(_MODULE_AND_NAME.fullmatch(written))
    row = TRANSFORMS.get(name) if is_users or not colon else None
    if row is not None and (row.origin is not None or not is_users):
        return name
    if is_users:
        raise NotRegisteredError(
            f"{where}: expected the transform {name!r} of {module}, which is not registered: "
            f"in Python, import {module} first; the command line needs a package with a "
            "plug-in (docs/howto/extend.md)"
        )
    # Finding the nearest name takes time that grows with its length.
    raise FileFormatError(f"{where}: {unknown_name('transform', written[:60], TRANSFORMS)}")
