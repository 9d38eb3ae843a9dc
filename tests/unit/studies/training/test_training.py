"""RandAugment for training, the loop, and trainings that are stopped and go on."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from scipy.stats import chisquare, kstest
from tests.support import refused
from torch import Tensor, nn

from relook.data import Dataset, load_data
from relook.errors import FileFormatError, RelookError, RunError
from relook.models import TorchPredictor
from relook.models.small import new_small
from relook.numerics.randomness import Stream, uniforms
from relook.policy import Step, SubPolicy
from relook.policy.recipes import RECIPES, Group, Recipe, get_recipe
from relook.policy.views import apply_subpolicy
from relook.studies.training import Training, randaugment_batch, run_training, train
from relook.studies.training.train import schedule
from relook.transforms import TRANSFORMS


def augmented(images: Tensor, recipe: Recipe | str = "cifar", **options: object) -> Tensor:
    defaults = {"seed": 0, "epoch": 0, "indices": np.arange(len(images))}
    return randaugment_batch(images, recipe=recipe, **{**defaults, **options})  # type: ignore[arg-type]


def only(*transforms: str, start: Step | None = None, finish: Step | None = None) -> Recipe:
    group = Group(1, 1 if transforms else 0, 1)
    return Recipe("only", transforms, (group,), start=start, finish=finish)


@settings(max_examples=10)
@given(
    cuts=st.lists(st.integers(0, 16), max_size=3),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 10**6),
)
def test_an_images_augmentation_depends_on_its_index_alone(
    cuts: list[int], seed: int, epoch: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (16, 3, 16, 16), generator=generator, dtype=torch.uint8)
    whole = augmented(images, seed=seed, epoch=epoch)
    parts = [part for part in np.split(np.arange(16), sorted(cuts)) if len(part)]
    split = [
        augmented(images[torch.from_numpy(part)], seed=seed, epoch=epoch, indices=part)
        for part in parts
    ]
    assert torch.equal(torch.cat(split), whole)


def test_the_input_and_the_global_generator_are_left_alone(images: Tensor) -> None:
    before, state = images.clone(), torch.get_rng_state()
    augmented(images)
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_seeds_and_epochs_differ(images: Tensor) -> None:
    views = [augmented(images, seed=s, epoch=e) for s, e in ((0, 0), (1, 0), (0, 1))]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert not torch.equal(views[i], views[j])


def test_nothing_drawn_is_the_image_itself(images: Tensor) -> None:
    assert torch.equal(augmented(images, only("identity")), images)
    assert torch.equal(augmented(images, only(finish=Step("crop", 0)), length=0), images)


def posterised_bits(images: Tensor) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how many bits a ramp through all grey levels has kept."""
    levels = [len(torch.unique(image)) for image in images]
    return np.log2(levels).astype(np.int64)


def test_magnitudes_are_uniform_up_to_the_largest() -> None:
    n = 4000
    ramp = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(n, 1, 1, 1)
    bits = posterised_bits(augmented(ramp, only("posterize"), length=1, magnitude=30))
    # The value is 8 − 0.2·m, uniform on (2, 8]; whole bits, rounded down.
    counts = np.bincount(bits, minlength=9)[2:8]
    assert counts.sum() == n
    assert chisquare(counts).pvalue > 1e-4


def test_transforms_are_drawn_evenly_and_with_replacement() -> None:
    n = 3000
    black = torch.zeros(n, 1, 8, 8, dtype=torch.uint8)
    # Invert twice and the image is black again: 0, 1, 2 and 3 inversions tell themselves apart.
    white = augmented(black, only("identity", "invert"))[:, 0, 0, 0] == 255
    assert abs(white.double().mean().item() - 0.5) < 4 * 0.5 / math.sqrt(n)
    once = augmented(black, only("identity", "invert", "equalize"), length=1)[:, 0, 0, 0] == 255
    assert abs(once.double().mean().item() - 1 / 3) < 4 * 0.5 / math.sqrt(n)


