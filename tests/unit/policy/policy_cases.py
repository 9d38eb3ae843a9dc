"""Policies as JSON, good and bad, that several tests share."""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from relook import Policy, RelookError, Step, SubPolicy
from relook.policy.file import policy_from_json, policy_to_json
from relook.transforms.centre_crop import CentreCrop

SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs" / "policy.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = Draft202012Validator(SCHEMA)

SMALL = Policy(
    (
        SubPolicy(
            (Step("rotate", 13.2, draws={"sign": -1}), Step("color", 7.1, -1)),
            Step("crop_flip", 4, draws={"x": 0.1, "y": 1 / 3, "flip": True}),
        ),
        SubPolicy(),
        SubPolicy((Step("shear_x", 1e-9, draws={"sign": 1, "edge": 0}), Step("identity", 0))),
        SubPolicy((Step("scale_crop_flip", 30),)),
    ),
    (1.5, 0.1 + 0.2, 1e-3, 7),
    "imagenet",
    2**64 - 1,
    preparation=CentreCrop((224, 192), 0.875, 3, "bilinear", every=True),
    seen=bytes(range(12)),
)

STRANGE: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1,
    2,
    0.5,
    -0.5,
    1e308,
    2**64,
    10**399,
    "",
    "rotate",
    "flip",
    "x" * 201,
    "AAAAAAAA",
    "AAAAAAA=",
    "\x00",
    [],
    [0],
    [[]],
    {},
    {"steps": []},
    {"transform": "rotate", "magnitude": 1},
    {"sign": 1},
    [{"steps": []}] * 3,
    [1, 2, 3],
]


def changed(**changes: Any) -> dict[str, Any]:
    return {**policy_to_json(SMALL), **changes}


def with_step(**changes: Any) -> dict[str, Any]:
    step: dict[str, Any] = {"transform": "rotate", "magnitude": 1, **changes}
    subpolicies: list[Any] = [{"steps": []}] * 3 + [
        {"steps": [{"transform": "flip", "magnitude": 0}, step]}
    ]
    return changed(subpolicies=subpolicies)


def is_read(content: object) -> bool:
    try:
        return isinstance(policy_from_json(content), Policy)
    except RelookError:
        return False
