"""A run that never was: realistic files of a comparison on enlarged digits, without a model."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from relook.evaluation.baselines import BASELINES, POLICY_METHOD, label_of
from relook.evaluation.comparison import (
    METRICS_OF_A_ROW,
    Comparison,
    Measured,
    ReliabilityBin,
    Row,
    Verdict,
)
from relook.evaluation.where import ChangedImage, Confusion, Slice, Where
from relook.io.files import write_json_atomic
from relook.numerics.intervals import Interval
from relook.numerics.metrics import SelectiveRisks, selective
from relook.policy import Policy
from relook.policy.pool import sample_pool

BUDGETS = (1, 5, 10, 20)
CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
IMAGES = 599

# cLL, its gain with many views, accuracy, its gain, temperature with many views
_METHODS = {
    "plain": (0.0, 0.0, 0.0, 0.0, 1.31),
    "flip": (-0.09, 0.0, -0.030, 0.0, 1.02),
    "5c": (0.006, 0.0, 0.002, 0.0, 1.22),
    "d4": (-0.21, 0.0, -0.071, 0.0, 0.81),
    "10c": (-0.055, 0.0, -0.017, 0.0, 0.98),
    "cf": (-0.012, 0.034, -0.004, 0.009, 1.07),
    "mtrain": (-0.66, 0.38, -0.16, 0.11, 0.55),
    "mgrid": (-0.035, 0.059, -0.012, 0.018, 0.93),
    "random": (-0.11, 0.112, -0.031, 0.03, 0.88),
    POLICY_METHOD: (0.004, 0.046, 0.003, 0.013, 0.97),
}


def example_policy(seed: int = 3, length: int = 20) -> Policy:
    """Twenty entries, fixed draws, some of them repeated, the plain image among them."""
    pool = sample_pool("small", 60, seed=seed)
    generator = np.random.default_rng(seed)
    favourites = generator.choice(len(pool) - 1, size=12, replace=False)
    picks = [len(pool) - 1, *generator.choice(favourites, size=length - 1)]
    temperatures = tuple(1.31 - 0.34 * (1 - exp(-k / 4)) for k in range(length))
    return Policy(tuple(pool[pick] for pick in picks), temperatures, recipe="small", seed=seed)


def example_comparison(
    *,
    classes: Sequence[str] = CLASSES,
    outcome: str = "helps",
    runs: int = 1,
    settings: dict[str, Any] | None = None,
) -> Comparison:
    policy = example_policy()
    tilts = {"plain": -0.075, "policy": -0.02}
    tilts |= {"plain_calibrated": -0.012, "policy_calibrated": 0.008}
    return Comparison(
        policy=policy,
        rows=tuple(_rows(policy, runs)),
        budgets=BUDGETS,
        verdict=_verdict(outcome),
        reliability={name: _bins(tilt) for name, tilt in tilts.items()},
        gained=tuple(_changed(range(40, 46), len(classes), better=True)),
        lost=tuple(_changed(range(60, 63), len(classes), better=False)),
        gained_count=11,
        lost_count=3,
        gallery=(3, 14, 15, 92, 65, 35),
        images=IMAGES,
        classes=tuple(classes),
        where=_where(tuple(classes)),
        selective=_selective(),
        settings={
            "recipe": "small",
            "left_out": {},
            "seed": 0,
            "runs": runs,
            "budgets": list(BUDGETS),
            "margin": 0.001,
            "model": {"spec": "runs/demo/model.safetensors", "fingerprint": "5d1c" * 8},
            "data": {"spec": "digits", "images": IMAGES},
            **(settings or {}),
        },
    )


def _where(classes: tuple[str, ...]) -> Where:
    """Classes that gain more and more, a losing one first, and a last one that is too small."""
    slices = [
        Slice(
            "class",
            name,
            60,
            Interval(0.02 * k - 0.06, 0.02 * k - 0.1, 0.02 * k - 0.02, 0.998),
            Interval(0.002 * k - 0.006, 0.002 * k - 0.02, 0.002 * k + 0.01, 0.998),
            examples=(60, 61) if k == 0 else (),
        )
        for k, name in enumerate(classes[:-1])
    ]
    few = Slice("class", classes[-1], 9)
    gains = Interval(0.01, -0.01, 0.03, 0.998), Interval(0, 0, 0, 0.998)
    bright = Slice("brightness", "3 to 70", 300, *gains)
    mended = tuple(Confusion(k, k + 1, 4 - k, (40 + k,)) for k in range(min(3, len(classes) - 1)))
    made = (Confusion(0, 1, 2, (60, 61)),)
    return Where(POLICY_METHOD, "policy", 10, 10, (*slices, few, bright), mended, made)


def _selective() -> SelectiveRisks:
    chance = np.random.default_rng(0).uniform(size=(3, IMAGES))
    sure = 1 - chance[0] ** 2 / 2
    plain = sure, (chance[1] < sure).astype(float)
    right = (chance[1] < sure + 0.03).astype(float)
    return SelectiveRisks(
        plain=replace(selective(*plain), adaptive_ece=0.021, classwise_ece=0.006),
        policy=replace(selective(sure, right, plain), adaptive_ece=0.012, classwise_ece=0.004),
        disagreement=selective(sure - chance[2] / 9, right, plain),
    )


def write_example_run(directory: Path, comparison: Comparison | None = None) -> Path:
    """Write the files of a run that was searched and compared."""
    comparison = comparison or example_comparison()
    directory.mkdir(parents=True, exist_ok=True)
    comparison.save(directory / "comparison.json")
    comparison.policy.save(directory / "policy.json")
    write_search(directory, comparison.policy)
    write_examples(directory, comparison)
    return directory


def write_search(directory: Path, policy: Policy) -> None:
    """Write search.json and run.json as `relook search` does."""
    directory.mkdir(parents=True, exist_ok=True)
    steps = [
        {
            "pick": 7 * t,
            "subpolicy": str(sub),
            "score": -0.171 + 0.05 * (1 - exp(-t / 4)),
            "temperature": (policy.temperatures or (1.0,) * len(policy))[t],
            "views": policy[: t + 1].views,
        }
        for t, sub in enumerate(policy)
    ]
    content = {"format": "relook-search", "version": 1, "steps": steps, "pool": []}
    write_json_atomic(directory / "search.json", content)
    command = "relook search --model runs/demo/model.safetensors --data digits --out runs/demo"
    write_json_atomic(
        directory / "run.json",
        {
            "format": "relook-run",
            "version": 1,
            "finished": "2024-05-01T12:00:00+00:00",
            "origin": {"command": command.split()},
            "settings": {"length": len(policy), "pool_size": 400, "draws": "fixed"},
            "data": {"name": "digits", "images": 1198, "shape": [1, 32, 32]},
            "split": {"search": 1198, "held_out": IMAGES},
            "notes": [],
            "seconds": {"predict": 12.3, "select": 0.8, "evaluate": 4.2},
            "versions": {"relook": "0.1.0", "python": "3.11.2", "torch": "2.13.0"},
        },
    )


def write_examples(directory: Path, comparison: Comparison) -> None:
    """Write examples.npz: the images that gallery, gained and lost name."""
    directory.mkdir(parents=True, exist_ok=True)
    changed = [one.index for one in (*comparison.gained, *comparison.lost)]
    indices = np.array(sorted({*comparison.gallery, *changed}), dtype=np.int64)
    digits = load_digits()
    np.savez(
        directory / "examples.npz",
        indices=indices,
        images=_enlarged(digits.images[indices]),
        labels=digits.target[indices].astype(np.int64),
    )


def _enlarged(images: NDArray[np.float64]) -> NDArray[np.uint8]:
    small = torch.from_numpy(images)[:, None] * (255 / 16)
    large = torch.nn.functional.interpolate(small, size=(32, 32), mode="bilinear")
    return large.round().to(torch.uint8).numpy()


def _rows(policy: Policy, runs: int) -> list[Row]:
    found = []
    for method in (*BASELINES, POLICY_METHOD):
        if method == POLICY_METHOD:
            places = [(budget, policy.for_budget(budget).views) for budget in range(1, 21)]
        else:
            fixed = BASELINES[method].budget
            places = [(b, b) for b in ([fixed] if fixed else sorted({*BUDGETS, 2, 3, 7, 15}))]
        found += [_row(method, budget, views, runs) for budget, views in places]
    return found


def _row(method: str, budget: int, views: int, runs: int) -> Row:
    start, gain, accuracy, more, cool = _METHODS[method]
    noise = np.random.default_rng([views, len(method), ord(method[0])]).normal(size=3)
    share = log(views) / log(20) if views > 1 else 0.0
    cll = start + gain * share + 0.001 * noise[0] * (method != "plain")
    right = accuracy + more * share + 0.0012 * noise[1] * (method != "plain")
    wide = 0.0035 + 0.03 * abs(cll)
    values = (
        0.9568 + right,
        -0.1714 + cll - 0.02,
        -0.1518 + cll,
        0.071 - 0.2 * cll,
        0.069 - 0.2 * cll,
        0.021 + abs(cool - 1) * 0.1,
        0.009 + 0.002 * abs(noise[2]),
        1.31 + (cool - 1.31) * (0.55 + 0.45 * share),
    )
    deviation = 0.0007 if runs > 1 and method not in ("plain", "5c", "10c", "d4", "flip") else 0.0
    differences = None
    if method != "plain":
        differences = {
            "cll": Interval(cll, cll - wide, cll + wide * 0.9, 0.95),
            "accuracy": Interval(right, right - 0.6 * wide, right + 0.6 * wide, 0.95),
        }
    return Row(
        method=method,
        label=label_of(method),
        budget=budget,
        views=views,
        slowdown=1.0 if method == "plain" else 0.15 + 0.96 * views,
        metrics={
            name: Measured(float(value), deviation)
            for name, value in zip(METRICS_OF_A_ROW, values, strict=True)
        },
        over_plain=differences,
        over_rival=differences if method == POLICY_METHOD else None,
        rival="cf" if method == POLICY_METHOD else None,
    )


def _verdict(outcome: str) -> Verdict:
    name, method, views = {
        "helps": ("the learned policy with 5 views, as good as 11", POLICY_METHOD, 5),
        "averaging helps": ("random crops (CF) with 10 views", "cf", 10),
    }.get(outcome, ("the plain image", "plain", 1))
    sentence = (
        f"{outcome.capitalize()}: use {name}. The learned policy with 11 views, compared with the "
        "plain image: held-out cLL +0.0421 [+0.0373, +0.0464], accuracy +1.3 points [+1.0, +1.6]. "
        "The policy takes about 11 × the time of one view."
    )
    return Verdict(outcome, sentence, method, views)


def _bins(tilt: float) -> tuple[ReliabilityBin, ...]:
    bins = []
    for number in range(15):
        confidence = (number + 0.5) / 15
        share = exp(3.4 * (confidence - 1))
        accuracy = confidence + tilt * 4 * confidence * (1 - confidence) + 0.02 * (-1) ** number
        bins.append(ReliabilityBin(share, confidence, min(1.0, max(0.0, accuracy))))
    total = sum(one.share for one in bins)
    return (
        ReliabilityBin(0.0, 0.0, 0.0),
        *(ReliabilityBin(b.share / total, b.confidence, b.accuracy) for b in bins[1:]),
    )


def _changed(indices: Sequence[int], classes: int, better: bool) -> list[ChangedImage]:
    target = load_digits().target
    found = []
    for index in indices:
        label = int(target[index]) % classes
        other = (label + 1 + index) % classes
        other = (other + 1) % classes if other == label else other
        low, high = 0.12 + 0.03 * (index % 7), 0.55 + 0.05 * (index % 8)
        before, after = (other, label) if better else (label, other)
        chances = (low, high) if better else (high, low)
        found.append(ChangedImage(index, label, before, after, *chances))
    return found
