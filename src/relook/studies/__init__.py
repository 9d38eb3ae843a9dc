"""The paper's studies as functions."""

from relook.studies.ensembles import ensembles
from relook.studies.magnitudes import magnitudes
from relook.studies.objectives import objectives
from relook.studies.robustness import robustness
from relook.studies.statistics import statistics
from relook.studies.transfer import transfer
from relook.studies.transfer_targets import Target

__all__ = [
    "Target",
    "ensembles",
    "magnitudes",
    "objectives",
    "robustness",
    "statistics",
    "transfer",
]
