"""Training with the paper's modified RandAugment, for the demo and for small studies."""

from relook.training.randaugment import randaugment_batch
from relook.training.train import AUGMENTS, train

__all__ = ["AUGMENTS", "randaugment_batch", "train"]
