from pathlib import Path

import numpy as np
from tests.unit.deploy.exit_cases import VIEWS, policy_of, predictions

from relook.deploy.early_exit.learn import learn_early_exit
from relook.deploy.early_exit.report import ExitReport, report_early_exit
from relook.report.early_exit_figures import early_exit_drawings, save_early_exit_figures


def _report() -> ExitReport:
    learned_on, other = predictions(500, 1), predictions(300, 2)
    rule = learn_early_exit(*learned_on, policy_of(), "views=2")
    return report_early_exit(rule, *other, policy_of(), learned_on=learned_on)


def test_both_curves_and_the_rule_are_drawn_with_their_values() -> None:
    report = _report()
    for drawing, metric, scale in zip(
        early_exit_drawings(report), ("cll", "accuracy"), (1, 100), strict=True
    ):
        fixed, curve, own = drawing.figure.axes[0].lines
        assert np.asarray(fixed.get_xdata()).tolist() == list(range(1, VIEWS + 1))
        values = [scale * getattr(point, metric) for point in report.fixed]
        assert np.asarray(fixed.get_ydata()).tolist() == values
        assert np.asarray(curve.get_xdata()).tolist() == [point.views for point in report.curve]
        assert np.asarray(own.get_xdata()).tolist() == [report.own.views]
        assert f"{report.own.views:.2f} views" in drawing.description


def test_files_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    report = _report()
    first, second = (save_early_exit_figures(report, tmp_path / name) for name in "ab")
    kinds = [f"{metric}.{kind}" for metric in ("cll", "accuracy") for kind in ("svg", "png")]
    assert [path.name for path in first] == [f"early_exit_{kind}" for kind in kinds]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
