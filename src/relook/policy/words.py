"""Steps in words, for people: what is done to an image, in the transform's own units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from relook.transforms import TRANSFORMS
from relook.transforms.geometry import crop_offset
from relook.transforms.resampling import CROP_SHARES

if TYPE_CHECKING:
    from relook.policy.policy import Step

IDENTITY = "identity"
"""The transform that changes nothing."""

_TWO_WAYS = ("x", "y")
_REFLECTED = ", edges reflected"
_SHIFTS = {
    "crop": "",
    "crop_flip": "",
    "reflect_crop": _REFLECTED,
    "reflect_crop_flip": _REFLECTED,
}
_EDGES = {"shear_x": ("top", "bottom"), "shear_y": ("left edge", "right edge")}


def is_idle(step: Step) -> bool:
    """Whether a step is known to change nothing: the identity, or others at magnitude 0."""
    idle = step.magnitude == 0 and TRANSFORMS[step.transform].identity_at_zero
    return idle or step.transform == IDENTITY


def step_text(step: Step) -> str:
    """Return `crop of 21 % of the area at (0.27, 0.35), mirrored`; empty if nothing changes."""
    if is_idle(step):
        return ""
    name, draws = step.transform, step.fixed_draws
    if name in _SHIFTS:
        what = _shift(step, draws)
    elif name == "zoom" or name in CROP_SHARES:
        what = _crop(step, draws)
    elif name == "quarter_turn":
        what = f"turned left by {90 * round(step.value) % 360}°"
    else:
        what = "mirrored" if name == "flip" else _usual(step, draws)
    return ", ".join(filter(None, (what, _mirrored(step, draws))))


def _shift(step: Step, draws: Mapping[str, float] | None) -> str:
    """Return where a padded crop moves the image's content; empty if it stays."""
    if draws is None:
        return f"random shift by up to {round(step.value)} px{_SHIFTS[step.transform]}"
    # A window further right shows the content further left.
    left, up = (int(crop_offset(np.array(step.value), np.array(draws[one]))) for one in _TWO_WAYS)
    ways = (left, "left", "right"), (up, "up", "down")
    moves = [f"{abs(by)} px {way if by > 0 else back}" for by, way, back in ways if by]
    return f"shift {', '.join(moves)}{_SHIFTS[step.transform]}" if moves else ""


def _crop(step: Step, draws: Mapping[str, float] | None) -> str:
    """Return the share that a crop keeps, and its place within the free range."""
    shares = CROP_SHARES.get(step.transform, lambda value, _: value**2)
    percents = [round(100 * float(shares(np.array(step.value), one))) for one in (0.0, 1.0)]
    if draws is not None:
        kept = 100 * float(shares(np.array(step.value), draws.get("area", 0.0)))
        return f"crop of {kept:.0f} % of the area{_place(draws)}"
    least, most = percents
    wide = f"{least} to {most}" if most > least + 1 else f"{least}"
    return f"random crop of {wide} % of the area"


def _usual(step: Step, draws: Mapping[str, float] | None) -> str:
    """Return name, value and draws of other transforms, also of those that users register."""
    row = TRANSFORMS[step.transform]
    sign = ""
    if "sign" in row.draws:
        sign = "±" if draws is None else "+" if draws["sign"] > 0 else "−"
    amount = f" {sign}{_amount(step.value, row.unit)}" if row.trend else ""
    if draws is None:
        return step.transform + amount
    other = [f"{name} {value:.2f}" for name, value in draws.items() if name in ("area", "aspect")]
    if "edge" in draws:
        kept = _EDGES.get(step.transform, ("near edge", "far edge"))[int(draws["edge"])]
        other.append(f"{kept} kept")
    return ", ".join((f"{step.transform}{amount}{_place(draws)}", *other))


def _amount(value: float, unit: str) -> str:
    if unit == "change of factor":
        return f"× {1 + value:.3g}".replace("-", "−")
    if unit == "grey level":
        return f"from grey level {value:.0f}"
    if unit == "bits":
        return f"to {math.floor(value)} bits"
    if unit.startswith("of the "):
        return f"{100 * value:.3g} % {unit}"
    after = {"degrees": "°", "width/height": "", "height/width": "", "magnitude": ""}
    return f"{value:.3g}{after.get(unit, f' {unit}')}".replace("-", "−")


def _place(draws: Mapping[str, float]) -> str:
    places = [f"{draws[name]:.2f}" for name in _TWO_WAYS if name in draws]
    return f" at ({', '.join(places)})" if places else ""


def _mirrored(step: Step, draws: Mapping[str, float] | None) -> str:
    if "flip" not in TRANSFORMS[step.transform].draws:
        return ""
    if draws is None:
        return "mirrored or not"
    return "mirrored" if draws["flip"] else ""
