from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from tests.support import refused
from tests.unit.models.model_files import export_onnx, import_onnx, linear_graph
from torch import Tensor, nn

from relook.errors import MissingExtraError, RelookError
from relook.models import InputSpec, TorchPredictor, as_predictor, load_model
from relook.models.base import input_of
from relook.models.small import new_small

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def onnx() -> Any:
    try:
        return import_onnx()
    except MissingExtraError as error:
        pytest.skip(str(error))


def drawn_weights(rows: int, classes: int = 4) -> Array:
    return np.random.default_rng(3).normal(0, 0.05, (rows, classes)).astype(np.float32)


def expected(inputs: Array, weights: Array) -> Array:
    logits = inputs.reshape(len(inputs), -1).astype(np.float64) @ weights.astype(np.float64)
    return np.asarray(log_softmax(logits, axis=1))


@pytest.mark.parametrize("free_batch", [True, False])
def test_an_exported_network_agrees_with_torch(
    tmp_path: Path, images: Tensor, free_batch: bool
) -> None:
    network = new_small(3, 6, width=2, seed=5)
    export_onnx(network, tmp_path / "net.onnx", (5, 3, 32, 32), free_batch=free_batch)
    options: dict[str, Any] = {"mean": (0.4, 0.5, 0.6), "std": 0.3, "outputs": "logits"}
    predictor = load_model(f"onnx:{tmp_path / 'net.onnx'}", **options)
    want = TorchPredictor(network, **options)(images)  # 16 images: three batches of 5, and one
    torch.testing.assert_close(predictor(images), want, atol=1e-5, rtol=1e-4)
    assert predictor.classes == 6
    assert input_of(predictor) == InputSpec((32, 32), channels=3)


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_layout_and_type_are_read_from_the_graph(
    tmp_path: Path, images: Tensor, dtype: str, layout: str
) -> None:
    small = images[:, :, :10, :9]
    weights = drawn_weights(3 * 10 * 9)
    shape: list[int | str] = ["n", 3, 10, 9] if layout == "nchw" else ["n", 10, 9, 3]
    linear_graph(tmp_path / "net.onnx", shape, weights, dtype=dtype)
    predictor = load_model(f"onnx:{tmp_path / 'net.onnx'}", mean=0.5, outputs="logits")
    order = (0, 1, 2, 3) if layout == "nchw" else (0, 2, 3, 1)
    want = expected(small.permute(order).numpy() / 255 - 0.5, weights)
    np.testing.assert_allclose(
        predictor(small).numpy(), want, atol=1e-5 if dtype == "FLOAT" else 1e-2
    )
    assert input_of(predictor) == InputSpec((10, 9), channels=3)


def test_uint8_inputs_are_the_images(tmp_path: Path, images: Tensor) -> None:
    weights = drawn_weights(3 * 32 * 32) / 100
    linear_graph(tmp_path / "net.onnx", [3, 32, 32, 3], weights, dtype="UINT8")
    spec = f"onnx:{tmp_path / 'net.onnx'}"
    got = load_model(spec, outputs="logits")(images)
    want = expected(images.permute(0, 2, 3, 1).numpy(), weights)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-4)
    with pytest.raises(RelookError, match="expected no mean with an ONNX graph of uint8 inputs"):
        load_model(spec, outputs="logits", mean=0.5)


@pytest.mark.parametrize(
    ("end", "outputs"),
    [
        (["Softmax"], "probabilities"),
        (["LogSoftmax"], "log_probs"),
        (["Softmax", "Log"], "log_probs"),
        (["Softmax", "Identity", "Flatten"], "probabilities"),
    ],
)
def test_a_softmax_at_the_end_tells_what_the_outputs_are(
    tmp_path: Path, images: Tensor, end: list[str], outputs: Any
) -> None:
    weights = drawn_weights(3 * 32 * 32)
    linear_graph(tmp_path / "net.onnx", ["n", 3, 32, 32], weights, end=end)
    spec = f"onnx:{tmp_path / 'net.onnx'}"
    got = load_model(spec)(images)
    np.testing.assert_allclose(got.numpy(), expected(images.numpy() / 255, weights), atol=1e-4)
    assert torch.equal(load_model(spec, outputs=outputs)(images), got)
    refused(f"expected outputs {outputs}.*got logits", load_model, spec, outputs="logits")


