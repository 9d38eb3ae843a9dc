"""A transform is one kernel and one row: everything else works with it, or says that it cannot."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support import own_rows, refused
from tests.unit.deploy.tta_cases import network, some_images
from tests.unit.policy.policy_cases import VALIDATOR
from torch import Tensor

import relook
from relook.deploy.export import export
from relook.models.onnx_runtime import is_installed
from relook.policy import Policy, Step, SubPolicy
from relook.policy.pool import sample_pool
from relook.policy.recipes import Group, Recipe
from relook.policy.views import make_views
from relook.testing import check_transform
from relook.transforms import TRANSFORMS
from relook.transforms.apply import apply_kernels


def dim(images: Tensor, values: Tensor) -> Tensor:
    """Take the same number of grey levels from each pixel."""
    darker = images.to(torch.int16) - values.to(torch.int16)[:, None, None, None]
    return darker.clamp(min=0).to(torch.uint8)


@pytest.fixture(autouse=True)
def _toy() -> Iterator[None]:
    with own_rows(TRANSFORMS):
        relook.register_transform(
            "dim", dim, value=lambda m: 2 * m, unit="grey levels", identity_at_zero=True
        )
        yield
    assert "dim" not in TRANSFORMS


def subpolicy() -> SubPolicy:
    crop = Step("crop", 4, draws={"x": 1, "y": 0})
    return SubPolicy((Step("invert", 0), Step("dim", 10), crop))


def test_it_is_drawn_in_a_pool() -> None:
    recipe = Recipe("toy", ("dim", "invert"), (Group(20, 2, 30),))
    steps = [step for sub in sample_pool(recipe) for step in sub.steps]
    assert {step.transform for step in steps} == {"dim", "invert"}


def test_it_is_applied_on_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    images = some_images(6)
    darker = (255 - images.int() - 20).clamp(min=0).to(torch.uint8)
    wanted = make_views(SubPolicy(subpolicy().steps[2:]), darker, seed=0)
    assert torch.equal(make_views(subpolicy(), images, seed=0), wanted)
    monkeypatch.setattr("relook.policy.views.apply_steps", apply_kernels)
    assert torch.equal(make_views(subpolicy(), images, seed=0), wanted)


def test_it_is_saved_in_a_policy_and_loaded(tmp_path: Path) -> None:
    policy = Policy((subpolicy(),))
    policy.save(tmp_path / "policy.json")
    assert Policy.load(tmp_path / "policy.json") == policy


def test_it_is_exported_to_torch(tmp_path: Path) -> None:
    done = export(
        network(),
        Policy((subpolicy(),)),
        tmp_path / "m.pt2",
        temperature=None,
        format="torch-export",
        images=some_images(4),
    )
    assert done.check.max_difference < 1e-5


@pytest.mark.skipif(not is_installed(), reason="onnx or onnxruntime is not installed")
def test_onnx_refuses_it_in_one_line(tmp_path: Path) -> None:
    policy, path = Policy((subpolicy(),)), tmp_path / "m.onnx"
    with pytest.raises(relook.RelookError) as caught:
        export(network(), policy, path, size=32, channels=3, temperature=None)
    message = str(caught.value)
    assert message.startswith("step 2 of ")
    assert "dim has no ONNX form: export with format torch-export" in message
    assert "exclude dim" in message
    assert "\n" not in message
    assert not list(tmp_path.iterdir())


def test_it_keeps_the_promises_of_a_transform() -> None:
    check_transform("dim")
    check_transform(dim, identity_at_zero=True)


def test_a_name_that_is_taken_is_refused() -> None:
    before = dict(TRANSFORMS)
    for name in ("dim", "rotate"):
        refused(f"there is a transform '{name}' already", relook.register_transform, name, dim)
    assert dict(TRANSFORMS) == before


def test_names_and_draws_that_make_no_sense_are_refused() -> None:
    for name in ("", "a b", "a:b", "x" * 61, 7):
        refused("expected a name of up to 60 letters", relook.register_transform, name, dim)
    refused("unknown draw 'sing'", relook.register_transform, "d", dim, draws=("sing",))


def test_what_it_returns_is_checked() -> None:
    relook.register_transform("half", lambda images, values: images.float() / 2)
    relook.register_transform("less", lambda images, values: images[:, :1])
    relook.register_transform("none", lambda images, values: None)  # type: ignore[type-var]
    for name, got in (("half", "torch.float32"), ("less", r"torch.uint8 \[3, 1"), ("none", "None")):
        view = SubPolicy((Step(name, 1),))
        refused(
            f"{name}: expected a uint8 tensor .* got {got}",
            make_views,
            view,
            some_images(3),
            seed=0,
        )


@pytest.mark.parametrize(
    ("promise", "function", "row"),
    [
        ("differs when repeated", lambda i, v: torch.randint_like(i, 255), {}),
        ("depends on its batch", lambda i, v: i.sub(i[:1]), {}),
        ("new images, not the given", lambda i, v: i, {}),
        ("changes images at magnitude 0", lambda i, v: 255 - i, {"identity_at_zero": True}),
        ("trend=-1", lambda i, v: i.clone(), {"trend": -1}),
    ],
)
def test_a_broken_promise_is_named(promise: str, function: Any, row: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_transform(function, **row)


def test_a_policy_names_the_module_that_registers_it(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    Policy((subpolicy(),)).save(path)
    content = json.loads(path.read_text())
    VALIDATOR.validate(content)
    assert content["version"] == 2
    names = [step["transform"] for step in content["subpolicies"][0]["steps"]]
    assert names == ["invert", f"{__name__}:dim", "crop"]


def test_without_it_a_policy_is_refused_and_nothing_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.json"
    Policy((subpolicy(),)).save(path)
    (tmp_path / "own_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    path.write_text(path.read_text().replace(f"{__name__}:dim", "own_module:lost"))
    refused(
        r"steps\[1\].transform: expected the transform 'lost' of own_module, which is not "
        "registered: in Python, import own_module first; the command line needs a package",
        Policy.load,
        path,
    )
    for name in ("rotate", "no:such:thing", ":dim", "a b:dim", "own_module:rotate"):
        path.write_text(path.read_text().replace("own_module:lost", name))
        if name != "rotate":
            refused("transform", Policy.load, path)
        path.write_text(path.read_text().replace(name, "own_module:lost"))
