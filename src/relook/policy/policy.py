"""Steps, sub-policies and policies: frozen data that defines which views are averaged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Literal, SupportsIndex, overload

from relook.errors import RelookError, unknown_name
from relook.foundation import notebook
from relook.foundation.wording import count, views_text
from relook.io.identities import UNKNOWN, checked_set
from relook.numerics.arrays import LogProbs
from relook.numerics.calibration import SOUND_TEMPERATURES, temper
from relook.numerics.conformal import SetRule
from relook.numerics.randomness import check_seed
from relook.policy.words import step_text
from relook.transforms import DRAWS, TRANSFORMS
from relook.transforms.centre_crop import CentreCrop

Draws = tuple[tuple[str, float], ...]
DrawKind = Literal["fixed", "fresh"]

_ALLOWED_DRAWS: Mapping[str, tuple[float, ...]] = {
    "sign": (-1.0, 1.0),
    "edge": (0.0, 1.0),
    "flip": (0.0, 1.0),
}


@dataclass(frozen=True)
class Step:
    """A transform with its magnitude, and a direction if its sign is part of the step.

    Only contrast, brightness, color and sharpness have a `direction` (+1 or −1, default +1).
    `draws` holds the constants of a fixed step (sign, edge, place …); None means that they
    are drawn anew for each image and each use.
    """

    transform: str
    magnitude: float
    direction: int | None = None
    draws: Draws | Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        row = TRANSFORMS.get(self.transform) if isinstance(self.transform, str) else None
        if row is None:
            raise unknown_name("transform", self.transform, TRANSFORMS)
        object.__setattr__(self, "magnitude", _checked_magnitude(self.transform, self.magnitude))
        direction = _checked_direction(row.name, row.signed, self.direction)
        object.__setattr__(self, "direction", direction)
        object.__setattr__(self, "draws", _checked_draws(row.name, row.draws, self.draws))

    @property
    def value(self) -> float:
        """The magnitude in the transform's own units, times the direction if there is one."""
        return (self.direction or 1) * TRANSFORMS[self.transform].value(self.magnitude)

    @property
    def fixed_draws(self) -> dict[str, float] | None:
        """The step's constants by name, or None if they are drawn anew."""
        return None if self.draws is None else dict(self.draws)

    @property
    def is_fixed(self) -> bool:
        """Whether every use of the step on every image is the same operation."""
        return self.draws is not None or not TRANSFORMS[self.transform].draws

    def __str__(self) -> str:
        return step_text(self) or "no change"


@dataclass(frozen=True)
class SubPolicy:
    """Steps in order, then the recipe's finish; the plain image if there is neither."""

    steps: tuple[Step, ...] = ()
    finish: Step | None = None

    def __post_init__(self) -> None:
        steps = tuple(self.steps)
        for step in (*steps, *(() if self.finish is None else (self.finish,))):
            if not isinstance(step, Step):
                raise RelookError(
                    f"expected a sub-policy of Step objects, got {type(step).__name__}: {step!r}"
                )
        object.__setattr__(self, "steps", steps)

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """The steps, followed by the finish if there is one."""
        return self.steps if self.finish is None else (*self.steps, self.finish)

    @property
    def is_plain(self) -> bool:
        """Whether the view is the image itself."""
        return not self.all_steps

    @property
    def is_fixed(self) -> bool:
        """Whether the sub-policy makes the same view of an image at every use."""
        return all(step.is_fixed for step in self.all_steps)

    def __str__(self) -> str:
        return " · ".join(filter(None, map(step_text, self.all_steps))) or "plain image"


