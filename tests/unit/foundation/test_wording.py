from relook.evaluation.comparison import Measured
from relook.foundation import wording
from relook.numerics.intervals import Interval


def test_numbers_have_true_signs() -> None:
    assert wording.signed(-0.01234, 3) == "−0.012"
    assert wording.signed(0.01234, 3) == "+0.012"
    assert wording.signed(-0.0001, 3) == wording.signed(0.0, 3) == "±0.000"
    assert wording.plain(-1.5, 2) == "−1.50"
    assert wording.measured(Measured(0.951, 0.0), 2, 100) == "95.10"
    assert wording.measured(Measured(0.951, 0.002), 2, 100) == "95.10 ± 0.20"
    assert wording.interval(Interval(0, -0.1, 0.25, 0.95), 1, 10) == "[−1.0, +2.5]"
    assert [wording.slowdown(x) for x in (1.0, 99.94, 99.96)] == ["1.0×", "99.9×", "100×"]
    assert wording.count(1, "entry", "entries") == "1 entry"
    assert wording.count(1200, "view") == "1,200 views"
