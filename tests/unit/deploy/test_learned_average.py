"""Views averaged at a view temperature κ: one average, whatever runs the policy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp, softmax
from tests.support import different, refused
from tests.unit.deploy.exit_cases import policy_of, predictions, some_rule
from tests.unit.deploy.tta_cases import FLIP, MEAN, PLAIN, STD, fixed_policy, network, some_images
from torch import Tensor

import relook
from relook.data import Dataset
from relook.deploy import calibrate as calibrate_module
from relook.deploy.calibrate import calibrated_policy, weigh_policy
from relook.deploy.early_exit.learn import fit_temperatures, learn_early_exit
from relook.deploy.early_exit.report import report_early_exit
from relook.deploy.early_exit.rule import apply_early_exit, exit_counts
from relook.deploy.export import export
from relook.deploy.onnx.check import generated_images
from relook.evaluation.compare import compare
from relook.evaluation.cross_validation import cross_validated
from relook.models import EnsemblePredictor, Predictor, TorchPredictor
from relook.models.onnx_runtime import is_installed, open_session
from relook.numerics.calibration import fit_temperature
from relook.policy import Policy, Step, SubPolicy
from relook.predictions.passes import View, predict_views
from relook.transforms.onnx.graph import Shape

KAPPAS = (4.0, 0.5)

Floats = NDArray[np.float64]


def policy_at(kappa: float, length: int = 6) -> Policy:
    return replace(fixed_policy(length), view_temperature=kappa)


def model(seed: int = 1) -> TorchPredictor:
    """A network that is sure of itself, so that κ counts."""
    net = network(seed)
    with torch.no_grad():
        for parameter in list(net.parameters())[-2:]:
            parameter.mul_(12)
    return TorchPredictor(net, mean=MEAN, std=STD, classes=7)


def plain_average(log_probs: NDArray[Any], kappa: float) -> Floats:
    """The average as its formula has it: log mean softmax(z / κ)."""
    return np.asarray(np.log(softmax(log_probs.astype(np.float64) / kappa, axis=-1).mean(axis=0)))


def own_predictions(predictor: Predictor, policy: Policy, images: Tensor) -> Floats:
    """What relook says of images: passes, the plain average, the temperature."""
    views = [View(sub, index) for index, sub in enumerate(policy)]
    log_probs = predict_views(predictor, images, views, seed=policy.seed)
    assert policy.temperatures is not None
    average = plain_average(log_probs, policy.view_temperature)
    return np.asarray(softmax(average / policy.temperatures[-1], axis=-1))


def onnx_predictions(predictor: Predictor, policy: Policy, images: Tensor, path: Path) -> Floats:
    export(predictor, policy, path, images=images, tolerance=1e-5)
    (found,) = open_session(path.read_bytes()).run(None, {"images": images.numpy()})
    return np.asarray(found)


@pytest.mark.parametrize("kappa", KAPPAS)
def test_a_policy_tempers_each_view(kappa: float) -> None:
    log_probs, _ = predictions(20)
    found = policy_at(kappa).tempered(log_probs)
    expected = log_softmax(log_probs.astype(np.float64) / kappa, axis=-1)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    sure = np.array([[0.0, -500.0]])
    floored = policy_at(kappa).tempered(sure)
    np.testing.assert_allclose(floored, log_softmax([[0, -80 / kappa]], axis=-1), atol=1e-12)


def test_the_usual_average_changes_no_byte() -> None:
    log_probs, _ = predictions(20)
    assert policy_at(1).tempered(log_probs) is log_probs
    assert policy_at(1) == fixed_policy()
    tta = relook.TTA(model(), policy_at(1))
    images = some_images(5)
    bare = tta.network(tta.model, tta.plan.make(0, images, np.zeros(5, np.int64)))
    assert torch.equal(tta.view_log_probs(images)[0], bare)
    assert "view_temperature" not in f"{tta}{tta.plan.record()}"


@pytest.mark.skipif(not is_installed(), reason="onnx or onnxruntime is not installed")
@pytest.mark.parametrize("kappa", KAPPAS)
def test_tta_and_onnx_runtime_give_relook_s_own_predictions(kappa: float, tmp_path: Path) -> None:
    images = some_images(12)
    both = EnsemblePredictor([model(1), model(2)])
    for predictor in (model(), both):
        policy = policy_at(kappa)
        expected = own_predictions(predictor, policy, images)
        usual = own_predictions(predictor, policy_at(1), images)
        assert np.abs(expected - usual).max() > 0.01
        tta = relook.TTA(predictor, policy)
        np.testing.assert_allclose(tta(images), expected, atol=1e-5)
        np.testing.assert_allclose(tta.predict_proba(images), expected, atol=1e-5)
        file = onnx_predictions(predictor, policy, images, tmp_path / "m.onnx")
        np.testing.assert_allclose(file, expected, atol=1e-5)


def test_compiled_and_exported_graphs_average_alike(tmp_path: Path) -> None:
    images = some_images(6)
    policy = Policy((PLAIN, FLIP, FLIP), temperatures=(1.0, 1.1, 1.2), view_temperature=4)
    expected = own_predictions(model(), policy, images)
    tta = relook.TTA(model(), policy).eval()
    compiled = torch.compile(tta, backend="eager", fullgraph=True)
    np.testing.assert_allclose(compiled(images), expected, atol=1e-5)
    done = export(model(), policy, tmp_path / "m.pt2", format="torch-export", images=images)
    program = torch.export.load(tmp_path / "m.pt2").module()
    np.testing.assert_allclose(program(images), expected, atol=1e-5)
    assert done.view_temperature == 4
    first, given, returned = str(done).splitlines()
    assert first.startswith(f"{done.path}: ")
    assert given.startswith("input: uint8 ")
    assert returned.startswith("output: probabilities of ")
    assert returned.endswith(", view temperature 4")


@pytest.mark.skipif(not is_installed(), reason="onnx or onnxruntime is not installed")
def test_the_floor_of_a_view_holds_in_a_file_too(tmp_path: Path) -> None:
    """A class that a view rules out has e^−80, which a large κ makes a share that counts."""
    net = network()
    with torch.no_grad():
        list(net.parameters())[-1].copy_(torch.tensor([0.0, -300, -500, 0, 0, 0, 0]))
    predictor = TorchPredictor(net, classes=7)
    policy, images = policy_at(8.0), generated_images(Shape(3, 32, 32))
    found = onnx_predictions(predictor, policy, images, tmp_path / "m.onnx")
    np.testing.assert_allclose(found, relook.TTA(predictor, policy)(images), atol=1e-6)
    assert found[:, 1:3].min() > 1e-8


def test_fresh_draws_are_averaged_alike() -> None:
    rotate = SubPolicy((Step("rotate", 12),))
    policy = Policy((rotate, SubPolicy(), rotate), (1.0, 1.1, 1.2), seed=5, view_temperature=4)
    images = some_images(8)
    tta = relook.TTA(model(), policy, draws="fresh")
    expected = own_predictions(model(), policy, images)
    np.testing.assert_allclose(tta(images, first_index=0), expected, atol=1e-5)
    assert policy.freeze(1).view_temperature == 4
    assert policy.freeze(1).temperatures is None
    assert relook.TTA(model(), policy, temperature=None).policy.view_temperature == 4


def test_a_policy_keeps_it_and_says_it() -> None:
    policy = policy_at(4)
    for part in (policy[:3], policy[2:], policy.for_budget(2), replace(policy, seed=3)):
        assert part.view_temperature == 4
    assert str(policy).endswith("\nview temperature 4")
    assert "view temperature" not in str(fixed_policy())
    assert "view_temperature=4, " in str(relook.TTA(model(), policy))
    assert "The view temperature, 4, makes each view" in policy[:1]._repr_html_()
    for wrong in (0, -1, float("nan"), float("inf"), "4", True):
        refused("view_temperature: expected a number from 0.001 to 1000", policy_at, wrong)


@pytest.mark.parametrize("kappa", [1.0, 4.0])
def test_the_views_disagree_as_they_are_averaged(kappa: float) -> None:
    def entropies(shares: Floats) -> Floats:
        return np.asarray(-(shares * np.log(shares)).sum(axis=-1))

    images, policy = some_images(9), policy_at(kappa)
    views = [View(sub, index) for index, sub in enumerate(policy)]
    log_probs = predict_views(model(), images, views, seed=0).astype(np.float64)
    shares = softmax(log_probs / kappa, axis=-1)
    of_mean, mean_of_views = entropies(shares.mean(axis=0)), entropies(shares).mean(axis=0)
    found = relook.TTA(model(), policy).uncertainty(images)
    calibrated = entropies(own_predictions(model(), policy, images))
    np.testing.assert_allclose(found.entropy, calibrated, atol=1e-4)
    np.testing.assert_allclose(found.predictive_entropy, of_mean, atol=1e-4)
    np.testing.assert_allclose(found.expected_entropy, mean_of_views, atol=1e-4)
    np.testing.assert_allclose(found.mutual_information, of_mean - mean_of_views, atol=1e-4)
    assert (found.mutual_information >= 0).all()
    assert found.mutual_information.max() > 1e-3


def test_a_comparison_averages_the_policy_s_views_alone() -> None:
    images = some_images(24)
    labels = np.arange(24) % 7
    dataset = Dataset(images, labels, tuple("abcdefg"), "pictures")
    policy = policy_at(4, 4)

    def rows(own: Policy) -> dict[tuple[str, int], float]:
        found = compare(
            model(), dataset, own, recipe="cifar", budgets=(1, 3), methods=("plain", "flip"),
        )  # fmt: skip
        return {(row.method, row.budget): row.metrics["cll"].mean for row in found.rows}

    mine, usual = rows(policy), rows(fixed_policy(4))
    views = [View(sub, index) for index, sub in enumerate(policy)]
    average = plain_average(predict_views(model(), images, views, seed=0), 4)
    expected = cross_validated(average, labels, seed=0, view_temperature=4).metrics["cll"]
    assert mine["gps", 3] == pytest.approx(expected, abs=1e-5)
    assert mine["gps", 3] != usual["gps", 3]
    for baseline in (("plain", 1), ("flip", 2)):
        assert mine[baseline] == usual[baseline]


# Early exit.


def test_an_early_exit_is_learned_for_the_average() -> None:
    log_probs, labels = predictions(600)
    policy = replace(policy_of(), view_temperature=4)
    rule = learn_early_exit(log_probs, labels, policy, "views=2")
    averaged = policy.tempered(log_probs)
    same = learn_early_exit(averaged, labels, policy_of(), "views=2")
    fitted = fit_temperatures(averaged, labels, exit_counts(policy), view_temperature=4)
    assert rule.temperatures == pytest.approx(fitted, rel=1e-9)
    assert (
        rule.temperatures
        != learn_early_exit(log_probs, labels, policy_of(), "views=2").temperatures
    )
    refused("belongs to another policy", rule.check_policy, policy_of())
    refused("belongs to another policy", same.check_policy, policy)
    report = report_early_exit(rule, log_probs, labels, policy, learned_on=(log_probs, labels))
    exited = apply_early_exit(rule, policy.tempered(log_probs), exit_counts(policy))
    assert report.own.views == exited.views.mean() == rule.mean_views


def test_images_exit_by_the_average() -> None:
    policy, images = policy_at(4), some_images(40)
    views = [View(sub, index) for index, (sub, _) in enumerate(policy.counts())]
    log_probs = policy.tempered(predict_views(model(), images, views, seed=0))
    middle = [float(np.median(np.exp(one.max(axis=-1)))) for one in log_probs[:-1]]
    rule = some_rule(policy, tuple(middle))
    tta = relook.TTA(model(), policy, early_exit=rule)
    expected = apply_early_exit(rule, log_probs, exit_counts(policy))
    assert len(set(expected.views)) > 2
    exited = tta.exit_early(images)
    assert exited.views.tolist() == expected.views.tolist()
    np.testing.assert_allclose(tta(images), np.exp(expected.log_probs), atol=1e-5)
    np.testing.assert_allclose(tta.predict_proba(images), np.exp(expected.log_probs), atol=1e-5)


# Calibrating again.


@pytest.fixture
def calibrated_on(monkeypatch: pytest.MonkeyPatch) -> tuple[Dataset, NDArray[np.float32]]:
    log_probs, labels = predictions(300, views=5)

    def predicted(_: object, __: object, views: list[View], **___: object) -> NDArray[np.float32]:
        known = [sub for sub, _ in fixed_policy().counts()]
        return np.stack([log_probs[known.index(view.subpolicy)] for view in views])

    def chosen(entries: NDArray[Any], truth: NDArray[np.int64], *_: object) -> float:
        assert entries.shape[:2] == (6, len(truth)), "one for each entry of the policy"
        return 3.0

    monkeypatch.setattr(calibrate_module, "predict_views", predicted)
    monkeypatch.setattr(calibrate_module, "choose_view_temperature", chosen)
    images = torch.zeros((300, 3, 32, 32), dtype=torch.uint8)
    return Dataset(
        images, labels, tuple("abcde"), "d", identities=different(len(labels))
    ), log_probs


@pytest.mark.parametrize(("keep", "kappa"), [(False, 3.0), (True, 4.0)])
def test_calibrating_learns_it_unless_it_is_kept(
    calibrated_on: tuple[Dataset, NDArray[np.float32]], keep: bool, kappa: float
) -> None:
    dataset, log_probs = calibrated_on
    found = calibrated_policy(model(), dataset, policy_at(4), keep_view_temperature=keep)
    policy = found.policy
    assert policy.view_temperature == kappa
    entries = log_probs[[0, 1, 1, 2, 3, 4]]
    for length, temperature in enumerate(policy.temperatures or (), start=1):
        average = plain_average(entries[:length], kappa)
        expected = fit_temperature(average, dataset.labels, view_temperature=kappa)
        assert temperature == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("always", [False, True])
def test_weights_are_learned_of_what_is_averaged(
    calibrated_on: tuple[Dataset, NDArray[np.float32]], always: bool
) -> None:
    dataset, log_probs = calibrated_on
    found = weigh_policy(model(), dataset, policy_at(4), always=always)
    assert found.policy.view_temperature == 3
    tempered = log_softmax(log_probs.astype(np.float64) / 3, axis=-1)
    weights = np.log(np.maximum(found.learned.weights, 1e-300))[:, None, None]
    average = logsumexp(tempered + weights, axis=0)
    temperature = fit_temperature(average, dataset.labels, view_temperature=3)
    assert found.learned.temperature == pytest.approx(temperature, rel=1e-4)
    assert found.used == (always or found.learned.better)
