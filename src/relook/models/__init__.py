"""Models: the Predictor protocol, its implementations, and the table of model sources."""

from relook.models.base import OUTPUTS, InputSpec, Outputs, Predictor
from relook.models.predictors import CallablePredictor, EnsemblePredictor, TorchPredictor
from relook.models.specs import MODEL_SOURCES, as_predictor, load_model

__all__ = [
    "MODEL_SOURCES",
    "OUTPUTS",
    "CallablePredictor",
    "EnsemblePredictor",
    "InputSpec",
    "Outputs",
    "Predictor",
    "TorchPredictor",
    "as_predictor",
    "load_model",
]