@pytest.mark.parametrize("end", [[], ["Sigmoid"], ["Softmax", "Relu"], ["Log"]])
def test_outputs_that_the_graph_does_not_tell_are_asked_for(tmp_path: Path, end: list[str]) -> None:
    linear_graph(tmp_path / "net.onnx", ["n", 3, 8, 8], drawn_weights(192), end=end)
    with pytest.raises(
        RelookError,
        match=r"say which with outputs \(--outputs\): logits, probabilities or log_probs$",
    ):
        load_model(f"onnx:{tmp_path / 'net.onnx'}")


def test_a_free_size_takes_any_image_and_a_fixed_one_says_what_it_takes(
    tmp_path: Path, images: Tensor
) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    export_onnx(module, tmp_path / "fixed.onnx", (1, 3, 32, 32))
    fixed = load_model(f"onnx:{tmp_path / 'fixed.onnx'}", outputs="logits")
    refused(r"expected images of 3 × 32 × 32 .*got 3 × 16 × 32", fixed, images[:, :, :16])
    linear_graph(tmp_path / "free.onnx", ["n", 3, "h", "w"], drawn_weights(3 * 32 * 32))
    free = load_model(f"onnx:{tmp_path / 'free.onnx'}", outputs="logits")
    assert input_of(free) is None
    assert free(images).shape == (16, 4)
    refused("the network failed on images", free, images[:, :, :16])


def test_a_layout_that_cannot_be_seen_is_asked_for(tmp_path: Path, images: Tensor) -> None:
    weights = drawn_weights(3 * 32 * 32)
    linear_graph(tmp_path / "net.onnx", ["n", "a", "b", "c"], weights)
    spec = f"onnx:{tmp_path / 'net.onnx'}"
    refused(r"\[free, free, free, free\]: say .*layout=nchw", load_model, spec, outputs="logits")
    got = load_model(f"{spec}?layout=nhwc", outputs="logits")(images)
    want = expected(images.permute(0, 2, 3, 1).numpy() / 255, weights)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-4)


