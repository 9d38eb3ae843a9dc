from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel
from tests.support import refused
from tests.unit.data.marked_images import TURNED, Oracle, noisy
from tests.unit.evaluation.compare_cases import QUICK

from relook.evaluation.compare import compare
from relook.evaluation.comparison import Comparison
from relook.evaluation.requirement import check, read_requirement
from relook.evaluation.verdict import rows_tried
from relook.numerics.intervals import corrected


def compared(seed: int = 0, noise: float = 2.0) -> Comparison:
    dataset, logits = noisy(500, noise=(noise,) * 4)
    if seed:
        logits += np.random.default_rng(seed).normal(size=logits.shape)
    options = {**QUICK, "methods": ("flip", "d4"), "budgets": (1, 4, 8)}
    return compare(Oracle(logits).predictor, dataset, TURNED, **options)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compared()


def test_cll_is_met_by_the_lower_end_of_the_interval(comparison: Comparison) -> None:
    row = comparison.recommended
    over = row.with_learned_average.over_plain
    assert over is not None
    found = corrected(over["cll"], rows_tried(comparison))
    assert found.low > 0
    assert comparison.meets(f"cll>={found.low - 1e-6}")
    assert not comparison.meets(f"cll>={found.low + 1e-6}")
    assert comparison.meets(f"cll.mean>={found.estimate - 1e-6} against plain")
    assert not comparison.meets(f"cll.mean>={found.estimate + 1e-6}")
    assert comparison.meets(f"cll<={found.high + 1e-6}")
    assert not comparison.meets(f"cll<={found.high - 1e-6}")
    text = str(check(comparison, read_requirement("cll>=9")))
    assert text.startswith("not met: cll>=9: the lower end of +0.")
    assert text.endswith(f"with {row.views} views, compared with the plain image)")


def test_the_plain_image_gains_nothing_over_itself(comparison: Comparison) -> None:
    verdict = replace(comparison.verdict, recommended_method="plain", recommended_views=1)
    plain, why = replace(comparison, verdict=verdict), "the plain image is recommended, so "
    for asked, met, end in (
        ("cll>=0.01", False, "there is no gain"),
        ("cll>=0.01 against plain", False, "there is no gain"),
        ("helps against plain", False, "there is no gain"),
        ("accuracy>=-0.1", True, "nothing changes"),
    ):
        found = check(plain, read_requirement(asked))
        assert (found.met, found.found) == (met, why + end)


def test_accuracy_is_in_points(comparison: Comparison) -> None:
    found = comparison.against["plain"]["accuracy"]
    assert comparison.meets(f"accuracy.mean>={100 * found.estimate - 0.001}")
    assert not comparison.meets(f"accuracy.mean>={100 * found.estimate + 0.001}")


def test_numbers_without_an_interval(comparison: Comparison) -> None:
    row = comparison.recommended
    assert comparison.meets(f"views<={row.views}")
    assert not comparison.meets(f"views<={row.views - 1}")
    ece = row.metrics["ece"].mean
    assert comparison.meets(f"ece<={ece + 1e-6}")
    assert not comparison.meets(f"ece<={ece - 1e-6}")
    assert comparison.meets("slowdown >= 1")


def test_helps_is_the_verdict_and_against_others_their_difference(comparison: Comparison) -> None:
    for outcome in ("helps", "averaging helps", "hurts"):
        verdict = replace(comparison.verdict, outcome=outcome)
        assert replace(comparison, verdict=verdict).meets("helps") == (outcome == "helps")
    assert comparison.meets("helps against plain")
    best = min(comparison.against, key=lambda one: comparison.against[one]["cll"].estimate)
    for other in (best, "best"):
        found = check(comparison, read_requirement(f"cll>=0 against {other}")).found
        assert f"{comparison.against[best]['cll'].estimate:+.4f}".replace("-", "−") in found


def test_a_former_comparison_is_paired_image_by_image(
    comparison: Comparison, tmp_path: Path
) -> None:
    other, file = compared(seed=1), tmp_path / "former run.json"
    other.save(file)
    values = [np.frombuffer(one.per_image["cll"], "<f4") for one in (comparison, other)]
    tested = ttest_rel(*(one.astype(float) for one in values)).confidence_interval(
        1 - 0.05 / rows_tried(comparison)
    )
    assert comparison.meets(f"cll>={tested.low - 1e-3} against {file}")
    assert not comparison.meets(f"cll>={tested.low + 1e-3} against {file}")
    whole = replace(comparison, rows=(comparison.recommended,))
    assert rows_tried(whole) == 1
    exact = ttest_rel(*(one.astype(float) for one in values)).confidence_interval(0.95)
    assert whole.meets(f"cll>={exact.low - 1e-6} against {file}")
    assert not whole.meets(f"cll>={exact.low + 1e-6} against {file}")


def test_a_former_comparison_of_other_images_is_refused(
    comparison: Comparison, tmp_path: Path
) -> None:
    settings = {**comparison.settings, "data": {"fingerprint": "another"}}
    file = tmp_path / "former.json"
    replace(comparison, settings=settings).save(file)
    refused("on the same 500 images", comparison.meets, f"cll>=0 against {file}")
    replace(comparison, per_image={}).save(file)
    refused("on the same 500 images", comparison.meets, f"cll>=0 against {file}")
    refused("no such file|does not exist|nothing", comparison.meets, "cll>=0 against none.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("better", "expected a requirement such as helps, 'cll>=0.01'"),
        ("cll>0.01", "expected a requirement such as"),
        ("cll>=", "expected a requirement such as"),
        ("cll>=nan", "expected a requirement such as"),
        ("acuracy>=1", "did you mean.*accuracy"),
        ("cll>=0 against fc", "method to compare with"),
        ("views<=10 against cf", "expected cll or accuracy with 'against'"),
        ("ece.mean<=0.1", "expected cll or accuracy with 'against' or '.mean'"),
        ("cll>=0 against mgrid", "a baseline that was compared with no more views"),
    ],
)
def test_what_cannot_be_required_is_one_line(
    comparison: Comparison, text: str, message: str
) -> None:
    refused(message, comparison.meets, text)
