"""The table of every metric beside the comparisons that it is made of."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from relook.data import load_data
from relook.evaluation.compare import compare
from relook.evaluation.comparison import Comparison
from relook.foundation.wording import with_minus_signs
from relook.models.small import new_small
from relook.models.torch_module import TorchPredictor
from relook.policy import Policy, Step, SubPolicy
from relook.studies.metric_tables import COLUMNS, metrics_csv, metrics_latex, metrics_markdown


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    policy = Policy((SubPolicy(), SubPolicy((Step("invert", 0),)), SubPolicy((Step("flip", 0),))))
    return compare(
        TorchPredictor(new_small(width=4, seed=0).eval(), classes=10),
        load_data("digits:test").subset(np.arange(60)),
        policy,
        recipe="small",
        budgets=[1, 2, 3],
        methods=["flip", "cf"],
        resamples=50,
        measure_cost=False,
    )


def test_every_form_has_the_rows_of_the_budgets(comparison: Comparison) -> None:
    found = {("digits", "A_1"): comparison, ("digits", "B"): comparison}
    rows = list(csv.DictReader(io.StringIO(metrics_csv(found, [3]))))
    methods = [(row["model"], row["method"], int(row["views"])) for row in rows]
    own = [("plain", 1), ("flip", 2), ("cf", 3), ("gps", 3)]
    assert methods == [(model, *row) for model in ("A_1", "B") for row in own]
    for row in rows:
        expected = comparison.row(row["method"], int(row["budget"]))
        assert expected is not None
        for column in COLUMNS:
            value = expected.metrics[column.metric].mean
            assert float(row[column.metric]) == pytest.approx(value, rel=1e-6)
        if expected.over_plain is not None:
            low = float(row["cll_over_plain_low"])
            assert low == pytest.approx(expected.over_plain["cll"].low, rel=1e-6)
    markdown = metrics_markdown(found, [3]).splitlines()
    assert len(markdown) == 2 + len(rows)
    assert len({line.count(" | ") for line in markdown}) == 1
    latex = metrics_latex(found, [3])
    assert latex.count("A\\_1 &") == len(own)
    assert len(metrics_csv(found).splitlines()) > len(rows) + 1


def test_numbers_get_a_minus_sign_and_names_keep_their_hyphen() -> None:
    text = with_minus_signs("ResNet-44 on WRN-16-1: -0.5 [-0.7, -0.1], 1-2")
    assert text == "ResNet-44 on WRN-16-1: −0.5 [−0.7, −0.1], 1-2"
