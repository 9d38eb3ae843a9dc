from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.support import refused

from relook.models.small import SmallNet, load_small, new_small, save_small


def test_a_new_network_depends_on_its_seed_and_on_nothing_else() -> None:
    before = torch.get_rng_state()
    first, again, other = new_small(seed=3), new_small(seed=3), new_small(seed=4)
    assert torch.equal(torch.get_rng_state(), before)
    weights, same, different = (n.state_dict() for n in (first, again, other))
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    assert not torch.equal(weights["head.weight"], different["head.weight"])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_saved_network_comes_back_with_the_same_outputs(tmp_path: Path, channels: int) -> None:
    network = new_small(channels, classes=7, width=4, seed=1)
    with torch.no_grad():
        network(torch.rand(8, channels, 32, 32))  # moves BatchNorm's running statistics
    path = tmp_path / "new" / "net.safetensors"
    save_small(network, path)
    loaded = load_small(path)
    inputs = torch.rand(2, channels, 32, 32)
    assert (loaded.channels, loaded.classes, loaded.width) == (channels, 7, 4)
    assert not loaded.training
    assert torch.equal(loaded(inputs), network.eval()(inputs))
    assert [p.name for p in path.parent.iterdir()] == ["net.safetensors"]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (None, "expected a small network"),
        ("{", "as JSON in its metadata"),
        ("[" * 100_000, "as JSON in its metadata"),
        ("[1, 10, 4]", "expected channels, classes, width as JSON"),
        ('{"channels": 1, "classes": 10}', "expected channels, classes, width as JSON"),
        ('{"channels": 1, "classes": 10, "width": -4}', "expected width from 1"),
        ('{"channels": 1, "classes": 10, "width": 99999999999}', "expected width from 1"),
        ('{"channels": 1, "classes": "10", "width": 4}', "expected classes from 1"),
        ('{"channels": true, "classes": 10, "width": 4}', "expected channels from 1 to 3"),
        ('{"channels": 1, "classes": 10, "width": 8}', "its tensors are not those"),
        ('{"channels": 1, "classes": 100000, "width": 1024}', "its tensors are not those"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(
    tmp_path: Path, shape: str | None, message: str
) -> None:
    path = tmp_path / "net.safetensors"
    save_small(new_small(width=4), path)
    load_small(path)
    metadata = {"format": "pt"} if shape is None else {"relook-small-1": shape}
    save_file(load_file(path), path, metadata=metadata)
    refused(message, load_small, path)


def test_the_same_network_is_the_same_file(tmp_path: Path) -> None:
    contents = set()
    for _ in range(6):
        save_small(new_small(width=2, seed=3), tmp_path / "net.safetensors")
        contents.add((tmp_path / "net.safetensors").read_bytes())
    assert len(contents) == 1


def test_damaged_and_missing_files_get_one_line(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    refused("no such checkpoint", load_small, path)
    save_small(new_small(width=2), path)
    whole = path.read_bytes()
    for content in (b"", b"PK\x03\x04", whole[:100], whole[:-5], b"\xff" * 64):
        path.write_bytes(content)
        refused("expected a safetensors file", load_small, path)


def test_impossible_sizes_are_refused() -> None:
    refused("expected channels from 1 to 3, got 4", SmallNet, channels=4)
