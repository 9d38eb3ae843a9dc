"""Magnitudes on a network whose predictions follow from the transform's strength by hand."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.evaluation.compare_cases import pictures
from tests.unit.studies.brightness_model import SURE, ByBrightness, bright_and_dark
from tests.unit.studies.shown import drawn, printed

from relook.errors import RelookError
from relook.evaluation.baselines import GRID, Options, randaugment
from relook.evaluation.cross_validation import cross_validated
from relook.evaluation.results import Result, Results, join, measured
from relook.evaluation.setup import ComparisonSettings, best_magnitude, with_magnitude
from relook.numerics.calibration import calibrated_log_likelihood
from relook.policy.recipes import Group, Recipe
from relook.report.latex import latex
from relook.studies.magnitudes import (
    RANDAUGMENT,
    STUDY,
    best,
    best_magnitudes_table,
    magnitudes,
    sentence,
    tables,
)

SOLARIZE = Recipe("solarize", ("solarize",), (Group(1, 1, 45),))
# The threshold is 256 − 64/15·m: images of level 200 turn dark from this magnitude on.
TURNS = (256 - 200) * 15 / 64


def made(values: dict[float, dict[str, tuple[float, ...]]]) -> Results:
    rows: list[Result] = []
    for magnitude, own in values.items():
        keys = {"method": RANDAUGMENT, "views": 100, "images": 5000, "magnitude": magnitude}
        for name, each in {"temperature": (1.0, 1.0), **own}.items():
            rows.append(measured(name, each, **keys))
            rows += [Result(name, v, keys={**keys, "run": r}) for r, v in enumerate(each)]
    found = Results("magnitudes", tuple(rows))
    return replace(found, sentence=sentence(found))


BY_HAND = made(
    {
        0.0: {"accuracy": (0.80, 0.82), "log_likelihood": (-0.70, -0.70), "cll": (-0.69, -0.67)},
        10.0: {"accuracy": (0.82, 0.80), "log_likelihood": (-0.66, -0.72), "cll": (-0.63, -0.65)},
        20.0: {"accuracy": (0.81, 0.81), "log_likelihood": (-0.75, -0.73), "cll": (-0.62, -0.62)},
    }
)


def test_the_best_magnitude_is_the_highest_score_and_of_equals_the_weakest() -> None:
    assert best_magnitude([(0, -0.7), (10, -0.6), (20, -0.65)]) == 10
    assert best_magnitude([(20, -0.6), (0, -0.7), (10, -0.6)]) == 10


def test_m_star_differs_by_metric_as_worked_out_by_hand() -> None:
    # Means: accuracy 0.81, 0.81, 0.81; LL −0.70, −0.69, −0.74; cLL −0.68, −0.64, −0.62.
    assert best(BY_HAND, "accuracy") == 0
    assert best(BY_HAND, "log_likelihood") == 10
    assert best(BY_HAND, "cll") == 20
    assert [best(BY_HAND, "accuracy", run) for run in (0, 1)] == [10, 0]
    assert [best(BY_HAND, "log_likelihood", run) for run in (0, 1)] == [10, 0]
    assert [best(BY_HAND, "cll", run) for run in (0, 1)] == [20, 20]
    assert BY_HAND.one(metric="accuracy", magnitude=20).deviation == 0
    spread = BY_HAND.one(metric="accuracy", magnitude=0).deviation
    assert spread == pytest.approx(0.02 / math.sqrt(2))
    assert BY_HAND.sentence == (
        "M* is 0 by accuracy, 10 by log-likelihood, 20 by cLL; in cLL, accuracy's choice loses "
        "0.0600 and log-likelihood's choice loses 0.0200."
    )


def test_scores_follow_from_the_strength_of_the_transform() -> None:
    found = magnitudes(
        ByBrightness(), bright_and_dark(), recipe=SOLARIZE, views=1, length=1, seed=3
    )
    assert found.values("magnitude") == list(GRID)
    strengths = [
        randaugment(SOLARIZE, 1, 3, "fixed", 1, magnitude)[0].steps[0].magnitude
        for magnitude in GRID
    ]
    turned = [strength >= TURNS for strength in strengths]
    assert any(turned)
    assert not all(turned)
    for magnitude, dark in zip(GRID, turned, strict=True):
        # Half of the images are bright; once they are turned, every one of them is wrong.
        expected = 0.5 if dark else 1.0
        assert found.one(metric="accuracy", magnitude=magnitude).value == expected
        by_hand = expected * math.log(SURE) + (1 - expected) * math.log(1 - SURE)
        likelihood = found.one(metric="log_likelihood", magnitude=magnitude).value
        assert likelihood == pytest.approx(by_hand, abs=1e-6)
    assert best(found, "accuracy") == 0
    assert found.sentence == "M* is 0 by accuracy, log-likelihood and cLL alike."


def test_metrics_are_cross_validated_and_views_averaged() -> None:
    dataset = bright_and_dark(wrong=5)
    found = magnitudes(
        ByBrightness(), dataset, recipe=SOLARIZE, grid=[45], views=2, length=1, seed=3
    )
    views = randaugment(SOLARIZE, 2, 3, "fixed", 1, 45)
    bright = dataset.plain[:, 0, 0, 0].numpy() == 200
    shown = [bright & (sub.steps[0].magnitude < TURNS) for sub in views]
    chance = np.mean([np.where(one, SURE, 1 - SURE) for one in shown], axis=0)
    expected = cross_validated(
        np.log(np.stack([1 - chance, chance], axis=1)), dataset.labels, seed=3
    )
    for name, value in expected.metrics.items():
        assert found.one(metric=name).value == pytest.approx(value, abs=1e-6), name


def test_mgrid_scores_the_same_predictions_by_its_own_cll() -> None:
    dataset = bright_and_dark(wrong=5)
    asked = ComparisonSettings(options=Options(length=1, grid_views=1), seed=3)
    setup, grid = with_magnitude(asked.setup(ByBrightness(), pictures(), SOLARIZE), dataset)
    chances = np.full((len(dataset), 2), 1 - SURE)
    bright = (dataset.plain[:, 0, 0, 0] == 200).long().numpy()
    chances[np.arange(len(dataset)), bright] = SURE
    expected, _ = calibrated_log_likelihood(np.log(chances), dataset.labels)
    assert grid is not None
    assert grid[0] == [0, pytest.approx(expected, abs=1e-6)]
    assert setup.options.grid_magnitude == 0


def test_runs_draw_other_transforms_and_a_store_saves_all_passes(tmp_path: Path) -> None:
    options = {"recipe": "cifar", "grid": [0, 30], "views": 2, "runs": 2, "store_path": tmp_path}
    first, again = ByBrightness(), ByBrightness()
    seen: list[tuple[int, int]] = []
    found = magnitudes(
        first,
        bright_and_dark(),
        progress=lambda done, total: seen.append((done, total)),
        **options,  # type: ignore[arg-type]
    )
    assert found.values("run") == [0, 1]
    assert found.values("runs") == [2]
    assert {total for _, total in seen} == {2 * 2 * 2 * 40}
    assert first.passes <= 2 * 2 * 2 * 40
    assert magnitudes(again, bright_and_dark(), **options) == found  # type: ignore[arg-type]
    assert again.passes == 4 * 16  # per store, whether the model still answers the same


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": []}, "expected magnitudes from 0 to 60"),
        ({"grid": [61]}, "expected magnitudes from 0 to 60"),
        ({"views": 0}, "expected views of at least 1, got 0"),
        ({"runs": 0}, "expected runs of at least 1, got 0"),
        ({"length": -1}, "expected a length of at least 0"),
        ({"recipe": "cifr"}, "did you mean 'cifar'"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(RelookError, match=message):
        magnitudes(ByBrightness(), bright_and_dark(), **{"recipe": "cifar", **options})  # type: ignore[arg-type]


def test_tables_hold_the_numbers_and_mark_the_best() -> None:
    assert "−0.6200" in printed(tables(BY_HAND)[0])
    assert "10, 0" in printed(best_magnitudes_table(BY_HAND))
    text = STUDY.markdown(join({"VGG": BY_HAND}))
    assert "| 20 | 81.00 | −0.7400±0.0141 | **−0.6200** |" in text
    assert "VGG: M* is 0 by accuracy" in text
    found = latex(best_magnitudes_table(join({"VGG_16": BY_HAND})))
    assert r"VGG\_16" in found
    assert r"& cLL & 20 & 81.00 & $-$0.7400 {\tiny$\pm$0.0141} & \textbf{$-$0.6200} \\" in found
    lines = join({"=VGG": BY_HAND}).to_csv().splitlines()
    assert lines[0].startswith("study,model,method,views,images,magnitude,run,metric,value")
    assert "magnitudes,'=VGG,randaugment,100,5000,0.0,0,cll,-0.69,,,0.0" in lines
    assert len(lines) == 1 + 3 * 4 * 3  # magnitudes, metrics, and the mean with its two runs


def test_the_figure_is_the_same_every_time_and_says_what_it_shows(tmp_path: Path) -> None:
    both = join({"VGG": BY_HAND, "WideResNet": BY_HAND})
    (drawing,) = STUDY.figures(both)
    assert "VGG: M* is 0 by accuracy" in drawing.description
    assert len(drawing.figure.axes) == 4
    assert drawn(STUDY, both, tmp_path) == ["magnitudes"]
