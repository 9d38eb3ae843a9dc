"""Files that take photos of any size, in ONNX Runtime alone: the views and TTA's predictions."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from tests.support import refused
from tests.unit.deploy.photo_cases import PLAN, VIEWS, photo_policy, some_photos
from tests.unit.deploy.tta_cases import MEAN, STD, network

import relook
from relook.data.image_files import reduce_photos
from relook.deploy.export import export
from relook.deploy.onnx.model import ImageInput, ModelPlan, build_views, to_bytes
from relook.deploy.tta.view_plan import plan_views
from relook.models.onnx_runtime import is_installed, open_session
from relook.transforms.centre_crop import CentreCrop
from relook.transforms.full_images import FullImages
from relook.transforms.onnx.graph import Shape
from relook.transforms.onnx.photos import INTERPOLATIONS
from relook.transforms.table import TRANSFORMS

pytestmark = pytest.mark.skipif(not is_installed(), reason="onnx or onnxruntime is not installed")

PLANS = [
    replace(PLAN, interpolation=name, every=name == "bilinear", channels=1 if name == "box" else 3)
    for name in INTERPOLATIONS
]


def as_file_takes(photo: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(photo.transpose(2, 0, 1)[None])


@pytest.mark.parametrize("plan", PLANS, ids=INTERPOLATIONS)
def test_views_are_cut_from_photos_of_any_size_byte_for_byte(plan: CentreCrop) -> None:
    """Pillow chooses its order of passes by the sizes: both are met, and reduced photos."""
    shape, views = Shape(plan.channels, *plan.size), plan_views(photo_policy(plan))
    session = open_session(
        to_bytes(build_views(ModelPlan(views, ImageInput(shape, shape, "nchw", plan), 7)))
    )

    @settings(max_examples=15)
    @given(st.integers(8, 150), st.integers(8, 150), st.integers(0, 9))
    def check(height: int, width: int, seed: int) -> None:
        (photo,) = some_photos((height, width), channels=plan.channels, seed=seed)
        (found,) = session.run(None, {"images": as_file_takes(photo)})
        photos = reduce_photos(FullImages.of([photo], plan))
        own = [views.make(view, photos, np.arange(1)).numpy()[0] for view in range(len(VIEWS))]
        np.testing.assert_array_equal(found, np.stack(own))

    check()


def test_the_file_gives_ttas_predictions_of_the_photos(tmp_path: Path) -> None:
    policy, model, path = photo_policy(), network(), tmp_path / "m.onnx"
    done = export(model, policy, path, mean=MEAN, std=STD)
    assert done.check.byte_equal_views
    assert done.check.generated
    assert "photos of any size, uint8 RGB n × 3 × height × width" in done.input
    assert "resized to at least 36×36, bicubic" in done.input
    session, photos = open_session(path.read_bytes()), some_photos()
    about = session.get_modelmeta().custom_metadata_map
    assert about["input"] == done.input
    assert json.loads(about["policy"])["preparation"]["full_size"] is True
    wanted = relook.TTA(model, policy, mean=MEAN, std=STD)(photos)
    for photo, row in zip(photos, wanted, strict=True):
        (found,) = session.run(None, {"images": as_file_takes(photo)})
        assert np.abs(found[0] - row.numpy()).max() < 1e-5
    batch = np.concatenate([as_file_takes(one) for one in some_photos(*[(45, 80)] * 7)])
    (found,) = session.run(None, {"images": batch})
    tta = relook.TTA(model, policy, mean=MEAN, std=STD)
    assert np.abs(found - tta(torch.from_numpy(batch)).numpy()).max() < 1e-5


def test_a_file_is_checked_on_the_photos_that_are_given(tmp_path: Path) -> None:
    policy, photos = photo_policy(), some_photos()
    done = export(network(), policy, tmp_path / "m.onnx", images=photos, layout="nhwc")
    assert (done.check.images, done.check.generated) == (5, False)
    session = open_session((tmp_path / "m.onnx").read_bytes())
    assert session.get_inputs()[0].shape == ["n", "height", "width", 3]
    (found,) = session.run(None, {"images": photos[0][None]})
    pictures = [Image.fromarray(photo) for photo in photos]
    assert np.abs(found - relook.TTA(network(), policy)(pictures).numpy()[:1]).max() < 1e-5


def test_the_form_of_before_is_there_for_who_asks(tmp_path: Path) -> None:
    policy = photo_policy()
    done = export(network(), policy, tmp_path / "m.onnx", full_size=False)
    assert done.input == "uint8 images n × 3 × 32 × 32"
    done = export(network(), policy, tmp_path / "n.onnx", resize_from=(40, 50))
    assert "uint8 images n × 3 × 40 × 50" in done.input
    unmarked = replace(policy, preparation=replace(PLAN, full_size=False))
    done = export(network(), unmarked, tmp_path / "o.onnx", full_size=True, size=32, channels=3)
    assert done.input.startswith("photos of any size")


def test_what_cannot_be_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, path = photo_policy(), tmp_path / "m"
    refused("resize_from out", export, network(), policy, path, full_size=True, resize_from=(9, 9))
    refused("no photos", export, network(), policy, path, full_size=True, format="torch-export")
    lanczos = photo_policy(replace(PLAN, interpolation="lanczos"))
    refused("interpolation bicubic, bilinear, box", export, network(), lanczos, path)
    table = {**TRANSFORMS, "zoom": replace(TRANSFORMS["zoom"], onnx_full_size=None)}
    monkeypatch.setattr("relook.transforms.onnx.photos.TRANSFORMS", table)
    refused("zoom of full-size photos has no ONNX form", export, network(), policy, path)
