"""Deployment: one calibrated model that carries its policy."""

from relook.deploy.early_exit.rule import EarlyExit, Exited
from relook.deploy.tta import TTA
from relook.deploy.tta.view_plan import Uncertainty

__all__ = ["TTA", "EarlyExit", "Exited", "Uncertainty"]
