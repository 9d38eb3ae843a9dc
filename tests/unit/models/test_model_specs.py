import inspect
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.support import refused
from torch import Tensor, nn

from relook.errors import RelookError
from relook.models import load_model
from relook.models.small import new_small, save_small
from relook.models.weights import load_checkpoint


class Net(nn.Module):
    """What the user's module builds."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.body = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.body(images)).mean(dim=(2, 3)))
        return self.scale * logits


MODULE = f"""
from torch import Tensor, nn

{inspect.getsource(Net)}

def build():
    return Net()

def scaled():
    return Net(scale=3.0)

def calmer():
    network = Net()
    network.norm.eps = 0.1
    return network

def fails():
    raise ValueError("no weights here" + chr(10) + "second line")

def leaves():
    raise SystemExit(2)

def text():
    return "not a network"

number = 3
"""
NAME = "relook_test_networks"


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a module of the user's."""
    (tmp_path / f"{NAME}.py").write_text(MODULE)
    (tmp_path / "relook_test_broken.py").write_text("import relook_test_absent\n")
    (tmp_path / "relook_test_syntax.py").write_text("def :\n")
    (tmp_path / "relook_test_exits.py").write_text("import sys\nsys.exit('usage: …')\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [n for n in sys.modules if n.startswith("relook_test_")]:
        del sys.modules[name]


def seeded() -> Net:
    network, generator = Net(), torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        nn.init.normal_(parameter, generator=generator)
    return network.eval()


WEIGHTS = seeded().state_dict()


@pytest.mark.parametrize(
    "content",
    [
        WEIGHTS,
        {"state_dict": WEIGHTS, "epoch": 7},
        {"model": WEIGHTS, "optimizer": {"lr": 0.1}},
        {"net": {f"module.{name}": tensor for name, tensor in WEIGHTS.items()}, "acc": 0.9},
        {"model_state_dict": WEIGHTS},
        {"state_dict": {f"model._orig_mod.{name}": tensor for name, tensor in WEIGHTS.items()}},
        {name: t for name, t in WEIGHTS.items() if not name.endswith("num_batches_tracked")},
    ],
)
def test_a_torch_checkpoint_is_loaded_through_its_wrappers(
    user_module: Path, images: Tensor, content: object
) -> None:
    torch.save(content, user_module / "weights.pt")
    predictor = load_model(f"torch:{NAME}:build@weights.pt", mean=0.5, std=0.25)
    want = seeded()((images.float() / 255 - 0.5) / 0.25).log_softmax(dim=1)
    torch.testing.assert_close(predictor(images), want)


def test_a_fingerprint_has_the_factory_and_its_configuration(user_module: Path) -> None:
    save_file(WEIGHTS, user_module / "weights.safetensors")
    factories = ("build", "Net", "scaled", "calmer")
    one, again = (
        [load_model(f"torch:{NAME}:{name}@weights.safetensors").fingerprint for name in factories]
        for _ in range(2)
    )
    assert one == again
    assert len(set(one)) == len(factories)
    other = load_model(f"torch:{NAME}:build@weights.safetensors", mean=0.5)
    assert other.fingerprint not in one


def test_a_factory_needs_no_checkpoint(user_module: Path, images: Tensor) -> None:
    assert load_model(f"torch:{NAME}:Net")(images).shape == (len(images), 5)


def test_the_search_path_is_left_as_it_was(user_module: Path) -> None:
    before = list(sys.path)
    load_model(f"torch:{NAME}:build")
    assert sys.path == before


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("torch", "expected a model as torch:package.module:factory[@checkpoint], got 'torch'"),
        ("torch:", "expected a model as torch:"),
        (f"torch:{NAME}", "expected a model as torch:"),
        (f"torch:{NAME}:", "expected a model as torch:"),
        (f"torch:{NAME}:build@", "expected a model as torch:"),
        ("touch:x:y", "unknown model source 'touch': did you mean 'torch'?"),
        ("weights", "unknown model source 'weights': known: torch, timm"),
        ("tim:net@weights.pt", "unknown model source 'tim': did you mean 'timm'?"),
        ("weights.pt", "got 'weights.pt', weights alone: say timm:NAME@weights.pt, or torch:"),
        ("runs/net.TH", "torch:MODULE:FUNCTION@runs/net.TH for a network of your own"),
        ("torch:relook_test_nowhere:build", "no module named 'relook_test_nowhere' in"),
        (f"torch:{NAME}.deep:build", f"no module named '{NAME}.deep' in"),
        ("torch:relook_test_broken:build", "No module named 'relook_test_absent'"),
        ("torch:relook_test_syntax:build", "importing relook_test_syntax failed: SyntaxError"),
        ("torch:relook_test_exits:build", "importing relook_test_exits failed: SystemExit"),
        (f"torch:{NAME}:biuld", f"unknown factory in {NAME} 'biuld': did you mean 'build'?"),
        (f"torch:{NAME}:number", f"unknown factory in {NAME} 'number'"),
        (f"torch:{NAME}:fails", "the factory raised ValueError: no weights here"),
        (f"torch:{NAME}:leaves", "the factory raised SystemExit"),
        (f"torch:{NAME}:text", "expected the factory to return a torch module, got str"),
        (f"torch:{NAME}:build@absent.pt", "no such checkpoint: absent.pt"),
        ("small@absent.safetensors", "no such checkpoint: absent.safetensors"),
    ],
)
def test_a_spec_that_leads_nowhere_gets_one_line(
    user_module: Path, spec: str, message: str
) -> None:
    refused(re.escape(message), load_model, spec)


