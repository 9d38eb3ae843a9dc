"""`cifar:resnet20@checkpoint` …: the CIFAR networks with a file's weights."""

from __future__ import annotations

import torch

from relook.errors import FileFormatError, RelookError, unknown_name
from relook.models.base import InputSpec, Predictor
from relook.models.checkpoints import load_weights, read_weights, rows_of
from relook.models.cifar_networks import CIFAR_NETWORKS
from relook.models.options import ModelOptions
from relook.models.sized import SizedTorchPredictor

FORM = f"cifar:{'|'.join(CIFAR_NETWORKS)}@checkpoint"
_SIZE = (32, 32)


def load_cifar(rest: str, options: ModelOptions) -> Predictor:
    """Load a CIFAR network; the number of classes is the checkpoint's.

    Mean and std are those that the network's public code trains with, unless the options say
    otherwise.
    """
    options.refuse("cifar:", "pretrained")
    name, _, checkpoint = rest.partition("@")
    if not name or not checkpoint:
        raise RelookError(f"expected a model as {FORM}, got 'cifar:{rest}'")
    row = CIFAR_NETWORKS.get(name)
    if row is None:
        raise unknown_name("CIFAR network", name, CIFAR_NETWORKS)
    weights = read_weights(checkpoint)
    classes = rows_of(weights, row.head)
    if classes is None:
        raise FileFormatError(
            f"{checkpoint}: its weights do not fit the network: expected {row.head}.weight, "
            f"the last layer of {name}; check that it is the network that was saved"
        )
    with torch.device("meta"):  # weights drawn at random would be thrown away at once
        network = row.build(classes)
    network.to_empty(device="cpu")
    for buffer in network.buffers():
        buffer.zero_()  # old files lack BatchNorm's counters: what was in memory must not show
    load_weights(network, weights, checkpoint)
    mean, std = row.normalisation
    known = InputSpec(_SIZE, crop=1.0, channels=3)
    return SizedTorchPredictor(network, options, known=known, mean=mean, std=std, classes=classes)
