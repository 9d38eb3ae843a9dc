"""The study on a network whose errors can be counted by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support import refused
from tests.unit.studies.brightness_model import ByBrightness, bright_and_dark
from tests.unit.studies.shown import drawn, printed
from torch import Tensor

from relook.data import Dataset
from relook.data.corrupted import Source
from relook.errors import RelookError
from relook.evaluation.baselines import Options
from relook.evaluation.cross_validation import cross_validated
from relook.evaluation.results import Result, Results
from relook.policy import Policy, Step, SubPolicy
from relook.report.latex import latex
from relook.studies.corruptions import CORRUPTIONS, corrupt_images
from relook.studies.robustness import (
    STUDY,
    Shift,
    paper_table,
    robustness,
    sentence,
    stratified_part,
    tables,
)
from relook.studies.robustness_scores import ALEXNET_ERRORS, Tally, normalised_errors

IMAGES = 20
MIRROR = Policy((SubPolicy((Step("flip", 0),)),), recipe="cifar")
NEGATIVE = Policy((SubPolicy((Step("invert", 0),)),), recipe="cifar")


@pytest.fixture
def dataset() -> Dataset:
    return bright_and_dark(IMAGES)


def wrong(dataset: Dataset, counts: dict[tuple[str, int], int]) -> Source:
    """Return a source that shows the negative of so many images."""

    def source(name: str, severity: int) -> Tensor:
        images = dataset.plain.clone()
        images[: counts[name, severity]] = 255 - images[: counts[name, severity]]
        return images

    return source


COUNTS = {("snow", 1): 2, ("snow", 5): 6, ("fog", 1): 0, ("fog", 5): 20}


def study(
    dataset: Dataset, policy: Policy = MIRROR, shift: Shift | None = None, **options: object
) -> Results:
    arguments: dict[str, object] = {
        "recipe": "cifar",
        "shift": shift or Shift(["fog", "snow"], [1, 5], wrong(dataset, COUNTS)),
        "budgets": (1, 2),
        "methods": ["plain", "cf"],
        **options,
    }
    return robustness(ByBrightness(), dataset, policy, **arguments)  # type: ignore[arg-type]


def test_errors_are_counted_as_by_hand(dataset: Dataset) -> None:
    found = study(dataset)
    plain = found.where(method="plain", budget=1)
    assert plain.one(metric="clean_error").value == 0
    # In the table's order, snow before fog.
    assert found.values("corruption") == ["snow", "fog"]
    errors = {(r["corruption"], r["severity"]): r.value for r in plain.where(metric="error").rows}
    assert errors == {("snow", 1): 0.1, ("snow", 5): 0.3, ("fog", 1): 0.0, ("fog", 5): 1.0}
    assert plain.one(metric="uce", corruption="snow").value == pytest.approx(0.2)
    assert plain.one(metric="uce", corruption="fog").value == pytest.approx(0.5)
    assert plain.one(metric="muce").value == pytest.approx(0.35)
    assert not plain.where(versus="plain")
    assert not found.settings["normalised"]
    assert not found.settings["made"]
    assert found.get(metric="mce") is None


def test_cll_is_that_of_the_best_temperature(dataset: Dataset) -> None:
    plain = study(dataset, protocol="paper").where(method="plain", metric="cll")
    # All right: the temperature falls to its bound and the likelihood to certainty.
    assert plain.one(corruption="fog", severity=1).value == pytest.approx(0, abs=1e-3)
    chances = np.full((IMAGES, 2), 0.2)
    chances[np.arange(IMAGES), dataset.labels] = 0.8
    chances[:2] = chances[:2, ::-1]
    expected = cross_validated(np.log(chances), dataset.labels, seed=0, protocol="paper")
    expected_cll = expected.metrics["cll"]
    assert plain.one(corruption="snow", severity=1).value == pytest.approx(expected_cll, abs=1e-6)
    each = [row.value for row in plain.rows if row["corruption"] is not None]
    assert len(each) == 4
    assert plain.one(metric="cll").value == pytest.approx(np.mean(each))


def test_differences_are_policy_minus_baseline_an_image_at_a_time(dataset: Dataset) -> None:
    same = study(dataset).where(method="gps", budget=1, versus="plain")
    assert same.values("corruption") == ["snow", "fog"]
    mean = same.one(metric="muce", versus="plain")
    assert (mean.low, mean.high) == (0, 0)
    negative = study(dataset, NEGATIVE).where(method="gps", budget=1)
    over = negative.where(versus="plain")
    # What was right is wrong: 0.8 − 0.2 and 0.5 − 0.5, mean 0.3.
    for name, change in (("snow", 0.6), ("fog", 0.0)):
        found = over.one(metric="uce", corruption=name, versus="plain")
        assert found.value == pytest.approx(change)
    mean = over.one(metric="muce", versus="plain")
    assert mean.value == pytest.approx(0.3)
    assert mean.low is not None
    assert mean.low > 0
    assert negative.one(metric="clean_error").value == 1


def test_the_sentence_says_which_way(dataset: Dataset) -> None:
    assert "is less robust than" in study(dataset, NEGATIVE).sentence
    assert "shows no difference from" in study(dataset).sentence


def test_an_ensemble_of_views_is_averaged_over_the_budget(dataset: Dataset) -> None:
    two = Policy((*MIRROR, *NEGATIVE), recipe="cifar")
    rows = study(dataset, two).where(method="gps", metric="muce", versus=None).rows
    assert [row["views"] for row in rows] == [1, 2]
    assert rows[0].value == pytest.approx(0.35)


def test_corruptions_are_made_from_the_images_places(dataset: Dataset) -> None:
    predictor = ByBrightness()
    places = np.arange(100, 100 + IMAGES)
    robustness(
        predictor,
        dataset,
        MIRROR,
        recipe="cifar",
        shift=Shift(["impulse_noise"], [2]),
        budgets=[1],
        methods=["plain"],
        indices=places,
        seed=7,
        batch=64,
    )
    expected = corrupt_images(dataset.plain, "impulse_noise", 2, seed=7, indices=places)
    passed = torch.cat(predictor.seen)
    assert any(torch.equal(passed[i : i + IMAGES], expected) for i in range(len(passed)))


def test_a_part_of_the_images_is_stratified(dataset: Dataset) -> None:
    kept = stratified_part(dataset, 8, seed=0)
    assert len(kept) == 8
    assert kept.tolist() == stratified_part(dataset, 8, seed=0).tolist()
    counts = [np.bincount(labels).tolist() for labels in (dataset.labels, dataset.labels[kept])]
    assert counts[1] == [count * 8 // IMAGES for count in counts[0]]
    refused("at least 4 images", stratified_part, dataset, 3, seed=0)


def test_mgrid_needs_clean_images_of_its_own(dataset: Dataset) -> None:
    without = study(dataset, methods=["mgrid"])
    assert "mgrid" in without.settings["left_out"]
    few = Options(grid_views=1)
    others = bright_and_dark(2 * IMAGES)
    with_them = study(dataset, methods=["mgrid"], validation=others, options=few)
    assert with_them.get(method="mgrid", budget=2) is not None
    assert with_them.settings["grid_search"]


def test_ce_is_there_for_a_thousand_classes(dataset: Dataset) -> None:
    counts = {(name, level): level * times for name, times in (("fog", 1), ("snow", 2))
              for level in range(1, 6)}  # fmt: skip
    found = robustness(
        ByBrightness(1000),
        dataset,
        MIRROR,
        recipe="cifar",
        shift=Shift(["fog", "snow"], source=wrong(dataset, counts)),
        budgets=[1],
        methods=["plain"],
    )
    assert found.settings["normalised"]
    # (1 + 2 + 3 + 4 + 5) / 20 = 0.75 over 5 · 0.819324, and twice that over 5 · 0.866816
    fog, snow = 0.75 / (5 * 0.819324), 1.5 / (5 * 0.866816)
    plain = found.where(method="plain")
    assert plain.one(metric="ce", corruption="fog").value == pytest.approx(fog)
    assert plain.one(metric="mce").value == pytest.approx((fog + snow) / 2)
    assert "mCE" in latex(paper_table(found))


def test_an_interrupted_study_goes_on(dataset: Dataset, tmp_path: Path) -> None:
    def run(predictor: ByBrightness, path: Path | None) -> Results:
        return robustness(
            predictor,
            dataset,
            MIRROR,
            recipe="cifar",
            shift=Shift(["fog"]),
            budgets=[2],
            methods=["cf"],
            store_path=path,
        )

    with pytest.raises(KeyboardInterrupt):
        run(ByBrightness(stop_at=3), tmp_path / "stores")
    rest, whole = ByBrightness(), ByBrightness()
    assert run(rest, tmp_path / "stores") == run(whole, None)
    assert rest.calls < whole.calls
    names = {path.name for path in (tmp_path / "stores").iterdir()}
    assert {"clean.zarr", "fog-1.zarr", "fog-5.zarr"} <= names


def test_progress_counts_every_pass_once(dataset: Dataset) -> None:
    seen: list[tuple[int, int]] = []
    study(dataset, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == max(total for _, total in seen)
    assert seen == sorted(seen)


def test_runs_give_a_deviation(dataset: Dataset) -> None:
    noisy = replace(dataset, images=corrupt_images(dataset.plain, "gaussian_noise", 5))
    found = study(noisy, runs=2, shift=Shift(["fog", "snow"], [1, 5]))
    assert found.one(method="cf", budget=2, metric="muce").deviation >= 0


def test_tables_hold_the_figures(dataset: Dataset) -> None:
    found = study(dataset)
    text = "".join(printed(table) for table in tables(found))
    assert "35.00" in text
    assert "snow" in text
    lines = found.where(metric="error").to_csv().splitlines()
    # A heading; then for each of 5 methods and budgets 2 × 2 conditions.
    assert len(lines) == 1 + 5 * 4
    expected = "robustness,halves,plain,plain image (CC),1,1,20,fog,5,error,1.0,,,0.0"
    assert expected in lines
    markdown = STUDY.markdown(found)
    assert "| snow | **20.00** |" in markdown
    assert markdown.rstrip().endswith(found.sentence)
    made = latex(paper_table(found.labelled(data="CIFAR_10", model="a & b")))
    assert r"CIFAR\_10 & a \& b & \textbf{35.000}" in made


def test_figures_are_files_of_the_same_bytes(dataset: Dataset, tmp_path: Path) -> None:
    names = ["robustness_views", "robustness_corruptions"]
    assert drawn(STUDY, study(dataset), tmp_path) == names


def test_wrong_requests_are_one_line(dataset: Dataset) -> None:
    refused("unknown corruption", study, dataset, shift=Shift(["sand"]))
    refused("severities from 1 to 5", study, dataset, shift=Shift(severities=[0]))
    refused("at least 1 view", study, dataset, budgets=[0])
    with pytest.raises(RelookError, match="expected corrupted images of shape"):
        study(dataset, shift=Shift(source=lambda name, severity: dataset.plain[:, :, :16]))


def test_being_worse_than_the_best_of_many_baselines_takes_more() -> None:
    def said(baselines: int) -> str:
        names = ["gps", "plain", "cf", "flip", "5c", "10c", "d4", "mtrain"][: baselines + 1]
        rows = [
            Result("muce", 0.3, keys={"method": name, "budget": 5, "views": 5}) for name in names
        ]
        about = {"method": "gps", "budget": 5, "versus": "rival", "reference": "plain"}
        return sentence(
            Results("robustness", (*rows, Result("muce", 0.02, 0.001, 0.039, keys=about)))
        )

    assert "is less robust than" in said(1)
    assert "shows no difference from" in said(7)
    assert "(for the best of 7)" in said(7)


def test_errors_over_alexnets_by_hand() -> None:
    errors = {"fog": (0.1, 0.2, 0.3, 0.4, 0.5), "snow": (0.2, 0.2, 0.2, 0.2, 0.7)}
    # 1.5 / (5 · 0.819324) = 0.366156… and 1.5 / (5 · 0.866816) = 0.346094…
    found = normalised_errors(errors)
    assert found == pytest.approx({"fog": 0.3661555, "snow": 0.3460942}, abs=1e-6)


def test_alexnet_itself_has_a_ce_of_one() -> None:
    errors = {name: (error,) * 5 for name, error in ALEXNET_ERRORS.items()}
    assert list(errors) == list(CORRUPTIONS)
    assert list(normalised_errors(errors).values()) == pytest.approx([1] * 15)
    # The published mean of AlexNet's errors.
    assert sum(ALEXNET_ERRORS.values()) / 15 == pytest.approx(0.789, abs=5e-4)


def test_ce_is_for_the_five_severities_of_imagenets_corruptions() -> None:
    two = {"fog": (0.1, 0.2)}
    refused(r"CE of fog: expected .* five severities, got 2", normalised_errors, two)
    refused("CE of spatter", normalised_errors, {"spatter": (0.1,) * 5})
    for classes, severities in ((1000, (1, 2, 3, 4, 5)), (10, (1, 2, 3, 4, 5)), (1000, (1, 3, 5))):
        tally = Tally(["fog"], severities, classes)
        assert tally.normalised == (classes == 1000 and len(severities) == 5)
