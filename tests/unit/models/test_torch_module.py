from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax
from tests.support import refused
from torch import Tensor, nn

from relook.errors import RelookError
from relook.models import CallablePredictor, TorchPredictor, as_predictor
from relook.models.base import to_log_probs
from relook.numerics.calibration import LOG_FLOOR


def linear(channels: int = 3, side: int = 32, classes: int = 5) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    layer = nn.Linear(channels * side * side, classes)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.02, generator=generator)
    return nn.Sequential(nn.Flatten(), layer)


@pytest.mark.parametrize(
    ("mean", "std"), [((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)), (0.4, 0.2), (0.0, 1.0)]
)
def test_a_module_gives_the_log_softmax_of_its_logits_on_normalised_images(
    images: Tensor, mean: Any, std: Any
) -> None:
    module = linear()
    got = TorchPredictor(module, mean=mean, std=std)(images)
    scaled = images.numpy().astype(np.float64) / 255
    inputs = (scaled - np.reshape(mean, (1, -1, 1, 1))) / np.reshape(std, (1, -1, 1, 1))
    weight, bias = (p.detach().double().numpy() for p in module.parameters())
    want = log_softmax(inputs.reshape(len(images), -1) @ weight.T + bias, axis=1)
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got.numpy(), want, atol=1e-4)


def test_every_call_is_in_eval_mode(images: Tensor) -> None:
    module = nn.Sequential(nn.Dropout(0.5), linear())
    predictor = TorchPredictor(module)
    first = predictor(images)
    module.train()
    assert torch.equal(predictor(images), first)