class TwoHeads(nn.Module):
    """Features and logits."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return images.mean(dim=(1, 2)), images.mean(dim=(2, 3))


def test_one_of_several_outputs_is_named(tmp_path: Path, images: Tensor) -> None:
    path = tmp_path / "net.onnx"
    export_onnx(TwoHeads(), path, (16, 3, 32, 32), outputs=("features", "logits"))
    with pytest.raises(RelookError, match=r"got features, logits: say .*output=NAME"):
        load_model(f"onnx:{path}", outputs="logits")
    refused("did you mean 'logits'", load_model, f"onnx:{path}?output=logit", outputs="logits")
    got = load_model(f"onnx:{path}?output=logits", outputs="logits")(images)
    want = (images.float() / 255).mean(dim=(2, 3)).log_softmax(dim=1)
    torch.testing.assert_close(got, want)


def test_weights_beside_the_file_are_part_of_the_fingerprint(
    onnx: Any, tmp_path: Path, images: Tensor
) -> None:
    spec = f"onnx:{tmp_path / 'net.onnx'}"
    prints = []
    for factor in (1, 2):
        linear_graph(tmp_path / "net.onnx", ["n", 3, 32, 32], factor * drawn_weights(3072))
        whole = onnx.load(tmp_path / "net.onnx")
        (tmp_path / "weights.bin").unlink(missing_ok=True)
        onnx.save(
            whole,
            tmp_path / "net.onnx",
            save_as_external_data=True,
            location="weights.bin",
            size_threshold=0,
        )
        predictor = load_model(spec, outputs="logits")
        assert predictor(images).shape == (16, 4)
        prints.append(predictor.fingerprint)
    assert (tmp_path / "weights.bin").is_file()
    assert prints[0] != prints[1]


def test_the_fingerprint_is_of_file_normalisation_and_outputs(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    linear_graph(path, ["n", 3, 8, 8], drawn_weights(192))
    said: list[dict[str, Any]] = [{"outputs": "logits"}, {"outputs": "probabilities"}]
    said.append({"outputs": "logits", "mean": 0.5})
    assert len({load_model(f"onnx:{path}", **options).fingerprint for options in said}) == 3


def test_what_is_no_onnx_file_gets_one_line(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    linear_graph(path, ["n", 3, 8, 8], drawn_weights(192))
    refuse = partial(refused, call=load_model, spec=f"onnx:{path}", outputs="logits")
    path.write_bytes(path.read_bytes()[:-300])
    refuse(".")
    for content in (b"", b"hello", b"\x08\x09"):
        path.write_bytes(content)
        refuse("expected an ONNX file")


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        (["n", 192], "FLOAT", r"one input \[n, c, h, w\] or \[n, h, w, c\], got images"),
        (["n", 3, 8, 8], "DOUBLE", r"got tensor\(double\)"),
    ],
)
def test_inputs_that_are_no_images_are_refused(
    tmp_path: Path, shape: list[Any], dtype: str, message: str
) -> None:
    linear_graph(tmp_path / "net.onnx", shape, drawn_weights(192), dtype=dtype)
    refused(message, load_model, f"onnx:{tmp_path / 'net.onnx'}", outputs="logits")


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("absent.onnx", "no such ONNX file: absent.onnx"),
        ("absent.onnx?size=3", "unknown onnx option 'size'"),
        ("net.onnx?layout=chwn", "unknown layout 'chwn'"),
    ],
)
def test_a_spec_that_leads_nowhere_gets_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    linear_graph(Path("net.onnx"), ["n", 3, 8, 8], drawn_weights(192))
    refused(message, load_model, f"onnx:{rest}", outputs="logits")
    with pytest.raises(RelookError, match="cannot use device 'warp'"):
        load_model("onnx:net.onnx", outputs="logits", device="warp")


@pytest.mark.parametrize(
    ("dtype", "options", "unstated"),
    [("FLOAT", {}, ("mean", "std")), ("FLOAT", {"mean": 0.4}, ("std",)), ("UINT8", {}, ())],
)
def test_a_file_of_floats_knows_that_nobody_gave_mean_and_std(
    tmp_path: Path, dtype: str, options: dict[str, Any], unstated: tuple[str, ...]
) -> None:
    linear_graph(tmp_path / "net.onnx", [3, 32, 32, 3], drawn_weights(3072), dtype=dtype)
    made: Any = load_model(f"onnx:{tmp_path / 'net.onnx'}", outputs="logits", **options)
    assert made.unstated == unstated
    assert made.is_bare


class TestSession:
    """A session that the user has made, given to relook from Python."""

    @pytest.fixture
    def session(self, onnx: Any, tmp_path: Path) -> Any:
        import onnxruntime  # type: ignore[import-untyped]

        linear_graph(tmp_path / "net.onnx", ["n", 3, 32, 32], drawn_weights(3072))
        return onnxruntime.InferenceSession(
            tmp_path / "net.onnx", providers=["CPUExecutionProvider"]
        )

    def test_it_predicts_as_its_file_does(
        self, session: Any, tmp_path: Path, images: Tensor
    ) -> None:
        made = as_predictor(session, outputs="logits", mean=0.4, std=0.3)
        file = load_model(f"onnx:{tmp_path / 'net.onnx'}", outputs="logits", mean=0.4, std=0.3)
        assert torch.equal(made(images), file(images))
        assert made.fingerprint == file.fingerprint
        assert made.classes == 4
        assert input_of(made) == input_of(file) is not None

    def test_bytes_tell_it_apart_and_nothing_has_to_be_said(
        self, session: Any, tmp_path: Path
    ) -> None:
        content = (tmp_path / "net.onnx").read_bytes()
        made = as_predictor(type(session)(content), outputs="logits")
        linear_graph(tmp_path / "net.onnx", ["n", 3, 32, 32], 2 * drawn_weights(3072))
        other = as_predictor(type(session)(tmp_path / "net.onnx"), outputs="logits")
        assert made.fingerprint != other.fingerprint
        (tmp_path / "net.onnx").unlink()
        refused("give fingerprint=", as_predictor, session, outputs="logits")
        named = as_predictor(session, outputs="logits", fingerprint="mine")
        assert named.fingerprint != made.fingerprint

    def test_what_is_left_open_is_asked_for(self, session: Any, tmp_path: Path) -> None:
        refused("'log_probs' with a session", as_predictor, session)
        refused(
            "unknown keyword 'latout'.*'layout'",
            as_predictor,
            session,
            outputs="logits",
            latout="nchw",
        )
        linear_graph(tmp_path / "open.onnx", ["n", "a", "b", "c"], drawn_weights(3072))
        ambiguous = type(session)(tmp_path / "open.onnx")
        refused("say layout=nchw or layout=nhwc", as_predictor, ambiguous, outputs="logits")
        assert as_predictor(ambiguous, outputs="logits", layout="nchw")
