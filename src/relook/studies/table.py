"""STUDIES: all studies, in the paper's order."""

from __future__ import annotations

from collections.abc import Mapping

from relook.foundation.registry import by_name
from relook.studies.ensembles import STUDY as ENSEMBLES
from relook.studies.in_domain import IN_DOMAIN, METRICS, TEMPERATURE, TRAIN_VS_CLEAN, VANILLA
from relook.studies.magnitudes import STUDY as MAGNITUDES
from relook.studies.objectives import STUDY as OBJECTIVES
from relook.studies.robustness import STUDY as ROBUSTNESS
from relook.studies.statistics import STUDY as STATISTICS
from relook.studies.study import Study
from relook.studies.transfer import STUDY as TRANSFER

STUDIES: Mapping[str, Study] = by_name(
    (
        TRAIN_VS_CLEAN,
        IN_DOMAIN,
        OBJECTIVES,
        ROBUSTNESS,
        TRANSFER,
        ENSEMBLES,
        VANILLA,
        TEMPERATURE,
        MAGNITUDES,
        STATISTICS,
        METRICS,
    )
)
