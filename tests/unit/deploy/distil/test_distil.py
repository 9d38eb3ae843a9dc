"""Distillation: the same bytes after an interruption, no proof image among the lessons."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support import refused

import relook
from relook.data import Dataset, Preparation, load_data
from relook.deploy.batch.image_source import read_unlabelled
from relook.deploy.distil import distil as whole
from relook.deploy.distil import student as students
from relook.deploy.distil.distil import Record, distil_policy, new_spec, without_proof
from relook.deploy.distil.student import Lesson, Training, is_mirrored, train_student, trainable
from relook.deploy.distil.verdict import ROWS, judge, share_kept
from relook.models import TorchPredictor
from relook.models.checkpoint import save_state
from relook.models.predictors import CallablePredictor, EnsemblePredictor
from relook.models.small import new_small
from relook.models.weights import read_tensors
from relook.policy import Policy, SubPolicy
from relook.policy.pool import sample_pool

SHORT = Training(epochs=3, learning_rate=1e-3, batch=32)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_data("digits").subset(np.arange(120))


@pytest.fixture
def network() -> TorchPredictor:
    return TorchPredictor(new_small(seed=1, width=4), classes=10)


@pytest.fixture(scope="module")
def policy() -> Policy:
    views = sample_pool("small", 3, 0)[:3]
    return Policy((SubPolicy(), *views), temperatures=(1.0,) * 4, recipe="small", seen=b"")


def lesson_of(dataset: Dataset, policy: Policy) -> Lesson:
    targets = np.full((len(dataset), 10), 0.02)
    targets[np.arange(len(dataset)), dataset.labels] = 0.82
    return Lesson(dataset.plain, targets, is_mirrored(policy))


def test_a_student_comes_nearer_to_its_targets(
    digits: Dataset, policy: Policy, network: TorchPredictor
) -> None:
    before = {name: one.clone() for name, one in network.module.state_dict().items()}
    found = train_student(network, lesson_of(digits, policy), Training(8, 1e-2, 32))
    assert found.epochs[found.kept_epoch - 1].held_back < found.before
    assert len(found.epochs) == 8
    for name, one in network.module.state_dict().items():
        assert torch.equal(one, before[name])  # the network itself is left alone
    assert found.predictor.module.state_dict().keys() == before.keys()


def test_a_student_that_comes_no_nearer_is_the_network_as_it_was(
    digits: Dataset, policy: Policy, network: TorchPredictor
) -> None:
    own = network(digits.plain).exp().double().numpy()
    lesson = Lesson(digits.plain, own / own.sum(axis=1, keepdims=True), True)
    found = train_student(network, lesson, Training(1, 1e-2, 32))
    assert found.kept_epoch == 0
    assert found.temperatures == pytest.approx((1, 1), abs=0.02)
    for name, one in found.predictor.module.state_dict().items():
        assert torch.equal(one, network.module.state_dict()[name])


def test_interrupted_and_continued_gives_the_same_bytes(
    digits: Dataset,
    policy: Policy,
    network: TorchPredictor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(out: Path) -> Any:
        return distil_policy(network, digits, policy, out=out, training=SHORT)

    run(tmp_path / "whole")

    def stop(*given: Any) -> None:
        save_state(*given)
        if len(given[3]) == 2:  # a loss and a distance: one epoch
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(students, "save_state", stop)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "parts")
    assert (tmp_path / "parts" / whole.STATE).is_file()
    run(tmp_path / "parts")
    for name in (whole.RECORD, whole.WEIGHTS, whole.POLICY):
        one, other = ((tmp_path / place / name) for place in ("whole", "parts"))
        assert one.exists() == other.exists()
        assert not one.exists() or one.read_bytes() == other.read_bytes()
    assert not (tmp_path / "parts" / whole.STATE).exists()
    again = run(tmp_path / "parts")  # nothing is left to do
    assert again.record == run(tmp_path / "whole").record
    refused(
        "other settings",
        distil_policy,
        *(network, digits, policy),
        out=tmp_path / "parts",
        training=Training(epochs=4),
    )


def test_images_of_the_proof_are_left_out(digits: Dataset) -> None:
    proof = digits.subset(np.arange(40))
    left, again, doubt = without_proof(digits, proof)
    assert (len(left), again, doubt) == (80, 40, "")
    assert not set(left.identities) & set(proof.identities)
    refused("got only these", without_proof, proof, digits)
    # The same pixels from a file cannot be told from others: that is said.
    unknown = Dataset(
        *(digits.images, digits.labels, digits.classes, "files"),
        identities=digits.identities | np.uint64(1),
    )
    assert "cannot be known" in without_proof(unknown, proof)[2]


def test_a_policy_that_was_found_on_the_proof_proves_nothing(
    digits: Dataset, network: TorchPredictor
) -> None:
    seen = relook.io.identities.set_of(digits.identities)
    found_there = Policy((SubPolicy(),), temperatures=(1.0,), seen=seen)
    refused("not found on", distil_policy, network, digits, found_there, digits)


def test_what_has_no_weights_is_refused(network: TorchPredictor) -> None:
    function = CallablePredictor(lambda images: images, outputs="logits")
    for model in (function, EnsemblePredictor([network, network])):
        refused("cannot be; give the network that it was made from", trainable, model)


def test_images_come_from_folders_at_any_depth_and_from_arrays(
    digits: Dataset, tmp_path: Path
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for place in range(5):
        picture = Image.fromarray(digits.plain[place, 0].numpy())
        picture.save(tmp_path / ("a/b" if place % 2 else "a") / f"{place}.png")
    found = read_unlabelled(f"folder:{tmp_path}", Preparation())
    assert len(found) == 5
    assert len(set(found.identities)) == 5
    assert all(found.identities % 2 == 1)  # known by their files
    listed = read_unlabelled(digits.plain, Preparation())
    assert np.array_equal(listed.identities, digits.identities)


def test_the_share_that_is_kept_has_an_interval() -> None:
    draws = np.random.default_rng(0)
    gain = draws.normal(0.1, 0.3, 4000)
    half = share_kept(gain / 2, gain)
    assert half is not None
    assert (half.estimate, half.low, half.high) == pytest.approx((0.5, 0.5, 0.5), abs=1e-6)
    noisy = share_kept(gain / 2 + draws.normal(0, 0.3, 4000), gain)
    assert noisy is not None
    assert noisy.low < 0.5 < noisy.high
    assert 0.05 < noisy.high - noisy.low < 1
    assert share_kept(gain, draws.normal(0, 1, 4000)) is None


def test_a_verdict_helps_only_beyond_doubt(digits: Dataset) -> None:
    def log_probs(right: float) -> Any:
        found = np.full((len(digits), 10), (1 - right) / 9)
        found[np.arange(len(digits)), digits.labels] = right
        found[::7] = np.roll(found[::7], 1, axis=1)  # some are wrong, in every row the same
        return np.log(found), 1.0

    rows = dict(zip(ROWS, map(log_probs, (0.5, 0.9, 0.8, 0.9)), strict=True))
    better = judge(rows, 4, digits)
    assert [line.views for line in better.lines] == [1, 4, 1, 4]
    same = judge({name: log_probs(0.5) for name in ROWS}, 4, digits, "Doubt.")
    assert not same.helps
    assert same.share is None
    assert same.sentence.startswith("Distillation is not shown to help")
    assert same.sentence.endswith("Doubt.")


def test_what_few_images_came_to_elsewhere_is_said() -> None:
    few = Record(Training(), 300, 0, 4, 1.0, 0.1, (), 0, None, False, {})
    assert few.sentence.endswith(
        "keep the old weights. It learned from 300 images; where it was measured, 5,000 helped and "
        "1,500 did not (docs/howto/distil.md)."
    )
    assert replace(few, images=5000).sentence.endswith("keep the old weights.")
    assert "1,500" not in replace(few, written=True).sentence


def test_python_distils_arrays_and_keys_are_the_networks_own(
    digits: Dataset, policy: Policy, tmp_path: Path
) -> None:
    module = new_small(seed=1, width=4)
    sharp = replace(policy, temperatures=(0.3,) * len(policy))  # something to learn
    found = relook.distil(
        *(module, digits.plain.numpy()),
        policy=sharp,
        out=tmp_path / "out",
        epochs=4,
        learning_rate=3e-3,
        progress=False,
    )
    assert found.verdict is None
    assert "no labelled images" in str(found)
    tensors, _ = read_tensors(tmp_path / "out" / whole.WEIGHTS)
    assert tensors.keys() == module.state_dict().keys()
    assert Policy.load(tmp_path / "out" / whole.POLICY).subpolicies == (SubPolicy(),)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("timm:resnet18@old.safetensors", "timm:resnet18@out/weights.safetensors"),
        ("timm:resnet18", "timm:resnet18@out/weights.safetensors"),
        ("torch:mine.nets:make", "torch:mine.nets:make@out/weights.safetensors"),
        ("cifar:resnet20@a@b.th", "cifar:resnet20@out/weights.safetensors"),
        ("small@old.safetensors", "small@out/weights.safetensors"),
        ("hf:some/name-of-the-hub", None),
        ("onnx:old.onnx", None),
    ],
)
def test_a_spec_gets_the_new_weights(old: str, new: str | None) -> None:
    assert new_spec(old, Path("out")) == new


def test_a_directory_of_hugging_face_gets_its_files(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    (source / "config.json").write_text("{}")
    (source / "model.safetensors.index.json").write_text("of other weights")
    (out / "weights.safetensors").write_bytes(b"new")
    assert new_spec(f"hf:{source}", out) == f"hf:{out / 'hf'}"
    names = sorted(path.name for path in (out / "hf").iterdir())
    assert names == ["config.json", "model.safetensors"]
    assert (out / "hf" / "model.safetensors").read_bytes() == b"new"
