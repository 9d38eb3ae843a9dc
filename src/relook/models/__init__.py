"""Models: the Predictor protocol, what adapts to it, and the table of model sources."""

from relook.models.adapt import as_predictor
from relook.models.base import OUTPUTS, InputSpec, Outputs, Predictor
from relook.models.ensemble import EnsemblePredictor
from relook.models.specs import MODEL_SOURCES, load_model
from relook.models.torch_module import CallablePredictor, TorchPredictor

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
