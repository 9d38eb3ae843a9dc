"""Prediction sets as a part of an ONNX graph: `SetRule.sets`."""

from __future__ import annotations

import numpy as np

from relook.numerics.conformal import SLACK, SetRule
from relook.transforms.onnx.graph import Graph

SET = "set"
"""What the output is called: bool `[n, class]`."""


def write_sets(graph: Graph, probabilities: str, rule: SetRule, classes: int) -> str:
    """Append which classes are in each image's set, bool `[n, class]`."""
    rule.check_classes(classes)
    limits = np.array(rule.thresholds) + SLACK
    if rule.score == "lac":  # not 1 − p, which has fewer digits
        return graph.add("GreaterOrEqual", probabilities, (1 - limits).astype(np.float32))
    every = np.array([classes])
    ranked, order = graph.add_several("TopK", probabilities, every, outputs=2, axis=1)
    above = graph.add("CumSum", ranked, np.array(1), exclusive=1)
    if rule.score == "raps":
        late = np.maximum(np.arange(1, classes + 1) - rule.free, 0)
        above = graph.add("Add", above, (rule.penalty * late).astype(np.float32))
    scores = graph.add("ScatterElements", above, order, above, axis=1)
    return graph.add("LessOrEqual", scores, limits.astype(np.float32))
