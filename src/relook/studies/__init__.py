"""The paper's studies as functions."""

from relook.studies.robustness import robustness
from relook.studies.robustness_result import Robustness, ShiftRow, load_robustness

__all__ = ["Robustness", "ShiftRow", "load_robustness", "robustness"]
