"""Every model source from its file to a policy, through the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.contracts.predictor_cases import EXAMPLES, SEARCHED
from tests.e2e.conftest import Relook

import relook as package
from relook.errors import MissingExtraError
from relook.models.cifar_networks import CIFAR_NETWORKS

QUICK = ("--pool-size", "3", "--length", "1", "--accelerate", "torch")


@pytest.fixture
def colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Go to a directory with 36 colour images of six classes; their spec."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(2)
    images = generator.integers(0, 256, (36, 32, 32, 3), dtype=np.uint8)
    np.savez("colours.npz", images=images, labels=np.arange(36) % 6)
    return "npz:colours.npz"


@pytest.mark.parametrize("source", SEARCHED)
def test_a_policy_is_found_for_a_model_of(
    source: str, relook: Relook, colours: str, tmp_path: Path
) -> None:
    try:
        spec = EXAMPLES[source](tmp_path).spec
    except MissingExtraError as error:
        pytest.skip(str(error))
    done = relook.ok("search", "--model", spec, "--data", colours, "--out", "run", *QUICK)
    assert package.Policy.load(tmp_path / "run" / "policy.json")
    record = json.loads((tmp_path / "run" / "run.json").read_text())["origin"]
    assert record["model"] == spec
    assert "mean" in record["model_inputs"]
    assert "model: " in done.err
    assert "mean" in done.err


def test_several_models_are_searched_and_compared_as_one(
    relook: Relook, colours: str, tmp_path: Path
) -> None:
    specs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        torch.save(CIFAR_NETWORKS["resnet20"].build(6).state_dict(), f"{seed}.pt")
        specs.append(f"cifar:resnet20@{seed}.pt")
    models = ("--model", specs[0], "--model", specs[1])
    done = relook.ok("search", *models, "--data", colours, "--out", "run", *QUICK)
    assert "the mean of 2 models" in done.err
    record = json.loads((tmp_path / "run" / "run.json").read_text())["origin"]
    assert record["model"] == specs
    relook.ok("compare", "run", "--methods", "plain", "--budgets", "1")
    comparison = json.loads((tmp_path / "run" / "narrower" / "comparison.json").read_text())
    assert comparison["settings"]["model"]["spec"] == " + ".join(specs)


def test_members_with_other_classes_end_in_one_line(relook: Relook, colours: str) -> None:
    for classes in (6, 5):
        torch.save(CIFAR_NETWORKS["resnet20"].build(classes).state_dict(), f"{classes}.pt")
    models = ("--model", "cifar:resnet20@6.pt", "--model", "cifar:resnet20@5.pt")
    done = relook.refused("search", *models, "--data", colours, "--out", "run", *QUICK)
    assert "same classes for an ensemble, got 6, 5 classes" in done.err
    assert done.err.count("\n") == 1


def test_a_graph_that_does_not_tell_its_outputs_is_asked_about(
    relook: Relook, colours: str
) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    from tests.unit.models.model_files import linear_graph

    linear_graph(Path("net.onnx"), ["n", 3, 32, 32], np.ones((3072, 6)) / 3072)
    command = ("search", "--model", "onnx:net.onnx", "--data", colours, "--out", "run", *QUICK)
    asked = relook.refused(*command).err
    assert "say which with outputs (--outputs): logits, probabilities or log_probs" in asked
    relook.ok(*command, "--outputs", "logits")
