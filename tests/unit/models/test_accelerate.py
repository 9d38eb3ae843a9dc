"""Other ways to run a torch module: ONNX Runtime, channels last, half precision."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support import refused
from torch import Tensor, nn

from relook.errors import install_command
from relook.models import CallablePredictor, TorchPredictor, accelerate, onnx_runtime
from relook.models.accelerate import accelerate as make_fast
from relook.models.accelerate import accelerate_run
from relook.models.base import InputSpec, input_of
from relook.models.onnx_runtime import OnnxPredictor, to_onnx
from relook.models.predictors import ModelOptions

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def network(channels: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 4),
    )


def images(count: int, channels: int = 3) -> Tensor:
    pixels = np.random.default_rng(count).integers(0, 256, (count, channels, 8, 9), dtype=np.uint8)
    return torch.from_numpy(pixels)


@pytest.fixture
def predictor() -> TorchPredictor:
    return TorchPredictor(network(), mean=0.4, std=0.3)


def pace(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Let the clock say how long each engine takes."""
    kinds = {"TorchPredictor": "torch", "OnnxPredictor": "onnx", "FastTorchPredictor": "last"}
    monkeypatch.setattr(
        accelerate,
        "_seconds",
        lambda engines, sample: {
            name: seconds.get(kinds[type(run).__name__], 9.0) for name, run in engines.items()
        },
    )


