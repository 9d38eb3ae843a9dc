import importlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from relook.foundation import torchvision_import

ASKS = """
import torch
@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, iou_threshold): ...
@torch.library.register_fake("torchvision::qnms")
def qnms(dets, scores, iou_threshold): ...
"""
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import relook
assert 'torch' not in sys.modules
import torchvision
print(len(relook.torchvision_import.declared))
"""


def declared(package: str, tmp_path: Path) -> str:
    """Import a package called torchvision with the given code; what was declared for it."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(package)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_missing_operators_are_declared(tmp_path: Path) -> None:
    assert declared(ASKS, tmp_path) == "2"


def test_a_package_that_misses_nothing_is_left_alone(tmp_path: Path) -> None:
    assert declared("", tmp_path) == "0"


def test_another_fault_is_an_import_error(tmp_path: Path) -> None:
    text = declared("raise RuntimeError('operator torchvision::roll does not exist')", tmp_path)
    assert text.startswith(
        "ImportError: torchvision does not fit torch: operator torchvision::roll"
    )


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_the_installed_package_can_be_used() -> None:
    import torchvision

    already = len(torchvision_import.declared)
    importlib.reload(torchvision)
    assert len(torchvision_import.declared) == already
    assert torchvision.transforms.Resize(3) is not None


def test_the_finder_is_installed_once_and_finds_nothing_else() -> None:
    before = list(sys.meta_path)
    torchvision_import.install()
    assert sys.meta_path == before
    assert before[0].find_spec("json", None) is None