def test_signs_are_fair_for_colour_and_geometry() -> None:
    n = 3000
    grey = torch.full((n, 1, 8, 8), 100, dtype=torch.uint8)
    levels = augmented(grey, only("brightness"), length=1)[:, 0, 0, 0].double().numpy()
    # 100·(1 + s·v) with v uniform on [0, 1.2], floored by the clip at 0.
    expected = (levels - 100) / 120
    inside = expected[(levels > 0) & (levels < 255)]
    assert kstest(inside, "uniform", args=(-100 / 120, 220 / 120)).pvalue > 1e-4
    marked = torch.zeros(n, 1, 16, 16, dtype=torch.uint8)
    marked[..., 8:] = 255
    moved = augmented(marked, only("translate_x"), length=1, magnitude=20)
    right = (moved[:, 0, 0].double().mean(dim=1) < 127).double().mean().item()
    left = (moved[:, 0, 0].double().mean(dim=1) > 128).double().mean().item()
    assert abs(right - left) < 5 / math.sqrt(n)
    assert right + left > 0.7


def drawn_subpolicy(recipe: Recipe, seed: int, epoch: int, index: int) -> SubPolicy:
    """What one image goes through, as a fixed sub-policy: 16 numbers are set aside a step."""

    def draw(place: int, slot: int) -> float:
        return float(
            uniforms(seed, image=index, view=epoch, slot=16 * place + slot, stream=Stream.TRAIN)
        )

    def fixed(name: str, magnitude: float, place: int) -> Step:
        row, draws = TRANSFORMS[name], {}
        for i, kind in enumerate(row.draws):
            u = draw(place, 3 + i)
            high = {"sign": 1.0, "edge": 1.0, "flip": 1.0}.get(kind, u)
            low = {"sign": -1.0, "edge": 0.0, "flip": 0.0}.get(kind, u)
            draws[kind] = low if u < 0.5 else high
        direction = (-1 if draw(place, 2) < 0.5 else 1) if row.signed else None
        return Step(name, magnitude, direction, draws)

    names = [recipe.transforms[int(draw(p, 0) * len(recipe.transforms))] for p in (1, 2, 3)]
    steps = [fixed(name, 45 * draw(p, 1), p) for p, name in enumerate(names, 1)]
    if recipe.start is not None:
        steps.insert(0, fixed(recipe.start.transform, recipe.start.magnitude * draw(0, 1), 0))
    if recipe.finish is not None:
        steps.append(fixed(recipe.finish.transform, recipe.finish.magnitude, 4))
    return SubPolicy(tuple(steps))


@pytest.mark.parametrize("recipe", list(RECIPES.values()), ids=list(RECIPES))
def test_together_equals_one_by_one_through_sub_policies(images: Tensor, recipe: Recipe) -> None:
    together = augmented(images, recipe, seed=9, epoch=4, indices=np.arange(100, 116))
    for i, view in enumerate(together):
        subpolicy = drawn_subpolicy(recipe, 9, 4, 100 + i)
        alone = apply_subpolicy(subpolicy, images[i : i + 1], np.array([0]), 0, 0)
        assert torch.equal(view, alone[0]), subpolicy


def test_the_finish_comes_last_and_the_start_first() -> None:
    image = torch.full((200, 1, 16, 16), 255, dtype=torch.uint8)
    ends = only("identity", finish=Step("crop", 4))
    cropped = augmented(image, ends)
    black = (cropped == 0).sum(dim=(1, 2, 3))
    assert (black > 0).double().mean() > 0.9  # 80 of 81 places show the black border
    inverted = augmented(image, only("invert", finish=Step("crop", 4)), length=1)
    assert (inverted == 0).all()  # the border is added after the inversion
    started = augmented(image, only(start=Step("scale_crop", 30)), length=0)
    assert torch.equal(started, image)
    pattern = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(50, 1, 1, 1)
    zoomed = augmented(pattern, only(start=Step("scale_crop", 30)), length=0)
    assert len({view.numpy().tobytes() for view in zoomed}) > 40


def test_impossible_requests_are_refused(images: Tensor) -> None:
    refused("unknown recipe 'cifr': did you mean 'cifar'", augmented, images, "cifr")
    refused("expected 16 indices", augmented, images, indices=[0, 1])
    with pytest.raises(RelookError, match="no transform"):
        augmented(images, replace(RECIPES["cifar"], transforms=(), groups=(Group(1, 0, 0),)))