def test_auto_takes_the_fastest_by_a_margin(
    predictor: TorchPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds, expected in (
        ({"torch": 3.0, "onnx": 1.0, "last": 2.0}, "onnx"),
        ({"torch": 3.0, "onnx": 2.0, "last": 1.0}, "channels-last"),
        ({"torch": 1.1, "onnx": 1.0, "last": 2.0}, "torch"),
        ({"torch": 1.0, "onnx": 3.0, "last": 2.0}, "torch"),
    ):
        pace(monkeypatch, **seconds)
        made = make_fast(predictor, images(5))
        assert made.engine == expected
        assert (made.why is None) == (expected == "torch")
        said: list[str] = []
        made.tell(said.append)
        ways = r"times as fast as plain torch here; to choose another: accelerate \(--accelerate\)"
        assert all(re.fullmatch(rf"engine {expected}: about \d+\.\d {ways}", one) for one in said)
        assert len(said) == (expected != "torch")
        apart = (made.predictor(images(6)) - predictor(images(6))).abs().max()
        assert apart <= accelerate.TOLERANCE


def test_engines_take_turns_so_that_a_busy_machine_slows_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, asked = [0.0], []

    def engine(name: str) -> CallablePredictor:
        def run(pixels: Tensor) -> Tensor:
            asked.append(name)
            clock[0] += 0.5 if len(asked) <= 2 else 0.1  # busy at first
            return torch.zeros(len(pixels), 3)

        return CallablePredictor(run, outputs="logits")

    monkeypatch.setattr("relook.models.accelerate.time.perf_counter", lambda: clock[0])
    seconds = accelerate._seconds({name: engine(name) for name in "ab"}, images(2))
    assert asked[:6] == list("ababab")
    assert seconds == pytest.approx({"a": 0.1, "b": 0.1})


def test_every_way_to_run_has_its_own_stable_fingerprint(predictor: TorchPredictor) -> None:
    def prints() -> list[str]:
        made = [make_fast(predictor, images(4), mode=mode) for mode in accelerate.ENGINES]
        made += [make_fast(predictor, images(4), precision=p) for p in ("float32", "float16")]
        return [one.predictor.fingerprint for one in made]

    assert len(set(prints())) == 5
    assert prints() == prints()
    assert prints()[0] == predictor.fingerprint


def test_outputs_that_do_not_agree_are_not_used(
    predictor: TorchPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(predictor: TorchPredictor, sample: Tensor) -> CallablePredictor:
        def function(pixels: Tensor) -> Tensor:
            logits = predictor(pixels).clone()
            logits[0, 0] += 0.01
            return logits.log_softmax(1)

        return CallablePredictor(function, outputs="log_probs")

    monkeypatch.setattr(onnx_runtime, "to_onnx", wrong)
    pace(monkeypatch, torch=1.0, last=1.0)
    made = make_fast(predictor, images(5))
    assert made.predictor is predictor
    refused(
        r"the outputs of onnx differ.*at most 0\.001 is allowed",
        make_fast,
        predictor,
        images(5),
        mode="onnx",
    )


def test_auto_tries_nothing_where_it_cannot_pay(
    predictor: TorchPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace(monkeypatch, torch=3.0, onnx=1.0)  # 3 s for five images
    passes = int(accelerate.WORTH / 3.0 * 5)
    assert make_fast(predictor, images(5), passes=passes + 5).engine == "onnx"
    monkeypatch.setattr(onnx_runtime, "to_onnx", None)
    assert make_fast(predictor, images(5), passes=passes - 5).engine == "torch"


def test_without_onnx_auto_keeps_torch_silently(
    predictor: TorchPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_runtime, "find_spec", lambda name: None)
    pace(monkeypatch, torch=1.0)
    made = make_fast(predictor, images(3))
    assert (made.engine, made.why) == ("torch", None)
    refused(re.escape(install_command("onnx")), make_fast, predictor, images(3), mode="onnx")


def test_half_precision_is_near_and_returns_float32(predictor: TorchPredictor) -> None:
    made = make_fast(predictor, images(6), precision="float16").predictor(images(6))
    expected = predictor(images(6))
    assert made.dtype == torch.float32
    assert 0 < (made - expected).abs().max() < 0.05


def test_what_is_not_torch_stays_as_it_is() -> None:
    function = CallablePredictor(lambda pixels: torch.zeros(len(pixels), 3), outputs="logits")
    assert make_fast(function, images(2)).predictor is function
    for options in ({"mode": "onnx"}, {"precision": "float16"}, {"compiled": True}):
        refused("expected a torch module to accelerate", make_fast, function, images(2), **options)


def test_names_and_combinations_are_checked(predictor: TorchPredictor) -> None:
    for options, says in (
        ({"mode": "onx"}, "engine to accelerate with"),
        ({"precision": "float8"}, "precision"),
        ({"mode": "onnx", "precision": "float16"}, "neither a precision nor compiling"),
    ):
        refused(says, make_fast, predictor, images(2), **options)


def test_a_run_keeps_its_engine(
    predictor: TorchPredictor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = tmp_path / "engine.json"

    def engine() -> str:
        made = accelerate_run(
            predictor, images(4), mode="auto", precision="auto", compiled=False, record=record
        )
        return made.engine

    pace(monkeypatch, torch=3.0, onnx=1.0)
    assert engine() == "onnx"
    pace(monkeypatch, torch=1.0, onnx=3.0)
    assert engine() == "onnx"
    record.write_text('{"engine": "abacus"}')
    refused("expected an engine of torch, channels-last, onnx", engine)


def test_channels_last_is_what_the_layers_see(predictor: TorchPredictor) -> None:
    seen: list[bool] = []

    class Watch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.is_contiguous(memory_format=torch.channels_last))
            return x

    watched = TorchPredictor(nn.Sequential(Watch(), network()))
    make_fast(watched, images(4), mode="channels-last").predictor(images(4))
    assert seen[-1]
    watched(images(4))
    assert not seen[-1]


@pytest.mark.parametrize("mode", ["channels-last", "onnx"])
def test_what_images_a_model_takes_stays_known(mode: str) -> None:
    sized = ModelOptions(size=(40, 48), crop=0.9).predictor(network())
    made = make_fast(sized, images(8), mode=mode).predictor
    assert made is not sized
    assert input_of(made) == InputSpec((40, 48), crop=0.9)
    half = make_fast(sized, images(8), mode="torch", precision="bfloat16").predictor
    assert input_of(half) == input_of(sized)


@pytest.mark.parametrize("mean", [None, 0.4, (0.1, 0.5, 0.9)])
def test_outputs_are_torchs_for_any_number_of_images(mean: float | tuple[float, ...]) -> None:
    predictor = TorchPredictor(network(), mean=mean, std=0.3, classes=4)
    graph = to_onnx(predictor, images(5))
    assert graph.classes == 4
    for count in (1, 2, 9):
        torch.testing.assert_close(
            graph(images(count)), predictor(images(count)), atol=1e-5, rtol=0
        )


def test_grey_images_and_other_outputs() -> None:
    module = nn.Sequential(network(1), nn.Softmax(dim=1))
    predictor = TorchPredictor(module, outputs="probabilities")
    graph = to_onnx(predictor, images(3, 1))
    torch.testing.assert_close(graph(images(4, 1)), predictor(images(4, 1)), atol=1e-5, rtol=0)


def test_the_fingerprint_is_stable_and_another() -> None:
    predictor = TorchPredictor(network())
    first, second = to_onnx(predictor, images(2)), to_onnx(predictor, images(7))
    assert first.fingerprint == second.fingerprint != predictor.fingerprint
    other = to_onnx(TorchPredictor(network(), mean=0.5), images(2))
    assert other.fingerprint != first.fingerprint


def test_a_network_that_cannot_be_exported_is_one_line() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            values: Tensor = torch.linalg.eigvals(x[:, 0, :4, :4])
            return values.abs()

    refused("cannot be exported to ONNX", to_onnx, TorchPredictor(Odd()), images(2))


def test_damage_and_wrong_images_are_said() -> None:
    refused("cannot load the graph", OnnxPredictor, b"no graph", outputs="logits", fingerprint="x")
    graph = to_onnx(TorchPredictor(network()), images(2))
    refused(r"failed on images \[2, 1, 8, 9\]", graph, images(2, 1))


def test_without_the_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_runtime, "find_spec", lambda name: None)
    refused(re.escape(install_command("onnx")), to_onnx, TorchPredictor(network()), images(2))
