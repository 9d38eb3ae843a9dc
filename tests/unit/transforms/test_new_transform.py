"""A transform is one kernel and one row: everything else works with it, or says that it cannot."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.unit.deploy.tta_cases import network, some_images
from torch import Tensor

import relook
from relook.deploy.export import export
from relook.foundation.registry import by_name
from relook.models.onnx_runtime import is_installed
from relook.policy import Policy, Step, SubPolicy
from relook.policy.pool import sample_pool
from relook.policy.recipes import Group, Recipe
from relook.policy.views import make_views
from relook.transforms import TRANSFORMS, Transform
from relook.transforms.apply import apply_kernels
from relook.transforms.checks import checked
from relook.transforms.table import _TABLE


@checked
def dim(images: Tensor, values: Tensor) -> Tensor:
    """Take the same number of grey levels from each pixel."""
    darker = images.to(torch.int16) - values.to(torch.int16)[:, None, None, None]
    return darker.clamp(min=0).to(torch.uint8)


@contextmanager
def registered(row: Transform) -> Iterator[None]:
    """Have one more transform for the time of a `with` block."""
    _TABLE.update(by_name([*_TABLE.values(), row]))
    try:
        yield
    finally:
        del _TABLE[row.name]


@pytest.fixture(autouse=True)
def _toy() -> Iterator[None]:
    with registered(Transform("dim", dim, lambda m: 2 * m, "grey levels")):
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
    assert "--exclude dim" in message
    assert "\n" not in message
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_taken_is_refused() -> None:
    before = dict(TRANSFORMS)
    taken = replace(TRANSFORMS["dim"], unit="other")
    with pytest.raises(ValueError, match="'dim' is in its table twice"), registered(taken):
        pass
    assert dict(TRANSFORMS) == before
