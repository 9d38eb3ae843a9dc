"""What is deployed follows the last comparison, in memory as from a run's directory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relook
from relook.api import found as found_module
from relook.data import load_data
from relook.evaluation.comparison import load_comparison
from relook.models.small import new_small

QUICK: Any = {"recipe": "small", "pool_size": 4, "length": 3}
FLIP: Any = {"budgets": (1, 2, 3), "methods": ("cf", "flip"), "measure_cost": False}
CROPS: Any = {"budgets": (1, 2, 3), "methods": ("flip", "cf"), "measure_cost": False}
NARROW: Any = {"budgets": (3,), "methods": ("cf",), "measure_cost": False}
DIGITS = load_data("digits").subset(np.arange(90))
OTHERS = load_data("digits").subset(np.arange(200, 260))

pytestmark = [
    pytest.mark.filterwarnings("ignore:only .* images"),
    pytest.mark.filterwarnings("ignore:.*which is chance"),
    pytest.mark.filterwarnings("ignore:the model takes"),
]


@pytest.fixture(params=["in memory", "with a directory"])
def found(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> relook.FoundPolicy:
    """A search that recommends the plain image; later comparisons recommend their last method."""
    out = None if request.param == "in memory" else tmp_path / "run"
    images = DIGITS.plain, DIGITS.labels
    made = relook.search(new_small(seed=1), *images, out=out, progress=False, **QUICK)
    monkeypatch.setattr(found_module, "compared", recommending_the_last)
    return made


def recommending_the_last(*args: Any, **how: Any) -> Any:
    made, dataset = relook.api.judging.compared(*args, **how)
    row = [one for one in made.rows if one.method == how["keywords"]["methods"][-1]][-1]
    advice: Any = {"recommended_method": row.method, "recommended_views": row.views}
    verdict = replace(made.verdict, sentence=f"Use {row.label} here.", **advice)
    return replace(made, verdict=verdict), dataset


def compared(found: relook.FoundPolicy, *images: Any, **how: Any) -> relook.Comparison:
    return found.compare(*images, **how, progress=False)


def follows(found: relook.FoundPolicy, comparison: relook.Comparison) -> bool:
    """Whether this comparison is kept, and what it recommends is deployed."""
    row, deployed = comparison.recommended, found.tta()
    assert row.fitted is not None
    kept = found.comparison.to_json() == comparison.to_json()
    same = (deployed.views, deployed.temperature) == (row.views, row.fitted.temperature)
    assert kept is same
    return kept


def saved(found: relook.FoundPolicy, place: Path) -> relook.FoundPolicy:
    found.save(place)
    return relook.load(place, new_small(seed=1), DIGITS.plain, DIGITS.labels)


@pytest.mark.parametrize("images", [(), (OTHERS.plain, OTHERS.labels)])
def test_the_verdict_of_a_later_comparison_is_deployed(
    found: relook.FoundPolicy, images: tuple[Any, ...], tmp_path: Path
) -> None:
    first = found.comparison
    assert first.verdict.recommended_method == "plain"
    assert follows(found, first)
    second = compared(found, *images, **FLIP)
    assert follows(found, second)
    assert not follows(found, first)
    assert found.tta().policy.subpolicies == relook.Policy.preset("flip").subpolicies
    assert "Use mirror image here." in found.report(tmp_path / "page.html").read_text()
    again = saved(found, tmp_path / "saved")
    assert follows(again, second)
    assert (tmp_path / "saved" / "examples.npz").is_file()
    third = compared(again, **CROPS)
    assert follows(again, third)
    assert follows(relook.load(tmp_path / "saved", new_small(seed=1)), third)


def test_a_narrower_comparison_changes_nothing(
    found: relook.FoundPolicy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = compared(found, **FLIP)
    narrow = found.compare(**NARROW, progress=True)
    assert "found.comparison has more views or methods and is kept" in capsys.readouterr().err
    assert not follows(found, narrow)
    assert follows(found, full)
    again = saved(found, tmp_path / "saved")
    assert follows(again, full)
    once_more = compared(again, **NARROW)
    assert follows(again, full)
    kept = load_comparison(tmp_path / "saved" / "narrower" / "comparison.json")
    assert kept.to_json() == once_more.to_json()


def test_a_calibrated_copy_follows_its_own_comparison(found: relook.FoundPolicy) -> None:
    first = found.comparison
    fitted = found.calibrate(OTHERS, progress=False)
    assert follows(fitted, compared(fitted, **NARROW))
    assert found.comparison is first


def test_a_comparison_runs_on_the_engine_of_the_search() -> None:
    how: Any = {"accelerate": "channels-last", "progress": False, **QUICK}
    found = relook.search(new_small(seed=1), DIGITS.plain, DIGITS.labels, **how)
    assert found.job is not None
    auto = replace(found.job, settings=replace(found.job.settings, accelerate="auto"))
    again = compared(replace(found, job=auto), **NARROW)  # a search that chose it by itself
    assert again.settings["model"] == found.comparison.settings["model"]
