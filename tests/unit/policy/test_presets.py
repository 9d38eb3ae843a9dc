from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support import refused
from tests.unit.deploy.tta_cases import network, some_images

import relook
from relook.evaluation.baselines import BASELINES
from relook.io.identities import pixel_identities, set_of
from relook.numerics.calibration import fit_temperature
from relook.policy import Policy, Step, SubPolicy
from relook.policy.presets import PRESETS, is_preset, preset_of
from relook.policy.recipes import RECIPES

SIZES = {"plain": 1, "flip": 2, "5c": 5, "d4": 8, "10c": 10, "crops": 20}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_what_the_baseline_averages(name: str) -> None:
    baseline = BASELINES["cf" if name == "crops" else name]
    found = Policy.preset(name, seed=3)
    expected = baseline.policy(RECIPES["cifar"], baseline.budget or 20, 3, "fixed")
    assert found == expected
    assert (len(found), found.is_fixed) == (SIZES[name], True)


def test_views_are_the_first_of_a_preset() -> None:
    assert Policy.preset("10c", 3) == Policy.preset("10c")[:3]
    assert Policy.preset("crops", views=30)[:20] == Policy.preset("crops")
    refused("preset 'flip': expected 1 to 2 views, got 3", Policy.preset, "flip", views=3)
    refused("preset 'crops': expected 1 to 1 views, got 0", Policy.preset, "crops", views=0)
    refused("unknown preset 'flop'.*flip", Policy.preset, "flop")


def test_a_preset_stands_where_a_policy_file_does(tmp_path: Path) -> None:
    assert Policy.load("preset:10c") == Policy.load(Path("preset:10c")) == Policy.preset("10c")
    asked = Policy.load("preset:crops?views=7&recipe=imagenet&seed=2")
    assert asked == Policy.preset("crops", views=7, recipe="imagenet", seed=2)
    refused("expected views as a whole number, got 'x'", Policy.load, "preset:crops?views=x")
    refused("unknown preset option 'view'", Policy.load, "preset:crops?view=2")
    for misspelt in ("10cc", Path("10cc")):
        refused(r"got '10cc', .* did you mean preset:10c\?", Policy.load, misspelt)
        refused("did you mean preset:10c", relook.TTA, network(), misspelt)
    # A path is a file, whatever its name; a bare name is a preset's.
    Policy.preset("d4").save(tmp_path / "flip")
    assert Policy.load(tmp_path / "flip") == Policy.preset("d4")
    assert is_preset("flip")
    assert not is_preset(Path("flip"))


def test_tta_takes_a_preset_by_name_and_calibrates_it() -> None:
    images, labels = some_images(), np.arange(10) % 7
    told = r"not calibrated: TTA\.calibrate\(images, labels\) fits its temperature"
    with pytest.warns(UserWarning, match=told):
        tta = relook.TTA(network(), "flip")
    assert (tta.views, tta.temperature) == (2, 1.0)
    usual = np.exp(tta.view_log_probs(images).numpy().astype(np.float64)).mean(axis=0)
    np.testing.assert_allclose(tta(images).numpy(), usual, atol=1e-6)
    assert tta.calibrate(images, labels) is tta
    assert tta.policy.temperatures is not None
    assert tta.policy.seen == set_of(pixel_identities(images))
    if tta.policy.view_temperature == 1:
        assert tta.temperature == pytest.approx(fit_temperature(np.log(usual), labels), rel=1e-4)
    again = relook.TTA(network(), tta.policy)
    torch.testing.assert_close(again(images), tta(images))
    refused("expected a label per image, 10 of them", tta.calibrate, images, labels[:3])
    with pytest.warns(UserWarning, match=told) as noted:
        bare = relook.TTA(network(), Policy.preset("flip"))
    assert len(noted) == 1
    np.testing.assert_allclose(bare(images).numpy(), usual, atol=1e-6)
    unknown = Policy((SubPolicy((Step("rotate", 3),)),))
    refused("the policy has no temperature", relook.TTA, network(), unknown.freeze(0))


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_known_by_its_views(name: str) -> None:
    made = Policy.preset(name, recipe="imagenet", seed=2)
    assert preset_of(replace(made, temperatures=(1.0,) * len(made))) == name
    assert preset_of(Policy((SubPolicy((Step("rotate", 3),)),))) is None
    assert preset_of(Policy(())) is None
    assert preset_of(Policy.preset("10c", 7)) is None