def test_weights_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    weights = {name: t for name, t in WEIGHTS.items() if name != "head.bias"}
    weights |= {"extra": torch.zeros(1), "head.weight": torch.zeros(100, 4)}
    torch.save(weights, tmp_path / "w.pt")
    network = seeded()
    with pytest.raises(RelookError) as caught:
        load_checkpoint(network, tmp_path / "w.pt")
    text = str(caught.value)
    assert "1 missing (head.bias)" in text
    assert "1 unexpected (extra)" in text
    assert "1 of another shape (head.weight: expected [5, 4], got [100, 4])" in text
    assert "\n" not in text
    assert torch.equal(network.head.weight, WEIGHTS["head.weight"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "got a list"),
        (torch.zeros(3), "got a Tensor"),
        ({}, "got nothing"),
        ({"epoch": 3, "best": 0.5}, "not tensors: epoch, best"),
    ],
)
def test_a_file_without_a_state_dict_is_refused(
    tmp_path: Path, content: object, message: str
) -> None:
    torch.save(content, tmp_path / "w.pt")
    refused(message, load_checkpoint, seeded(), tmp_path / "w.pt")


class Exploit:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("saved_by", ["torch", "pickle"])
def test_no_code_of_a_checkpoint_runs(tmp_path: Path, saved_by: str) -> None:
    proof, path = tmp_path / "ran", tmp_path / "w.pt"
    content = {"state_dict": {**WEIGHTS, "head.bias": Exploit(proof)}}
    if saved_by == "torch":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))
    with pytest.raises(RelookError, match="expected a file of plain tensors") as caught:
        load_checkpoint(seeded(), path)
    assert not proof.exists()
    assert "\n" not in str(caught.value)
    assert "weights_only" not in str(caught.value)


def test_damaged_checkpoints_get_one_line(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save(WEIGHTS, path)
    whole = path.read_bytes()
    start = whole.index(b"\x80\x02")  # of the pickle within
    scribbled = whole[: start + 2] + b"\xff" * 20 + whole[start + 22 :]
    for content in (b"", b"hello", whole[: len(whole) // 2], whole[:-30], scribbled):
        path.write_bytes(content)
        refused(re.escape(str(path)), load_checkpoint, seeded(), path)
    damaged = tmp_path / "w.safetensors"
    damaged.write_bytes(b"\x10" + b"\x00" * 7 + b"{" * 16)
    refused("expected a safetensors file", load_checkpoint, seeded(), damaged)


def test_a_small_network_brings_its_own_normalisation(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    network = new_small(classes=4, width=2, seed=1)
    save_small(network, path)
    predictor = load_model(f"small@{path}")
    grey = torch.arange(2 * 32 * 32).reshape(2, 1, 32, 32).to(torch.uint8)
    assert predictor.classes == 4
    want = network.eval()(grey.float() / 255).log_softmax(dim=1)
    torch.testing.assert_close(predictor(grey), want)
    refused("leave them out", load_model, f"small@{path}", mean=0.5)
    refused("expected images with 1 channel", predictor, grey.expand(2, 3, 32, 32))
