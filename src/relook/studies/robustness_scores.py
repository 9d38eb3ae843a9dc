"""Corruption errors (uCE, muCE, CE and mCE; the paper's section on domain shift), as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from relook.errors import RelookError
from relook.evaluation.baselines import POLICY_METHOD, label_of
from relook.evaluation.results import Result, difference, measured
from relook.evaluation.scoring import Key, Scored, best_rival
from relook.evaluation.setup import Setup
from relook.numerics.arrays import FloatArray
from relook.numerics.intervals import Interval
from relook.studies.corruptions import SEVERITIES

ALEXNET_ERRORS = MappingProxyType(
    {
        "gaussian_noise": 0.886428,
        "shot_noise": 0.894468,
        "impulse_noise": 0.922640,
        "defocus_blur": 0.819880,
        "glass_blur": 0.826268,
        "motion_blur": 0.785948,
        "zoom_blur": 0.798360,
        "snow": 0.866816,
        "frost": 0.826572,
        "fog": 0.819324,
        "brightness": 0.564592,
        "contrast": 0.853204,
        "elastic_transform": 0.646056,
        "pixelate": 0.717840,
        "jpeg_compression": 0.606500,
    }
)
"""AlexNet's mean error over the five severities of ImageNet-C, central crop.

Published by the authors of ImageNet-C (Hendrycks and Dietterich, ICLR 2019,
github.com/hendrycks/robustness) as the divisors of CE.
"""

IMAGENET_CLASSES = 1000

Errors = Mapping[str, Sequence[float]]
"""Error rates (0 … 1) by corruption, one for each severity."""


def normalised_errors(errors: Errors) -> dict[str, float]:
    """Return CE by corruption: the sum of its errors over the sum of AlexNet's.

    It is only defined for the corruptions and five severities of ImageNet-C.
    """
    normalised = {}
    for name, rates in errors.items():
        if name not in ALEXNET_ERRORS or len(rates) != len(SEVERITIES):
            raise RelookError(
                f"CE of {name}: expected a corruption of ImageNet-C at its five severities, got "
                f"{len(rates)} error rates"
            )
        normalised[name] = sum(rates) / (len(SEVERITIES) * ALEXNET_ERRORS[name])
    return normalised


CLEAN = ("clean", 0)
Condition = tuple[str, int]
"""A corruption and a severity."""


@dataclass
class Tally:
    """Scores by method and budget under corruptions at severities, collected run by run.

    `errors[key][condition]` `[n]` is 1 for misclassified images, averaged over runs; `rates` are
    the error rates and `clls` the cLLs of the runs.
    """

    corruptions: Sequence[str]
    severities: Sequence[int]
    classes: int = 0
    errors: dict[Key, dict[Condition, FloatArray]] = field(default_factory=dict)
    rates: dict[Key, dict[Condition, list[float]]] = field(default_factory=dict)
    clls: dict[Key, dict[Condition, list[float]]] = field(default_factory=dict)
    views: dict[Key, int] = field(default_factory=dict)

    @property
    def conditions(self) -> list[Condition]:
        """Every corruption at every severity."""
        return [(name, level) for name in self.corruptions for level in self.severities]

    @property
    def normalised(self) -> bool:
        """Whether CE is defined: for ImageNet's classes at all five severities."""
        return self.classes == IMAGENET_CLASSES and tuple(self.severities) == SEVERITIES

    def add(self, condition: Condition, one: Scored) -> None:
        """Add the scores of one run."""
        key, wrong = one.key, 1 - one.evaluation.per_image["accuracy"]
        rates = self.rates.setdefault(key, {}).setdefault(condition, [])
        before = self.errors.setdefault(key, {}).get(condition, np.zeros(len(wrong)))
        self.errors[key][condition] = (before * len(rates) + wrong) / (len(rates) + 1)
        rates.append(float(wrong.mean()))
        clls = self.clls.setdefault(key, {}).setdefault(condition, [])
        clls.append(one.evaluation.metrics["cll"])
        self.views[key] = max(one.views, self.views.get(key, 0))
        self.classes = one.log_probs.shape[1]

    def uce(self, key: Key, corruptions: Sequence[str]) -> FloatArray:
        """Return each image's mean error over corruptions and severities, `[n]`."""
        errors = [self.errors[key][name, s] for name in corruptions for s in self.severities]
        return np.asarray(np.mean(errors, axis=0))


def result_rows(setup: Setup, tally: Tally, methods: Sequence[str]) -> Iterator[Result]:
    """Yield each method's errors and cLL at each budget, and its differences to others."""
    muce = {key: float(tally.uce(key, tally.corruptions).mean()) for key in tally.errors}
    for key in sorted(muce, key=lambda key: (methods.index(key[0]), key[1])):
        keys = {
            "data": setup.dataset.name,
            "method": key[0],
            "label": label_of(key[0]),
            "budget": key[1],
            "views": tally.views[key],
            "images": len(setup.dataset),
        }
        yield from _levels(tally, key, keys)
        rival = best_rival(key, {one: -error for one, error in muce.items()})
        for kind, other in (("rival", rival), ("plain", ("plain", 1))):
            if other is not None and other != key:
                compared = {**keys, "versus": kind, "reference": other[0]}
                yield from _differences(setup, tally, key, other, compared)


def _levels(tally: Tally, key: Key, keys: Mapping[str, Any]) -> Iterator[Result]:
    rates, clls = tally.rates[key], tally.clls[key]
    yield Result("clean_error", float(np.mean(rates[CLEAN])), keys=keys)
    yield Result("clean_cll", float(np.mean(clls[CLEAN])), keys=keys)
    yield measured("muce", np.mean([rates[one] for one in tally.conditions], axis=0), **keys)
    yield Result("cll", float(np.mean([clls[one] for one in tally.conditions])), keys=keys)
    errors = {
        name: [float(np.mean(rates[name, level])) for level in tally.severities]
        for name in tally.corruptions
    }
    if tally.normalised:
        ratios = normalised_errors(errors)
        yield Result("mce", float(np.mean(list(ratios.values()))), keys=keys)
        for name, ratio in ratios.items():
            yield Result("ce", ratio, keys={**keys, "corruption": name})
    for name, own in errors.items():
        yield Result("uce", float(np.mean(own)), keys={**keys, "corruption": name})
    for name, level in tally.conditions:
        condition = {**keys, "corruption": name, "severity": level}
        yield measured("error", rates[name, level], **condition)
        yield measured("cll", clls[name, level], **condition)


def _differences(
    setup: Setup, tally: Tally, one: Key, other: Key, keys: Mapping[str, Any]
) -> Iterator[Result]:
    """Yield the difference in muCE and, for the policy, in each uCE, paired over images."""

    def change(own: Sequence[str]) -> Interval:
        return setup.paired(tally.uce(one, own), tally.uce(other, own))

    yield difference("muce", change(tally.corruptions), **keys)
    if one[0] == POLICY_METHOD:
        for name in tally.corruptions:
            yield difference("uce", change([name]), **keys, corruption=name)