class Mean(nn.Module):
    """The mean of each channel as its logit, times a weight."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, dtype=dtype))

    def forward(self, images: Tensor) -> Tensor:
        assert images.dtype == self.weight.dtype
        return images.mean(dim=(2, 3)) * self.weight


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_module_of_another_precision_gets_inputs_of_its_own(
    images: Tensor, dtype: torch.dtype
) -> None:
    got = TorchPredictor(Mean(dtype))(images)
    want = (images.double() / 255).mean(dim=(2, 3)).log_softmax(dim=1)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), want, atol=0.01, rtol=0)


class Returns(nn.Module):
    """Returns what it was made with, whatever the images."""

    def __init__(self, results: object) -> None:
        super().__init__()
        self.results = results

    def forward(self, images: Tensor) -> object:
        return self.results


PROBABILITIES = torch.tensor([[0.25, 0.75, 0.0], [1 / 3, 1 / 3, 1 / 3]])


def test_probabilities_and_log_probabilities_are_taken_as_said() -> None:
    images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    given = TorchPredictor(Returns(PROBABILITIES), outputs="probabilities")(images)
    logs = TorchPredictor(Returns(PROBABILITIES.log()), outputs="log_probs")(images)
    torch.testing.assert_close(given.exp(), PROBABILITIES)
    torch.testing.assert_close(given, logs)
    assert given[0, 2] == LOG_FLOOR
    as_logits = TorchPredictor(Returns(PROBABILITIES))(images)
    torch.testing.assert_close(as_logits, PROBABILITIES.log_softmax(dim=1))


@pytest.mark.parametrize(
    ("results", "outputs", "message"),
    [
        ((torch.zeros(2, 3),), "logits", "expected the model to return a tensor"),
        (np.zeros((2, 3)), "logits", "got ndarray"),
        (torch.zeros(3, 3), "logits", r"\[2, class\] for 2 images, got \[3, 3\]"),
        (torch.zeros(2, 3, 1, 1), "logits", r"got \[2, 3, 1, 1\]"),
        (torch.zeros(2, 1), "logits", r"got \[2, 1\]"),
        (torch.zeros(2, 3, dtype=torch.int64), "logits", "floating-point"),
        (torch.full((2, 3), torch.nan), "logits", "got NaN"),
        (torch.full((2, 3), torch.inf), "logits", "infinite"),
        (torch.full((2, 3), -torch.inf), "logits", "infinite"),
        (torch.tensor([[0.5, 0.5], [2.0, 1.0]]), "probabilities", "row 1 sums to 3"),
        (torch.tensor([[1.5, -0.5], [0.5, 0.5]]), "probabilities", "row 0 sums to 1"),
        (torch.zeros(2, 3), "log_probs", "row 0 sums to 3"),
    ],
)
def test_results_that_are_not_what_was_said_are_refused(
    results: object, outputs: str, message: str
) -> None:
    refused(message, to_log_probs, results, outputs, images=2)
    refused(r"return \[2, 4\]", to_log_probs, torch.zeros(2, 3), "logits", images=2, classes=4)


@given(
    logits=st.lists(
        st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=3), min_size=1, max_size=4
    )
)
def test_log_probabilities_are_finite_and_agree_with_scipy(logits: list[list[float]]) -> None:
    got = to_log_probs(torch.tensor(logits), "logits", images=len(logits)).numpy()
    want = np.maximum(log_softmax(np.array(logits, dtype=np.float64), axis=1), LOG_FLOOR)
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got, want, atol=2e-3, rtol=1e-5)


@pytest.mark.parametrize(
    ("module", "channels"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), 1),
        (linear(), 1),
        (linear(side=31), 1),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(8, 2, 3)), 3),  # an inner layer's fault
    ],
)
def test_images_that_the_network_cannot_take_get_one_line(module: nn.Module, channels: int) -> None:
    images = torch.zeros(2, channels, 32, 32, dtype=torch.uint8)
    says = "the network failed on images" if channels == 3 else "."
    refused(says, TorchPredictor(module), images)


def test_a_wrong_channel_count_says_both_counts(images: Tensor) -> None:
    grey = images[:, :1]
    refused(r"expected images with 3 channels.*got 1", TorchPredictor(nn.Conv2d(3, 4, 3)), grey)
    with pytest.raises(RelookError, match=r"expected images with 3 channels.*mean.*got 1"):
        TorchPredictor(linear(), mean=(0.5, 0.5, 0.5))(grey)
    with pytest.raises(RelookError, match=r"expected images with 1 channel.*std.*got 3"):
        TorchPredictor(linear(), std=[0.5])(images)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": "logit"}, "did you mean 'logits'"),
        ({"mean": (123.7, 116.3, 103.5)}, "scale 0…1"),
        ({"std": 0}, "positive"),
        ({"std": (0.5, float("nan"), 0.5)}, "finite"),
        ({"mean": "grey"}, "one number, or one per channel"),
        ({"mean": torch.zeros(3)}, "one number, or one per channel"),
        ({"device": "warp"}, "cannot use device 'warp'"),
        ({"means": 0.5}, "did you mean 'mean'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    refused(message, as_predictor, linear(), **options)


def test_the_fingerprint_is_of_weights_class_and_normalisation() -> None:
    base = TorchPredictor(linear()).fingerprint
    assert TorchPredictor(linear()).fingerprint == base
    changed = linear()
    with torch.no_grad():
        next(changed.parameters())[0, 0] += 1e-6
    others = [
        TorchPredictor(changed),
        TorchPredictor(linear(), mean=0.5),
        TorchPredictor(linear(), std=0.5),
        TorchPredictor(linear(), outputs="probabilities"),
        TorchPredictor(linear().double()),
        TorchPredictor(Renamed(*linear().children())),
    ]
    prints = {base, *(predictor.fingerprint for predictor in others)}
    assert len(prints) == 1 + len(others)
    assert TorchPredictor(linear(), fingerprint="mine").fingerprint == "mine"


class Renamed(nn.Sequential):
    """The same layers under another name."""


def test_a_state_that_cannot_be_fingerprinted_asks_for_a_fingerprint() -> None:
    class Odd(nn.Linear):
        def get_extra_state(self) -> object:
            return object()

    with pytest.raises(RelookError, match="give the predictor a fingerprint"):
        _ = TorchPredictor(Odd(2, 2)).fingerprint


def brightness(images: Tensor) -> Tensor:
    """Two classes: dark and bright."""
    bright = images.float().mean(dim=(1, 2, 3)) / 255
    return torch.stack([1 - bright, bright], dim=1)


def test_a_function_is_a_predictor_once_it_says_its_outputs(images: Tensor) -> None:
    predictor = as_predictor(brightness, outputs="probabilities")
    torch.testing.assert_close(predictor(images).exp(), brightness(images))
    refused("say which it returns", as_predictor, brightness)
    with pytest.raises(RelookError, match="expected no mean with a function"):
        as_predictor(brightness, outputs="probabilities", mean=0.5)


def test_a_functions_fingerprint_is_its_name_unless_given() -> None:
    def other(images: Tensor) -> Tensor:
        return brightness(images)

    make = partial(CallablePredictor, outputs="probabilities")
    assert make(brightness).fingerprint == make(brightness).fingerprint
    assert make(brightness).fingerprint != make(other).fingerprint
    assert make(partial(brightness)).fingerprint
    assert make(brightness, fingerprint="v2").fingerprint == "v2"


def test_a_predictor_stays_itself_and_takes_no_options() -> None:
    predictor = TorchPredictor(linear())
    assert as_predictor(predictor) is predictor
    refused("expected no outputs with a TorchPredictor", as_predictor, predictor, outputs="logits")
    refused("got int", as_predictor, 3)
