"""Training with the paper's modified RandAugment: a training loop, and plans of many networks."""

from relook.studies.training.models import TrainedModel, TrainingPlan, train_models, validation_spec
from relook.studies.training.networks import get_network
from relook.studies.training.randaugment import randaugment_batch
from relook.studies.training.train import AUGMENTS, Training, run_training, train

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
