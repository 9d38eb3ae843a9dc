"""Write public networks as ONNX files, for studies of networks that others trained.

    python tools/networks_to_onnx.py DIR [--out DIR/onnx]

DIR has `networks.py` with `NAMES` and `load(name) -> (module, mean, std, dataset)`, which is
imported, and `DATASET_test.npz`. Each file takes uint8 images `[n, 3, 32, 32]` of any number and
returns logits; it is compared with torch on 256 real images before it gets its name.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relook.io.files import write_bytes_atomic
from relook.models import TorchPredictor
from relook.models.onnx_runtime import export_network, to_onnx

_TRIED = 256
_TOLERANCE = 1e-3  # in log-probability


def load_networks(folder: Path) -> Any:
    """Import `networks.py` of a folder."""
    spec = importlib.util.spec_from_file_location("networks", folder / "networks.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"expected {folder}/networks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first_images(folder: Path, dataset: str) -> Tensor:
    """Return a few test images `[n, c, h, w]`."""
    with np.load(folder / f"{dataset}_test.npz") as arrays:
        return torch.from_numpy(arrays["images"][:_TRIED]).permute(0, 3, 1, 2).contiguous()


def main() -> None:
    """Write every network that the folder names."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("folder", type=Path, metavar="DIR")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    out: Path = given.out or given.folder / "onnx"
    out.mkdir(parents=True, exist_ok=True)
    networks = load_networks(given.folder)
    for name in networks.NAMES:
        module, mean, std, dataset = networks.load(name)
        images = first_images(given.folder, dataset)
        predictor = TorchPredictor(module, mean=mean, std=std)
        differs = float((to_onnx(predictor, images)(images) - predictor(images)).abs().max())
        if differs > _TOLERANCE:
            raise SystemExit(f"{name}: ONNX Runtime and torch differ by {differs:.1e}")
        file = out / f"{name.replace('/', '-')}.onnx"
        write_bytes_atomic(file, export_network(predictor, images))
        print(f"{file}: differs from torch by at most {differs:.1e} in log-probability")


if __name__ == "__main__":
    main()
