"""Training with the paper's modified RandAugment: from a loop for small studies to whole plans."""

from relook.training.models import TrainedModel, TrainingPlan, train_models, validation_spec
from relook.training.networks import get_network
from relook.training.randaugment import randaugment_batch
from relook.training.train import AUGMENTS, Training, run_training, train

__all__ = [
    "AUGMENTS",
    "TrainedModel",
    "Training",
    "TrainingPlan",
    "get_network",
    "randaugment_batch",
    "run_training",
    "train",
    "train_models",
    "validation_spec",
]