@dataclass(frozen=True, repr=False)
class Policy(Sequence[SubPolicy]):
    """An ordered list of sub-policies, repeats allowed; `policy[:k]` serves a budget of k.

    `temperatures[k − 1]` calibrates the average of the first k views; None: not calibrated.
    `recipe` names the source of the sub-policies; `seed` makes fresh draws repeatable. Views are
    averaged at `view_temperature` (see `tempered`): 1 is the usual average.
    `preparation` says how the search brought images to the model's size. `seen` is the set of
    images that the policy or any number in it was fitted on, which cannot support a claim; unknown
    by default (`relook.io.identities`). `fitted_on` marks the network that the temperatures were
    fitted on (`relook.models.describe`). `halves` are the policies that the same search finds on
    each half of these images alone, whose gain can be measured on the other half. `sets` is the
    rule for prediction sets of all views; it is dropped if it does not match the last temperature.
    """

    subpolicies: tuple[SubPolicy, ...]
    temperatures: tuple[float, ...] | None = None
    recipe: str | None = None
    seed: int = 0
    view_temperature: float = 1.0
    preparation: CentreCrop | None = None
    seen: bytes = field(default=UNKNOWN, repr=False, kw_only=True)
    fitted_on: str | None = field(default=None, repr=False, kw_only=True)
    halves: tuple[Policy, ...] = field(default=(), repr=False, kw_only=True)
    sets: SetRule | None = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "subpolicies", tuple(self.subpolicies))
        checked_set(self.seen)
        for sub in self.subpolicies:
            if not isinstance(sub, SubPolicy):
                raise RelookError(
                    f"expected a policy of SubPolicy objects, got {type(sub).__name__}: {sub!r}"
                )
        if self.temperatures is not None:
            temperatures = _checked_temperatures(self.temperatures, len(self.subpolicies))
            object.__setattr__(self, "temperatures", temperatures)
        if self.recipe is not None and not isinstance(self.recipe, str):
            raise RelookError(f"expected a recipe's name or None, got {self.recipe!r}")
        object.__setattr__(self, "seed", check_seed(self.seed))
        temperature = _checked_temperature("view_temperature", self.view_temperature)
        object.__setattr__(self, "view_temperature", temperature)
        if self.sets is not None and (self.sets.temperature,) != (self.temperatures or ())[-1:]:
            object.__setattr__(self, "sets", None)

    @overload
    def __getitem__(self, key: SupportsIndex) -> SubPolicy: ...
    @overload
    def __getitem__(self, key: slice) -> Policy: ...
    def __getitem__(self, key: SupportsIndex | slice) -> SubPolicy | Policy:
        if not isinstance(key, slice):
            return self.subpolicies[key]
        picked = self.subpolicies[key]
        # Temperatures are those of prefixes, so only a prefix keeps them.
        start, _, step = key.indices(len(self))
        kept = None
        if self.temperatures is not None and start == 0 and step == 1:
            kept = self.temperatures[: len(picked)]
        sets = self.sets if len(picked) == len(self) else None
        return replace(self, subpolicies=picked, temperatures=kept, sets=sets)

    def __len__(self) -> int:
        return len(self.subpolicies)

    def __iter__(self) -> Iterator[SubPolicy]:
        return iter(self.subpolicies)

    @property
    def is_fixed(self) -> bool:
        """Whether the policy makes the same views of an image at every use."""
        return all(sub.is_fixed for sub in self.subpolicies)

    @property
    def views(self) -> int:
        """How many model passes each image costs; repeats of fixed sub-policies cost nothing."""
        fixed = {sub for sub in self.subpolicies if sub.is_fixed}
        return len(fixed) + sum(not sub.is_fixed for sub in self.subpolicies)

    def for_budget(self, views: int) -> Policy:
        """Return the longest prefix that costs at most `views` model passes per image."""
        if views < 1:
            raise RelookError(f"expected a budget of at least 1 view, got {views}")
        cost, paid = 0, set[SubPolicy]()
        for length, sub in enumerate(self.subpolicies):
            cost += sub not in paid
            if cost > views:
                return self[:length]
            if sub.is_fixed:
                paid.add(sub)
        return self

    def counts(self) -> list[tuple[SubPolicy, int]]:
        """Return the distinct sub-policies in order of first use, and how often each is used."""
        return list(Counter(self.subpolicies).items())

    def tempered(self, log_probs: LogProbs) -> LogProbs:
        """Return views' log-probabilities `[…, class]` at the view temperature κ.

        These are what is averaged: log softmax(log p / κ), or the input itself if κ = 1.
        """
        if self.view_temperature == 1:
            return log_probs
        return temper(log_probs, self.view_temperature)

    def freeze(self, seed: int) -> Policy:
        """Return the policy with every constant drawn once, for all images, and no temperatures."""
        from relook.policy.views import freeze_subpolicy

        frozen = (freeze_subpolicy(sub, seed, view) for view, sub in enumerate(self))
        return replace(self, subpolicies=tuple(frozen), temperatures=None, seed=seed, halves=())

    def save(self, path: str | Path) -> None:
        """Write the policy as JSON (docs/policy.schema.json), atomically."""
        from relook.policy.file import save_policy

        save_policy(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy file, or return the preset of `preset:NAME`."""
        from relook.policy.file import load_policy
        from relook.policy.presets import is_preset, named_preset, nearest_preset

        if is_preset(path):
            return named_preset(path)
        nearest = nearest_preset(path)
        if nearest is not None:
            raise RelookError(
                f"expected a policy file or a preset, got {str(path)!r}, which is neither: "
                f"did you mean {nearest}?"
            )
        return load_policy(Path(path))

    @classmethod
    def preset(
        cls, name: str, views: int | None = None, *, recipe: str | Path = "cifar", seed: int = 0
    ) -> Policy:
        """Return a ready-made policy, not calibrated: plain, flip, 5c, d4, 10c, or crops.

        Random crops are drawn from `recipe` with `seed`, 20 by default.
        """
        from relook.policy.presets import preset

        return preset(name, views, recipe=recipe, seed=seed)

    @classmethod
    def from_reference(cls, path: str | Path) -> Policy:
        """Read a policy published by the authors of GPS (CIFAR .npz or ImageNet .npy)."""
        from relook.policy.reference import load_reference

        return load_reference(Path(path))

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __repr__(self) -> str:
        entries = count(len(self), "entry", "entries")
        return f"Policy({entries}, {views_text(self.views)}, recipe={self.recipe!r})"

    def __str__(self) -> str:
        lines = [f"{count:>3} × {sub}" for sub, count in self.counts()]
        if self.view_temperature != 1:
            lines.append(f"view temperature {self.view_temperature:.4g}")
        return "\n".join(lines) or "empty policy"


def _checked_magnitude(transform: str, magnitude: object) -> float:
    number = _finite(magnitude)
    if number is None or number < 0:
        raise RelookError(f"{transform}: expected a finite magnitude ≥ 0, got {magnitude!r}")
    return abs(number)  # −0.0 would print as “-0”


def _finite(value: object) -> float | None:
    """Return a finite number as a float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _checked_direction(transform: str, signed: bool, direction: object) -> int | None:
    if not signed:
        if direction is not None:
            raise RelookError(f"{transform}: expected no direction, got {direction!r}")
        return None
    if direction is None:
        return 1
    if isinstance(direction, bool) or direction not in (-1, 1):
        raise RelookError(f"{transform}: expected a direction of +1 or −1, got {direction!r}")
    return int(direction)


def _checked_draws(transform: str, names: tuple[str, ...], draws: object) -> Draws | None:
    if draws is None:
        return None
    try:
        given = dict(draws)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise RelookError(f"{transform}: expected draws as a mapping, got {draws!r}") from None
    if set(given) != set(names):
        raise RelookError(
            f"{transform}: expected the draws {list(names)}, got {sorted(map(str, given))}"
        )
    return tuple((name, _checked_draw(transform, name, given[name])) for name in names)


def _checked_draw(transform: str, name: str, value: object) -> float:
    allowed = _ALLOWED_DRAWS.get(name)
    number = float(value) if isinstance(value, bool) else _finite(value)
    if number is None or not (number in allowed if allowed else 0.0 <= number <= 1.0):
        raise RelookError(f"{transform}: expected {name} to be {DRAWS[name]}; got {value!r}")
    return number


def _checked_temperatures(temperatures: Iterable[float], length: int) -> tuple[float, ...]:
    if isinstance(temperatures, str) or not isinstance(temperatures, Iterable):
        raise RelookError(f"expected a list of temperatures, got {temperatures!r}")
    values = [_checked_temperature(f"temperatures[{k}]", t) for k, t in enumerate(temperatures)]
    if len(values) != length:
        raise RelookError(f"expected {length} temperatures, one per prefix, got {len(values)}")
    return tuple(values)


def _checked_temperature(name: str, value: object) -> float:
    number, (low, high) = _finite(value), SOUND_TEMPERATURES
    if number is None or not low <= number <= high:
        raise RelookError(f"{name}: expected a number from {low:g} to {high:g}, got {value!r}")
    return number
