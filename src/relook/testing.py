"""Checks for transforms, objectives … that you add to relook; its own pass the same ones.

Each returns nothing, or raises an AssertionError with the broken requirement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.data import Dataset, Preparation, load_data
from relook.errors import unknown_name
from relook.evaluation.baselines import BASELINES, Baseline, Options
from relook.models import Predictor, load_model
from relook.policy import DrawKind
from relook.policy.file import policy_from_json, policy_to_json
from relook.policy.recipes import RECIPES, Recipe
from relook.policy.views import apply_subpolicy, to_draw
from relook.selection.objectives import OBJECTIVES, Objective, own_objective
from relook.transforms import DRAWS, TRANSFORMS, Transform
from relook.transforms.table import own_transform

_LARGEST_MAGNITUDE = 60
_SEEDS = 10
_VIEWS = 6
_CLASSES = 5
_CLOSE = 1e-12


def check_transform(transform: str | Transform | Callable[..., Tensor], **row: Any) -> None:
    """Check a registered transform by its name, or a function that is to be registered.

    `row` has the keywords that `register_transform` will get with the function.
    """
    found = _row(transform, TRANSFORMS, "transform")
    if not isinstance(found, Transform):
        found = own_transform(getattr(found, "__name__", "function"), found, **row)
    name = found.name
    _expect(set(found.draws) <= set(DRAWS), f"{name}: expected draws of {', '.join(DRAWS)}")
    _check_values(found)
    for shape in ((5, 3, 20, 20), (5, 1, 28, 28)):
        _check_images(found, _noise(*shape))
        _check_zero(found, _noise(shape[0], shape[1], 3 * shape[2], 3 * shape[3]))
    for side in (32, 60):
        _check_one_by_one(found, _noise(23, 3, side, side))
    _check_layouts(found, _noise(6, 3, 14, 14))
    empty = found.kernel(_noise(0, 3, 12, 16), **parameters(found, []))
    _expect(empty.shape == (0, 3, 12, 16), f"{name}: expected no images of none")


def check_objective(
    objective: str | Objective | Callable[..., float], *, weighted: bool = False
) -> None:
    """Check a registered objective by its name, or a function that is to be registered."""
    found = _row(objective, OBJECTIVES, "objective")
    if not isinstance(found, Objective):
        found = own_objective(getattr(found, "__name__", "function"), found, weighted=weighted)
    log_probs, labels = _predictions()
    right, wrong = _sure_of(labels), _sure_of((labels + 1) % _CLASSES)
    even = np.full_like(log_probs, -np.log(_CLASSES))
    for images in (1, len(labels)):
        for rows in (log_probs, right, wrong, even):
            _score(found, rows[:images], labels[:images])
    usual, best = _score(found, log_probs, labels), _score(found, right, labels)
    _expect(
        best > usual and best > _score(found, wrong, labels),
        f"{found.name}: expected more for predictions that are sure and right than for others",
    )
    generator = np.random.default_rng(1)
    order, classes = generator.permutation(len(labels)), generator.permutation(_CLASSES)
    renamed = np.argsort(classes)[labels]
    for rows, own in ((log_probs[order], labels[order]), (log_probs[:, classes], renamed)):
        _expect(
            abs(_score(found, rows, own) - usual) <= _CLOSE,
            f"{found.name}: expected the same whatever the order of images and classes",
        )
    if found.weighted:
        _check_weights(found, log_probs, labels)


def check_baseline(baseline: str | Baseline) -> None:
    """Check a registered baseline by its name."""
    row = _row(baseline, BASELINES, "baseline")
    for recipe in RECIPES.values():
        for draws in get_args(DrawKind):
            _check_baseline(row, recipe, draws)


def check_model_source(spec: str, images: Tensor) -> None:
    """Check the model of a spec with images that it accepts: uint8 `[n, c, h, w]`."""
    predictor, before = load_model(spec), images.clone()
    log_probs = predictor(images)
    _expect(isinstance(predictor, Predictor), f"{spec}: expected a Predictor")
    _expect(
        (log_probs.dtype, log_probs.device.type, log_probs.ndim, len(log_probs))
        == (torch.float32, "cpu", 2, len(images)),
        f"{spec}: expected float32 [{len(images)}, class] on the CPU, got {log_probs.dtype} "
        f"{list(log_probs.shape)} on {log_probs.device}",
    )
    _expect(predictor.classes in (None, log_probs.shape[1]), f"{spec}: expected its own classes")
    sums = log_probs.double().exp().sum(dim=1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    _expect(torch.equal(images, before), f"{spec}: the model wrote into its images")
    alone = torch.cat([predictor(image[None]) for image in images])
    torch.testing.assert_close(log_probs, alone, atol=1e-4, rtol=0)
    again = load_model(spec)
    for one in (predictor, again):
        _expect(torch.equal(one(images), log_probs), f"{spec}: expected the same each time")
    _expect(
        bool(again.fingerprint) and again.fingerprint == predictor.fingerprint,
        f"{spec}: expected the same fingerprint each time",
    )


def check_data_source(spec: str) -> None:
    """Check the labelled images of a spec."""
    found = load_data(spec)
    _check_dataset(found, spec)
    again, whole = load_data(spec), found.subset(np.arange(len(found)))
    height, width = found.images.shape[2:]
    same = load_data(spec, Preparation((height, width), channels=found.images.shape[1]))
    for one, what in (
        (again, "loaded again"),
        (whole, "as a subset of all"),
        (same, "at their size"),
    ):
        _expect(one.fingerprint == found.fingerprint, f"{spec}: {what}, the images are others")
    for channels in (1, 3):
        other = load_data(spec, Preparation((24, 20), channels=channels))
        _expect(
            tuple(other.images.shape[1:]) == (channels, 24, 20) and other.plain.is_contiguous(),
            f"{spec}: expected images of any size and channels, got {list(other.images.shape)}",
        )


def parameters(row: Transform, magnitudes: Sequence[float], seed: int = 0) -> dict[str, Tensor]:
    """Return values and random draws for a batch, one magnitude per image."""
    signs = [(-1) ** i if row.signed else 1 for i in range(len(magnitudes))]
    values = [sign * row.value(m) for sign, m in zip(signs, magnitudes, strict=True)]
    generator = np.random.default_rng(seed)
    draws = {name: to_draw(name, generator.random(len(values))) for name in row.draws}
    tensors = {name: torch.from_numpy(draw) for name, draw in draws.items()}
    return {"values": torch.tensor(values, dtype=torch.float64), **tensors}


def _row(given: Any, table: Mapping[str, Any], what: str) -> Any:
    if not isinstance(given, str):
        return given
    if given not in table:
        raise unknown_name(what, given, table)
    return table[given]


def _expect(kept: bool, promise: str) -> None:
    if not kept:
        raise AssertionError(promise)


def _noise(*shape: int) -> Tensor:
    # Not the whole range, so that stretching the contrast has an effect.
    levels = np.random.default_rng(0).integers(20, 200, shape, dtype=np.uint8)
    return torch.from_numpy(levels)


def _spread(count: int) -> list[float]:
    return [_LARGEST_MAGNITUDE * i / (count - 1) for i in range(count)]


def _check_values(row: Transform) -> None:
    steps = np.diff([row.value(m) for m in np.linspace(0, _LARGEST_MAGNITUDE, 601)])
    moves = bool((row.trend * steps >= 0).all() and row.trend * steps.sum() > 0)
    _expect(
        moves if row.trend else not steps.any(),
        f"{row.name}: expected a value that moves with the magnitude as trend={row.trend} says",
    )


def _check_images(row: Transform, images: Tensor) -> None:
    before, given = images.clone(), parameters(row, _spread(len(images)))
    kept = {name: tensor.clone() for name, tensor in given.items()}
    result = row.kernel(images, **given)
    got = (result.shape, result.dtype, result.device)
    wanted = (images.shape, torch.uint8, images.device)
    _expect(got == wanted, f"{row.name}: expected images like those given, got {got}")
    _expect(torch.equal(row.kernel(images, **given), result), f"{row.name}: differs when repeated")
    result.fill_(7)
    _expect(torch.equal(images, before), f"{row.name}: expected new images, not the given ones")
    same = all(torch.equal(given[name], kept[name]) for name in kept)
    _expect(same, f"{row.name}: writes into its values or draws")


def _check_zero(row: Transform, images: Tensor) -> None:
    """Images should be large, so that 1 % of the area is a pixel."""
    for seed in range(_SEEDS if row.identity_at_zero else 0):
        result = row.kernel(images, **parameters(row, [0.0] * len(images), seed))
        _expect(torch.equal(result, images), f"{row.name}: changes images at magnitude 0")


def _check_one_by_one(row: Transform, images: Tensor) -> None:
    given = parameters(row, _spread(len(images)))
    whole = row.kernel(images, **given)
    for i in range(len(images)):
        own = {name: tensor[i : i + 1] for name, tensor in given.items()}
        alone = row.kernel(images[i : i + 1], **own)
        _expect(torch.equal(alone[0], whole[i]), f"{row.name}: image {i} depends on its batch")


def _check_layouts(row: Transform, images: Tensor) -> None:
    n, c, h, w = images.shape
    wide = torch.zeros((n, c, 2 * h, 2 * w), dtype=torch.uint8)
    wide[:, :, ::2, 1::2] = images
    repeated = images[:1, :1].expand(n, c, h, w)
    for given in (
        images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
        images.transpose(2, 3).contiguous().transpose(2, 3),
        wide[:, :, ::2, 1::2],
        repeated,
    ):
        how = parameters(row, _spread(n))
        same = torch.equal(row.kernel(given, **how), row.kernel(given.contiguous(), **how))
        _expect(same, f"{row.name}: depends on how images lie in memory")


def _predictions() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    generator = np.random.default_rng(0)
    labels = generator.integers(_CLASSES, size=80)
    logits = 1.5 * generator.standard_normal((80, _CLASSES))
    logits[np.arange(80), labels] += 2
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), labels


def _sure_of(classes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return log-probabilities that give 1 to these classes and 0 to all others."""
    with np.errstate(divide="ignore"):
        return np.log(np.eye(_CLASSES)[classes])


