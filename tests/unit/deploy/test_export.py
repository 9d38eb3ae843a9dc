"""One file with views, network, average and temperature: against TTA, in ONNX Runtime."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from tests.support import refused
from tests.unit.deploy.tta_cases import MEAN, STD, fixed_policy, network, some_images
from torch import Tensor, nn

import relook
from relook.deploy.export import export
from relook.deploy.file_form import FileForm, image_input
from relook.deploy.onnx import check as onnx_check
from relook.deploy.onnx import model as onnx_file
from relook.deploy.onnx.model import ImageInput, ModelPlan
from relook.deploy.tta.view_plan import plan_views
from relook.io.identities import UNKNOWN
from relook.models import EnsemblePredictor, TorchPredictor, load_model
from relook.models.base import InputSpec
from relook.models.onnx_runtime import export_network, is_installed, open_session
from relook.numerics.conformal import fit_sets
from relook.policy import Policy, Step, SubPolicy
from relook.policy.file import policy_from_json
from relook.transforms.centre_crop import CentreCrop
from relook.transforms.onnx.graph import Shape

pytestmark = pytest.mark.skipif(not is_installed(), reason="onnx or onnxruntime is not installed")


def run(path: Path, images: Tensor | NDArray[np.uint8]) -> NDArray[np.float32]:
    session = open_session(path.read_bytes())
    (results,) = session.run(None, {"images": np.asarray(images)})
    return np.asarray(results)


def properties(path: Path) -> dict[str, str]:
    found: dict[str, str] = open_session(path.read_bytes()).get_modelmeta().custom_metadata_map
    return found


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
@pytest.mark.parametrize("per_class", [False, True])
def test_the_file_has_the_prediction_sets_of_tta(
    score: Any, per_class: bool, tmp_path: Path
) -> None:
    output: Any = "logits" if per_class else "probabilities"
    policy, model, images = fixed_policy(), network(), some_images(40)
    how: dict[str, Any] = {"mean": MEAN, "std": STD}
    assert policy.temperatures is not None
    shares = relook.TTA(model, policy, **how).predict_proba(images)
    rule = fit_sets(
        shares,
        np.arange(40) % 7,
        coverage=0.7,
        score=score,
        per_class=per_class,
        temperature=policy.temperatures[-1],
        free=2,
    )
    policy = replace(policy, sets=rule)
    new = some_images(60, seed=1)
    own = relook.TTA(model, policy, **how).predict_set(new)
    assert 60 < own.sum() < 7 * 60
    export(model, policy, tmp_path / "m.onnx", output=output, images=images, **how)
    session = open_session((tmp_path / "m.onnx").read_bytes())
    assert [one.name for one in session.get_outputs()] == [output, "set"]
    (found,) = session.run(["set"], {"images": new.numpy()})
    assert found.dtype == np.bool_
    assert found.tobytes() == own.tobytes()
    for other in ({"views": 2}, {"temperature": 1.5}):
        tta = relook.TTA(model, policy, **other, **how)
        refused("expected a policy with prediction sets for these", tta.predict_set, new)


def both() -> EnsemblePredictor:
    return EnsemblePredictor([TorchPredictor(network(seed), mean=MEAN, std=STD) for seed in (1, 2)])


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (network(), {"mean": MEAN, "std": STD}),
        (network(), {"output": "log_probs"}),
        (network(), {"output": "logits"}),
        (network(), {"views": 2}),
        (both(), {}),
    ],
)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_file_gives_what_tta_gives_for_any_number_of_images(
    model: Any, options: dict[str, Any], layout: Any, tmp_path: Path
) -> None:
    policy, images, path = fixed_policy(), some_images(33), tmp_path / "m.onnx"
    done = export(model, policy, path, layout=layout, images=images, **options)
    tta = relook.TTA(model, policy, **options)
    wanted = tta(images).numpy()
    given = images if layout == "nchw" else images.permute(0, 2, 3, 1).contiguous()
    for count in (0, 1, 6, 7, 16, 17, 33):
        found = run(path, given[:count])
        assert found.shape == (count, 7)
        assert np.allclose(found, wanted[:count], atol=1e-5)
    assert (done.views, done.temperature) == (tta.views, tta.temperature)
    assert done.check.byte_equal_views
    assert done.check.max_difference < 1e-5
    assert not done.check.generated


class _AtMost(nn.Module):
    """A network that fails on larger batches than it is said to take, as a graph too."""

    places: Tensor

    def __init__(self, most: int) -> None:
        super().__init__()
        self.inner = network()
        self.register_buffer("places", torch.zeros((most, 1)))

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.inner(images)
        return outputs + self.places[: images.shape[0]]


def test_the_network_never_sees_more_views_than_planned(tmp_path: Path) -> None:
    policy, images, shape = fixed_policy(), some_images(40), Shape(3, 32, 32)
    most = ModelPlan(plan_views(policy), ImageInput(shape, shape), 7).views_at_once
    model = _AtMost(most).eval()
    export(model, policy, tmp_path / "m.onnx", images=images)
    wanted = relook.TTA(model.inner, policy)(images)
    assert np.allclose(run(tmp_path / "m.onnx", images), wanted, atol=1e-5)
    bare = open_session(export_network(TorchPredictor(model), images))
    with pytest.raises(Exception, match="by 33"):
        bare.run(None, {"images": images[: most + 1].numpy()})


def sized(model: nn.Module, **spec: Any) -> TorchPredictor:
    predictor = TorchPredictor(model)
    predictor.input = InputSpec((32, 32), channels=3, **spec)
    return predictor


@pytest.mark.parametrize("every", [False, True])
def test_images_become_inside_what_they_became_in_the_search(every: bool) -> None:
    searched = CentreCrop((32, 32), 0.6, 3, "bilinear", every)
    for size, changed in (((32, 32), every), ((60, 48), True)):
        form = FileForm(resize_from=size)
        given = image_input(sized(network()), form, None, searched)
        assert given.preparation == (searched if changed else None)
        own = image_input(sized(network()), replace(form, crop=0.9), None, searched)
        assert own.preparation == replace(searched, crop=0.9, every=True)


@pytest.mark.parametrize("crop", [5e-324, 1e-4])
def test_an_impossible_preparation_is_refused(crop: float) -> None:
    searched = CentreCrop((32, 32), crop, 3)
    form = FileForm(resize_from=(40, 40))
    refused("can be resized to 3×32×32", image_input, sized(network()), form, None, searched)


@pytest.mark.parametrize("how", ["bicubic", "bilinear"])
def test_images_of_another_size_are_brought_to_the_networks_inside(
    how: str, tmp_path: Path
) -> None:
    predictor, policy = sized(network(), crop=0.8, interpolation=how), fixed_policy()
    done = export(predictor, policy, tmp_path / "m.onnx", resize_from=(60, 48))
    assert done.check.generated
    assert "brought to 3×32×32 (resized" in done.input
    images = torch.randint(0, 256, (3, 3, 60, 48), dtype=torch.uint8)
    filters: Any = Image.Resampling
    small = [
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize((40, 50), filters[how.upper()])
        for image in images
    ]
    cut = np.stack([np.asarray(one.crop((4, 9, 36, 41))) for one in small])
    wanted = relook.TTA(predictor, policy)(torch.from_numpy(cut).permute(0, 3, 1, 2))
    assert np.allclose(run(tmp_path / "m.onnx", images), wanted, atol=1e-5)


def test_high_images_are_resized_in_pillows_order(tmp_path: Path) -> None:
    """From 140×50 to 100×36 Pillow 13 goes down first, though the width shrinks as well."""
    plain = Policy((SubPolicy(),), temperatures=(1.0,))
    done = export(sized(network()), plain, tmp_path / "m.onnx", resize_from=(140, 50))
    assert done.check.byte_equal_views


def test_the_weights_are_in_the_file_once(tmp_path: Path) -> None:
    policy, model = fixed_policy(), network()
    one = export(model, policy, tmp_path / "1.onnx", views=1, images=some_images())
    all_views = export(model, policy, tmp_path / "5.onnx", images=some_images())
    weights = sum(p.numel() * 4 for p in model.parameters())
    assert weights < one.nbytes < all_views.nbytes
    import onnx

    model_file = onnx.load(tmp_path / "5.onnx")
    onnx.checker.check_model(model_file, full_check=True)
    graph = model_file.graph
    for _ in range(2):  # over images, and inside it over views
        (loop,) = [node for node in graph.node if node.op_type == "Loop"]
        graph = loop.attribute[0].g
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    assert len(convolutions) == sum(isinstance(part, nn.Conv2d) for part in model.modules())


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    policy = fixed_policy()
    names = [f"klasse {i} ✓" for i in range(7)]
    done = export(
        network(), policy, tmp_path / "m.onnx", views=3, classes=names, images=some_images(3)
    )
    found = properties(tmp_path / "m.onnx")
    assert found["relook_version"] == relook.__version__
    assert policy_from_json(json.loads(found["policy"])) == policy.for_budget(3)
    assert json.loads(found["temperature"]) == done.temperature
    assert json.loads(found["classes"]) == names
    assert found["input"] == "uint8 images n × 3 × 32 × 32"
    check = json.loads(found["check"])
    assert check["max_difference"] == done.check.max_difference
    assert check["images"] == 3
    assert check["byte_equal_views"]


def test_the_same_export_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        export(network(), fixed_policy(), tmp_path / name, images=some_images())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_fresh_policy_is_frozen_and_needs_a_temperature(tmp_path: Path) -> None:
    fresh = Policy((SubPolicy((Step("rotate", 8),)), SubPolicy()), temperatures=(1.1, 1.2))
    with pytest.raises(relook.RelookError, match=r"relook calibrate.*temperature=None"):
        export(network(), fresh, tmp_path / "m.onnx", images=some_images())
    done = export(
        network(), fresh, tmp_path / "m.onnx", images=some_images(), seed=5, temperature=None
    )
    assert done.temperature == 1.0
    wanted = relook.TTA(network(), fresh.freeze(5), temperature=None)(some_images())
    assert np.allclose(run(tmp_path / "m.onnx", some_images()), wanted, atol=1e-5)


def test_a_model_that_comes_out_different_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Restless(TorchPredictor):
        def __call__(self, images: Tensor) -> Tensor:
            return super().__call__(images).flip(1)

    path = tmp_path / "m.onnx"
    with pytest.raises(relook.RelookError, match=r"differs from relook's own.*nothing was written"):
        export(Restless(network()), fixed_policy(), path, images=some_images())
    assert list(tmp_path.iterdir()) == []

    def darker(*_: Any) -> list[Tensor]:
        return [torch.zeros((10, 3, 32, 32), dtype=torch.uint8)] * 5

    monkeypatch.setattr(onnx_check, "_own_views", darker)
    with pytest.raises(relook.RelookError, match=r"exported view .* differs .* levels"):
        export(network(), fixed_policy(), path, images=some_images())
    assert list(tmp_path.iterdir()) == []


def test_a_file_beyond_two_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "LARGEST_FILE", 1000)
    with pytest.raises(relook.RelookError, match="at most 2 GB"):
        export(network(), fixed_policy(), tmp_path / "m.onnx", images=some_images())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 32}, "does not state its channels"),
        ({"channels": 3}, "does not state the size"),
        ({"size": 32, "channels": 3, "output": "logit"}, "did you mean 'logits'"),
        ({"size": 32, "channels": 3, "layout": "hwc"}, "layout"),
        ({"size": 32, "channels": 3, "format": "onxx"}, "did you mean 'onnx'"),
        ({"size": 32, "channels": 3, "classes": ["a"]}, "a name for each of 7 classes, got 1"),
        ({"size": 40, "channels": 3, "images": some_images()}, "images of 3×40×40 to check on"),
    ],
)
def test_what_is_missing_or_wrong_is_said(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    refused(message, export, network(), fixed_policy(), tmp_path / "m.onnx", **options)


def test_functions_and_half_precision_are_refused(tmp_path: Path) -> None:
    def flat(images: Tensor) -> Tensor:
        return torch.zeros((len(images), 4))

    for model, message in (
        (flat, "expected a network to export"),
        (network().half(), r"float32 weights .* network.float\(\)"),
    ):
        given = model, fixed_policy(), tmp_path / "m.onnx"
        refused(message, export, *given, outputs="logits", images=some_images())


def test_an_exported_program_of_torch_gives_the_same(tmp_path: Path) -> None:
    pool = (SubPolicy((Step("flip", 0),)), SubPolicy((Step("invert", 0),)), SubPolicy())
    policy, images = Policy(pool, temperatures=(1.0, 1.1, 1.3)), some_images(5)
    path = tmp_path / "m.pt2"
    done = export(network(), policy, path, images=images, format="torch-export", classes="abcdefg")
    extra = {"classes": "", "policy": ""}
    program = torch.export.load(path, extra_files=extra).module()
    wanted = relook.TTA(network(), policy)(images)
    assert torch.allclose(program(images[:3]), wanted[:3], atol=1e-6)
    assert json.loads(extra["classes"]) == list("abcdefg")
    assert policy_from_json(json.loads(extra["policy"])) == policy
    assert not done.check.byte_equal_views
    for options in ({"layout": "nhwc"}, {"resize_from": (40, 40), "size": 32, "images": None}):
        given: dict[str, Any] = {"images": images, "channels": 3, **options}
        with pytest.raises(relook.RelookError, match="layout nchw and no resize"):
            export(network(), policy, path, format="torch-export", **given)


def test_an_exported_file_is_itself_a_model(tmp_path: Path) -> None:
    policy, images = fixed_policy(), some_images()
    export(network(), policy, tmp_path / "m.onnx", images=images)
    predictor = load_model(f"onnx:{tmp_path / 'm.onnx'}", outputs="probabilities")
    wanted = relook.TTA(network(), policy, output="log_probs")(images)
    assert torch.allclose(predictor(images), wanted, atol=1e-4)
    plain = replace(policy, subpolicies=(SubPolicy(),), temperatures=(1.0,))
    again = export(predictor, plain, tmp_path / "again.onnx", images=images)
    assert again.check.max_difference < 1e-5


def test_a_file_does_not_tell_which_images_were_searched(tmp_path: Path) -> None:
    searched = replace(fixed_policy(), seen=bytes(range(12)))
    export(network(), searched, tmp_path / "m.onnx", size=32, channels=3)
    kept = policy_from_json(json.loads(properties(tmp_path / "m.onnx")["policy"]))
    assert kept.subpolicies == searched.subpolicies
    assert kept.seen == UNKNOWN
