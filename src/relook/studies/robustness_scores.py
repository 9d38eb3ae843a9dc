"""Errors under corruptions, from each image to rows of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relook.evaluation.baselines import POLICY_METHOD, label_of
from relook.evaluation.results import Result, difference, measured
from relook.evaluation.scoring import Key, Scored, Setup, best_rival
from relook.numerics.arrays import FloatArray
from relook.numerics.intervals import Interval
from relook.studies.corruption_error import mean_over_corruptions, unnormalised
from relook.studies.corruption_error import normalised as normalised_errors

CLEAN = ("clean", 0)
Condition = tuple[str, int]
"""A corruption and a severity."""


@dataclass
class Tally:
    """What is found on the way, by method and budget.

    `errors[key][condition]` holds 1 where an image is wrong, `[n]`, averaged over runs;
    `rates` the error rates and `clls` the cLLs of the runs.
    """

    errors: dict[Key, dict[Condition, FloatArray]] = field(default_factory=dict)
    rates: dict[Key, dict[Condition, list[float]]] = field(default_factory=dict)
    clls: dict[Key, dict[Condition, list[float]]] = field(default_factory=dict)
    views: dict[Key, int] = field(default_factory=dict)

    def add(self, condition: Condition, one: Scored) -> None:
        """Take in one run."""
        key, wrong = (one.line.method, one.budget), 1 - one.evaluation.per_image["accuracy"]
        rates = self.rates.setdefault(key, {}).setdefault(condition, [])
        before = self.errors.setdefault(key, {}).get(condition, np.zeros(len(wrong)))
        self.errors[key][condition] = (before * len(rates) + wrong) / (len(rates) + 1)
        rates.append(float(wrong.mean()))
        clls = self.clls.setdefault(key, {}).setdefault(condition, [])
        clls.append(one.evaluation.metrics["cll"])
        self.views[key] = max(one.views, self.views.get(key, 0))

    def uce(self, key: Key, corruptions: Sequence[str], severities: Sequence[int]) -> FloatArray:
        """Return each image's mean error over corruptions and severities, `[n]`."""
        found = [self.errors[key][name, s] for name in corruptions for s in severities]
        return np.asarray(np.mean(found, axis=0))


def rows_of(
    setup: Setup,
    tally: Tally,
    methods: Sequence[str],
    names: Sequence[str],
    levels: Sequence[int],
    normalised: bool,
) -> Iterator[Result]:
    """Yield each method's errors and cLL at each budget, and its differences to others."""
    muce = {key: float(tally.uce(key, names, levels).mean()) for key in tally.errors}
    for key in sorted(muce, key=lambda key: (methods.index(key[0]), key[1])):
        keys = {
            "data": setup.dataset.name,
            "method": key[0],
            "label": label_of(key[0]),
            "budget": key[1],
            "views": tally.views[key],
            "images": len(setup.dataset),
        }
        yield from _levels(tally.rates[key], tally.clls[key], names, levels, normalised, keys)
        rival = best_rival(key, {one: -error for one, error in muce.items()})
        for kind, other in (("rival", rival), ("plain", ("plain", 1))):
            if other is not None and other != key:
                about_it = {**keys, "versus": kind, "reference": other[0]}
                yield from _differences(setup, tally, key, other, names, levels, about_it)


def _levels(
    rates: Mapping[Condition, Sequence[float]],
    clls: Mapping[Condition, Sequence[float]],
    names: Sequence[str],
    levels: Sequence[int],
    normalised: bool,
    keys: Mapping[str, Any],
) -> Iterator[Result]:
    yield Result("clean_error", float(np.mean(rates[CLEAN])), keys=keys)
    yield Result("clean_cll", float(np.mean(clls[CLEAN])), keys=keys)
    conditions = [(name, level) for name in names for level in levels]
    yield measured("muce", np.mean([rates[one] for one in conditions], axis=0), **keys)
    yield Result("cll", float(np.mean([clls[one] for one in conditions])), keys=keys)
    errors = {name: [float(np.mean(rates[name, level])) for level in levels] for name in names}
    if normalised:
        ratios = normalised_errors(errors)
        yield Result("mce", mean_over_corruptions(ratios), keys=keys)
        for name, ratio in ratios.items():
            yield Result("ce", ratio, keys={**keys, "corruption": name})
    for name, value in unnormalised(errors).items():
        yield Result("uce", value, keys={**keys, "corruption": name})
    for name, level in conditions:
        own = {**keys, "corruption": name, "severity": level}
        yield measured("error", rates[name, level], **own)
        yield measured("cll", clls[name, level], **own)


def _differences(
    setup: Setup,
    tally: Tally,
    one: Key,
    other: Key,
    names: Sequence[str],
    levels: Sequence[int],
    keys: Mapping[str, Any],
) -> Iterator[Result]:
    """Yield the difference in muCE, and for the policy in each uCE; an image counts whole."""

    def change(own: Sequence[str]) -> Interval:
        return setup.paired(tally.uce(one, own, levels), tally.uce(other, own, levels))

    yield difference("muce", change(names), **keys)
    if one[0] == POLICY_METHOD:
        for name in names:
            yield difference("uce", change([name]), **keys, corruption=name)
