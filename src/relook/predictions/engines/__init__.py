"""Where the model's passes are made: in this process, or on the workers of a Ray cluster."""

from relook.predictions.model_calls import ENGINES, Engine, running_on

__all__ = ["ENGINES", "Engine", "running_on"]