def test_the_learning_rate_is_halved_twelve_times() -> None:
    factors = [schedule(epoch, 2000) for epoch in range(2000)]
    assert factors[0] == 1
    assert sorted(set(factors)) == [0.5**k for k in range(12, -1, -1)]
    lengths = [factors.count(0.5**k) for k in range(13)]
    assert max(lengths) - min(lengths) <= 1
    assert [schedule(epoch, 1) for epoch in range(1)] == [1]


@pytest.fixture(scope="module")
def digits() -> Dataset:
    whole = load_data("digits:train")
    return whole.subset(np.arange(120))


def weights(network: nn.Module) -> bytes:
    return b"".join(t.numpy().tobytes() for t in network.state_dict().values())


def test_two_trainings_give_the_same_bytes(digits: Dataset) -> None:
    torch.manual_seed(1)
    options = {"epochs": 2, "recipe": "small", "batch": 50}
    first = train(new_small(width=4, seed=1), digits, seed=5, **options)  # type: ignore[arg-type]
    torch.manual_seed(2)
    again = train(new_small(width=4, seed=1), digits, seed=5, **options)  # type: ignore[arg-type]
    other = train(new_small(width=4, seed=1), digits, seed=6, **options)  # type: ignore[arg-type]
    assert weights(first) == weights(again)
    assert weights(first) != weights(other)


def test_a_stated_number_of_threads_holds_for_the_training_alone(digits: Dataset) -> None:
    part, results, inside = digits.subset(np.arange(40)), [], []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            trained = train(
                new_small(width=2), part, epochs=1, seed=0, recipe="small", threads=1,
                progress=lambda done, loss: inside.append(torch.get_num_threads()),
            )  # fmt: skip
            results.append(weights(trained))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert inside == [1, 1]
    assert results[0] == results[1]


def test_training_copies_the_network_and_reports(digits: Dataset) -> None:
    network, seen = new_small(width=4), []
    before = weights(network)
    trained = train(
        network,
        digits,
        epochs=3,
        seed=0,
        recipe="small",
        augment="none",
        progress=lambda done, loss: seen.append((done, loss)),
    )
    assert weights(network) == before
    assert weights(trained) != before
    assert not trained.training
    assert [done for done, _ in seen] == [1, 2, 3]
    assert seen[-1][1] < seen[0][1]


def test_one_step_is_that_of_plain_sgd(digits: Dataset) -> None:
    """A linear network, one batch: the new weights by hand, weight decay and all."""
    layer = nn.Linear(32 * 32, 10)
    nn.init.zeros_(layer.weight)
    nn.init.constant_(layer.bias, 0.5)
    network = nn.Sequential(nn.Flatten(), layer)
    trained = train(
        network, digits, epochs=1, seed=0, recipe="small", augment="none", batch=1000,
        learning_rate=0.2, weight_decay=0.01,
    )  # fmt: skip
    inputs = digits.plain.double().flatten(1).numpy() / 255
    errors = np.full((len(digits), 10), 0.1)
    errors[np.arange(len(digits)), digits.labels] -= 1
    weight = -0.2 * errors.T @ inputs / len(digits)
    bias = 0.5 - 0.2 * (errors.mean(axis=0) + 0.01 * 0.5)
    state = trained.state_dict()
    np.testing.assert_allclose(state["1.weight"].numpy(), weight, atol=1e-6)
    np.testing.assert_allclose(state["1.bias"].numpy(), bias, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"augment": "randaug"}, "did you mean 'randaugment'"),
        ({"epochs": 0}, "at least 1"),
        ({"batch": 0}, "at least 1"),
        ({"threads": 0}, "expected threads of at least 1, got 0"),
        ({"seed": -1}, "expected a seed"),
        ({"learning_rate": 1e30, "epochs": 3}, "lower the learning rate"),
    ],
)
def test_bad_settings_are_refused(
    digits: Dataset, options: dict[str, object], message: str
) -> None:
    settings_ = {"epochs": 1, "seed": 0, "recipe": "small", "augment": "none", **options}
    refused(message, train, new_small(width=2), digits, **settings_)