def _score(row: Objective, log_probs: Any, labels: Any, weights: Any = None) -> float:
    before = log_probs.tobytes(), labels.tobytes()
    value = row.score(log_probs, labels, weights)
    _expect(
        isinstance(value, float) and bool(np.isfinite(value)),
        f"{row.name}: expected a finite number, got {value!r}",
    )
    _expect((log_probs.tobytes(), labels.tobytes()) == before, f"{row.name}: changes its input")
    return value


def _check_weights(row: Objective, log_probs: Any, labels: Any) -> None:
    counts = np.random.default_rng(1).integers(0, 4, size=len(labels))
    weighted = _score(row, log_probs, labels, counts.astype(np.float64))
    repeated = _score(row, log_probs.repeat(counts, axis=0), labels.repeat(counts))
    even = _score(row, log_probs, labels, np.full(len(labels), 3.0))
    _expect(
        abs(weighted - repeated) <= 1e-9 and abs(even - _score(row, log_probs, labels)) <= _CLOSE,
        f"{row.name}: expected weights to count as repeated images",
    )


def _check_baseline(row: Baseline, recipe: Recipe, draws: DrawKind) -> None:
    where, options = f"{row.name} with the recipe {recipe.name}", Options(grid_magnitude=25.0)
    wanted = row.budget or _VIEWS
    policy = row.policy(recipe, wanted, 3, draws, options)
    _expect(
        len(policy) == policy.views == wanted and (draws == "fresh" or policy.is_fixed),
        f"{where}: expected {wanted} different views of {draws} draws, got {policy.views}",
    )
    again, other = (row.policy(recipe, wanted, seed, draws, options) for seed in (3, 4))
    _expect(again == policy, f"{where}: expected views that follow from the seed alone")
    same = other.subpolicies == policy.subpolicies
    if draws == "fixed" or not row.random:
        _expect(same != row.random, f"{where}: expected random={row.random} to be true")
    for views in () if row.budget else (1, 2, 5):
        fewer = row.policy(recipe, views, 3, draws, options)
        begins = fewer.subpolicies == policy.subpolicies[:views]
        _expect(begins, f"{where}: expected {views} views to be the first of {wanted}")
    images = _noise(16, 3, 32, 32)
    for index, sub in enumerate(policy):
        made = apply_subpolicy(sub, images, np.arange(len(images)), 0, index)
        like = (made.shape, made.dtype) == (images.shape, torch.uint8)
        _expect(like, f"{where}: view {index} is not like the images")
    _expect(policy_from_json(policy_to_json(policy)) == policy, f"{where}: cannot be saved")


def _check_dataset(found: Dataset, spec: str) -> None:
    images = found.plain
    _expect(
        images.dtype == torch.uint8 and images.ndim == 4 and images.is_contiguous(),
        f"{spec}: expected uint8 images [n, c, h, w], got {images.dtype} {list(images.shape)}",
    )
    _expect(
        found.labels.shape == (len(found),) and found.labels.dtype == np.int64,
        f"{spec}: expected int64 labels [{len(found)}], got {found.labels.dtype}",
    )
    low, high = found.labels.min(), found.labels.max()
    _expect(
        bool(0 <= low < high < len(found.classes)),
        f"{spec}: expected labels of at least two of {len(found.classes)} classes",
    )
    scheme = found.name.partition(":")[0]
    _expect(spec.startswith(scheme), f"{spec}: expected a name that begins with its scheme")
