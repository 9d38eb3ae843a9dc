"""The paper's studies as functions."""

from relook.studies.ensembles import ensembles
from relook.studies.ensembles_result import EnsembleRow, Ensembles, load_ensembles
from relook.studies.magnitudes import magnitudes
from relook.studies.magnitudes_result import Magnitudes, load_magnitudes
from relook.studies.objectives import objectives
from relook.studies.objectives_result import Objectives, load_objectives
from relook.studies.policy_histogram import PolicyHistogram, load_histogram, policy_histogram
from relook.studies.robustness import robustness
from relook.studies.robustness_result import Robustness, ShiftRow, load_robustness
from relook.studies.transfer import Target, transfer
from relook.studies.transfer_result import Transfer, TransferCell, load_transfer

__all__ = [
    "EnsembleRow",
    "Ensembles",
    "Magnitudes",
    "Objectives",
    "PolicyHistogram",
    "Robustness",
    "ShiftRow",
    "Target",
    "Transfer",
    "TransferCell",
    "ensembles",
    "load_ensembles",
    "load_histogram",
    "load_magnitudes",
    "load_objectives",
    "load_robustness",
    "load_transfer",
    "magnitudes",
    "objectives",
    "policy_histogram",
    "robustness",
    "transfer",
]