@pytest.mark.slow
def test_randaugment_teaches_the_digits_well() -> None:
    whole = load_data("digits")
    known, unseen = (whole.subset(np.arange(first, len(whole), 2)) for first in (0, 1))
    network = train(new_small(), known, epochs=100, seed=0, recipe="small", batch=32, threads=1)
    picked = TorchPredictor(network)(unseen.plain).argmax(dim=1).numpy()
    assert (picked == unseen.labels).mean() > 0.95


SETTINGS = Training(4, get_recipe("small"), seed=2, batch=25)


class StoppedError(Exception):
    pass


def with_dropout() -> nn.Module:
    """A network that draws in training, as VGG16 does."""
    return nn.Sequential(new_small(width=2), nn.ReLU(), nn.Dropout(0.5), nn.Linear(10, 10))


def stopped(network: nn.Module, digits: Dataset, state: Path, images: int) -> None:
    """Train until so many images are done, then break off in the middle of an epoch."""

    def steps(done: int, total: int, loss: float) -> None:
        if done >= images:
            raise StoppedError

    with pytest.raises(StoppedError):
        run_training(network, digits, SETTINGS, checkpoint=state, seconds=0, steps=steps)


@pytest.mark.parametrize("drawing", [False, True], ids=["small", "dropout"])
def test_stopped_and_continued_is_the_same_to_the_byte(
    digits: Dataset, tmp_path: Path, drawing: bool
) -> None:
    torch.manual_seed(0)
    network = with_dropout() if drawing else new_small(width=3)
    whole, losses = run_training(network, digits, SETTINGS)
    state = tmp_path / "state"
    torch.manual_seed(1)  # what the global generator holds does not matter
    stopped(network, digits, state, 170)
    after_one = state.read_bytes()
    stopped(network, digits, state, 400)
    assert state.read_bytes() != after_one
    seen: list[int] = []
    again, found = run_training(
        network,
        digits,
        SETTINGS,
        checkpoint=state,
        seconds=0,
        progress=lambda done, loss: seen.append(done),
    )
    assert seen == [4]
    assert found == losses
    assert weights(again) == weights(whole)
    finished, _ = run_training(network, digits, SETTINGS, checkpoint=state)
    assert weights(finished) == weights(whole)


def test_a_state_is_the_same_bytes_however_often_it_was_stopped(
    digits: Dataset, tmp_path: Path
) -> None:
    network = new_small(width=2)
    run_training(network, digits, SETTINGS, checkpoint=tmp_path / "whole")
    stopped(network, digits, tmp_path / "parts", 260)
    run_training(network, digits, SETTINGS, checkpoint=tmp_path / "parts")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "parts").read_bytes()


def test_dropout_leaves_the_global_generator_alone(digits: Dataset) -> None:
    network = with_dropout()
    state = torch.get_rng_state()
    run_training(network, digits, replace(SETTINGS, epochs=1))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_state_of_other_settings_or_data_is_refused(digits: Dataset, tmp_path: Path) -> None:
    state = tmp_path / "state"
    run_training(new_small(width=2), digits, replace(SETTINGS, epochs=1), checkpoint=state)
    with pytest.raises(RunError, match="other data or settings"):
        run_training(new_small(width=2), digits, SETTINGS, checkpoint=state)
    with pytest.raises(RunError, match="other data or settings"):
        run_training(
            new_small(width=2, seed=1), digits, replace(SETTINGS, epochs=1), checkpoint=state
        )


def test_a_damaged_state_is_one_line(digits: Dataset, tmp_path: Path) -> None:
    state, one = tmp_path / "state", replace(SETTINGS, epochs=1)
    run_training(new_small(width=2), digits, one, checkpoint=state)
    whole = state.read_bytes()
    state.write_bytes(whole[:1000])
    with pytest.raises(FileFormatError, match="delete that file to train from the start"):
        run_training(new_small(width=2), digits, one, checkpoint=state)
    state.write_bytes(whole)
    save_file(load_file(state), state)  # without its metadata
    with pytest.raises(FileFormatError, match="has no 'relook-training-1'"):
        run_training(new_small(width=2), digits, one, checkpoint=state)
