"""Whole plans: splits, seeds, retraining, records, and specs that load again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support import refused

from relook.data import Dataset, load_data
from relook.errors import RunError
from relook.models import load_model
from relook.models.cifar_networks import CIFAR_NETWORKS
from relook.studies.training import TrainingPlan, get_network, train_models, validation_spec

PLAN = TrainingPlan(
    "small:4", epochs=2, recipe="small", batch=30, seeds=(0, 1), validation=40, retrain=True
)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_data("digits:train")


@pytest.fixture(scope="module")
def colours() -> Dataset:
    images = torch.randint(0, 256, (24, 3, 32, 32), generator=torch.Generator().manual_seed(0))
    return Dataset(images.to(torch.uint8), np.arange(24) % 3, ("a", "b", "c"), "colours")


def test_a_plan_trains_the_split_then_everything(digits: Dataset, tmp_path: Path) -> None:
    test = load_data("digits:test").subset(np.arange(100))
    models = train_models(digits, PLAN, tmp_path / "run", test=test)
    assert [(m.part, m.seed, m.images) for m in models] == [
        ("split", 0, 139),
        ("split", 1, 139),
        ("all", 0, 179),
        ("all", 1, 179),
    ]
    for model in models:
        assert model.spec == f"small@{model.path}"
        assert len(model.losses) == 2
        picked = load_model(model.spec)(test.plain).argmax(dim=1).numpy()
        assert model.test is not None
        assert model.test["accuracy"] == pytest.approx((picked == test.labels).mean())
        assert (model.validation is None) == (model.part == "all")
    kept = load_data(validation_spec(tmp_path / "run"))
    assert len(kept) == 40
    assert np.bincount(kept.labels).min() >= 3
    assert torch.equal(kept.plain, digits.plain[torch.from_numpy(kept.columns["place"])])
    # Again: nothing is trained, and the answers are the same.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").glob("[!.]*")}
    assert train_models(digits, PLAN, tmp_path / "run", test=test) == models
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "run").glob("[!.]*")} == before
    assert not list((tmp_path / "run").glob("*.state"))


def test_seeds_can_be_added_and_other_settings_are_refused(digits: Dataset, tmp_path: Path) -> None:
    plan = replace(PLAN, epochs=1, seeds=(0,), validation=None, retrain=False)
    (first,) = train_models(digits, plan, tmp_path)
    both = train_models(digits, replace(plan, seeds=(0, 7)), tmp_path)
    assert both[0] == first
    assert both[1].path.read_bytes() != first.path.read_bytes()
    with pytest.raises(RunError, match=r"other settings .*augment"):
        train_models(digits, replace(plan, augment="none"), tmp_path)


def test_killed_between_the_weights_and_the_record(digits: Dataset, tmp_path: Path) -> None:
    plan = replace(PLAN, epochs=1, seeds=(0,), validation=None, retrain=False)
    (model,) = train_models(digits, plan, tmp_path)
    whole = model.path.read_bytes()
    model.path.with_suffix(".json").unlink()
    (again,) = train_models(digits, plan, tmp_path)
    assert again == model
    assert again.path.read_bytes() == whole
    model.path.with_suffix(".json").write_text("{}")
    with pytest.raises(RunError, match="delete it to train again"):
        train_models(digits, plan, tmp_path)


def test_a_cifar_network_is_trained_as_it_is_loaded(colours: Dataset, tmp_path: Path) -> None:
    plan = TrainingPlan("cifar:resnet20", epochs=1, batch=12, augment="crop_flip")
    (model,) = train_models(colours, plan, tmp_path)
    assert model.spec == f"cifar:resnet20@{tmp_path / 'resnet20-all-0.safetensors'}"
    predictor = load_model(model.spec)
    assert predictor.classes == 3
    assert predictor(colours.plain).shape == (24, 3)


@pytest.mark.parametrize(
    ("spec", "decay"),
    [
        ("cifar:vgg16", 3e-4),
        ("cifar:preresnet110", 3e-4),
        ("cifar:wrn28x10", 5e-4),
        ("cifar:resnet20", 1e-4),
        ("small", 5e-4),
    ],
)
def test_weight_decays_are_those_of_the_appendix(spec: str, decay: float) -> None:
    assert get_network(spec).weight_decay == decay


@pytest.mark.parametrize("name", ["resnet20", "vgg16"])
def test_first_weights_follow_from_the_seed_alone(name: str) -> None:
    network = get_network(f"cifar:{name}")
    state = torch.get_rng_state()
    one, again, other = (network.build(3, 10, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    first = dict(one.state_dict())
    assert all(torch.equal(first[n], t) for n, t in again.state_dict().items())
    assert not all(torch.equal(first[n], t) for n, t in other.state_dict().items())
    assert all(t.isfinite().all() for t in first.values())
    # He et al.: the variance is 2 over the inputs of a unit.
    convolution = next(t for t in first.values() if t.ndim == 4 and t[0].numel() > 100)
    wanted = (2 / convolution[0].numel()) ** 0.5
    assert convolution.std().item() == pytest.approx(wanted, rel=0.1)


def test_every_cifar_network_can_be_trained() -> None:
    assert all(get_network(f"cifar:{name}").channels == 3 for name in CIFAR_NETWORKS)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"network": "cifar:vgg61"}, "did you mean 'vgg16'"),
        ({"network": "smal"}, "did you mean 'small'"),
        ({"network": "small:wide"}, "small:WIDTH"),
        ({"network": "cifar:resnet20"}, "takes colour images of 32×32.*--channels 3"),
        ({"validation": 500}, "fewer images for validation than the 179"),
        ({"seeds": ()}, "each once"),
        ({"seeds": (1, 1)}, "each once"),
        ({"magnitude": 61.0}, "magnitude from 0 to 60"),
        ({"learning_rate": 0.0}, "learning rate above 0"),
        ({"recipe": "cifr"}, "did you mean 'cifar'"),
    ],
)
def test_bad_plans_are_refused(
    digits: Dataset, tmp_path: Path, plan: dict[str, object], message: str
) -> None:
    def attempt() -> None:
        train_models(digits, replace(PLAN, **plan), tmp_path)  # type: ignore[arg-type]

    refused(message, attempt)
