"""The study of objectives against the search itself, and tables with numbers of the paper."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tests.unit.studies.brightness_model import ByBrightness, bright_and_dark

from relook.data import Dataset
from relook.errors import FileFormatError, RelookError
from relook.evaluation.comparison import Measured
from relook.evaluation.cross_validation import cross_validated, prefix_log_probs
from relook.numerics.arrays import FloatArray, Labels
from relook.numerics.intervals import Interval
from relook.numerics.metrics import per_image_log_likelihood
from relook.numerics.splits import stratified_split
from relook.policy import Policy, SubPolicy
from relook.policy.pool import sample_pool
from relook.policy.recipes import get_recipe
from relook.predictions.passes import View, distinct_views, predict_views
from relook.selection import greedy_search
from relook.studies import Objectives, load_objectives, objectives
from relook.studies.objectives_figures import objectives_drawings, save_objectives_figures
from relook.studies.objectives_result import PLAIN, ObjectiveRow
from relook.studies.objectives_tables import (
    fitting_table,
    objectives_csv,
    objectives_latex,
    objectives_markdown,
)

POOL, LENGTH = 12, 4
OPTIONS = {"recipe": "cifar", "pool_size": POOL, "length": LENGTH, "resamples": 100, "seed": 5}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return bright_and_dark(150, wrong=11)


def by_hand(dataset: Dataset, objective: str, seed: int) -> tuple[FloatArray, Labels, Policy]:
    """Search and predict step by step; returns held-out log-probabilities and labels."""
    search, held_out = stratified_split(dataset.labels, 1 / 3, seed)
    pool = sample_pool(get_recipe("cifar"), POOL, seed)
    views = [View(sub, i) for i, sub in enumerate(pool)]
    log_probs = predict_views(
        ByBrightness(), dataset.images[search], views, seed=seed, indices=search
    )
    picks = greedy_search(log_probs, dataset.labels[search], LENGTH, objective).picks
    policy = Policy(tuple(pool[pick] for pick in picks), recipe="cifar", seed=seed)
    chosen = [View(sub, i) for i, sub in enumerate(policy)]
    shown = predict_views(
        ByBrightness(), dataset.images[held_out], chosen, seed=seed, indices=held_out
    )
    return next(prefix_log_probs(shown, [LENGTH])), dataset.labels[held_out], policy


def test_each_objective_finds_what_a_search_with_it_finds(dataset: Dataset) -> None:
    found = objectives(ByBrightness(), dataset, runs=2, **OPTIONS)  # type: ignore[arg-type]
    assert found.objectives == ("accuracy", "ll", "cll")
    assert found.images == 50
    expected: dict[str, list[float]] = {}
    likelihoods: dict[str, list[FloatArray]] = {}
    for name in found.objectives:
        for run, seed in enumerate((5, 6)):
            mean, labels, policy = by_hand(dataset, name, seed)
            assert list(found.policies[name][run]) == list(policy)
            scored = cross_validated(mean, labels, seed=seed)
            expected.setdefault(name, []).append(scored.metrics["cll"])
            likelihoods.setdefault(name, []).append(per_image_log_likelihood(mean, labels))
    for name, values in expected.items():
        row = found.row(name)
        assert row.metrics["cll"].mean == pytest.approx(np.mean(values), abs=1e-9)
        assert row.metrics["cll"].deviation == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    over = found.row("accuracy").over_cll
    assert over is not None
    change = np.concatenate(likelihoods["accuracy"]) - np.concatenate(likelihoods["cll"])
    assert over["log_likelihood"].estimate == pytest.approx(change.mean(), abs=1e-9)
    assert over["log_likelihood"].low <= change.mean() <= over["log_likelihood"].high
    assert found.row("cll").over_cll is None
    assert found.row(PLAIN).views == 1
    assert found.row(PLAIN).over_cll is None


def test_a_pool_is_predicted_once_for_all_objectives(dataset: Dataset, tmp_path: Path) -> None:
    one, three = ByBrightness(), ByBrightness()
    arguments = {**OPTIONS, "runs": 1, "directory": tmp_path}
    objectives(one, dataset, objectives=["cll"], **arguments)  # type: ignore[arg-type]
    found = objectives(three, dataset, **arguments)  # type: ignore[arg-type]
    pool = len(distinct_views([View(s, i) for i, s in enumerate(sample_pool("cifar", POOL, 5))])[0])
    # A check beforehand shows the model some images; the rest of the first call is the pool.
    assert one.passes >= pool * 100
    held_out = {sub for own in found.policies.values() for sub in own[0]}
    assert three.passes <= one.passes - pool * 100 + (len(held_out) + 1) * 50
    again = ByBrightness()
    assert objectives(again, dataset, **arguments) == found  # type: ignore[arg-type]
    assert again.passes <= one.passes - pool * 100


def test_budgets_cut_the_policies(dataset: Dataset) -> None:
    found = objectives(
        ByBrightness(),
        dataset,
        objectives=["cll"],
        runs=1,
        budgets=[1, 3],
        **OPTIONS,  # type: ignore[arg-type]
    )
    assert found.budgets == (1, 3)
    assert [row.budget for row in found.rows] == [1, 1, 3]
    assert found.row("cll", 1).views == 1
    assert found.row("cll").budget == 3


def test_separate_test_images_serve_all_runs(dataset: Dataset) -> None:
    test = replace(bright_and_dark(60), images=bright_and_dark(60).plain + 3)
    found = objectives(ByBrightness(), dataset, test=test, runs=1, **OPTIONS)  # type: ignore[arg-type]
    assert found.images == 60
    assert found.row("cll").metrics["accuracy"].mean == 1
    with pytest.raises(RelookError, match="images"):
        objectives(ByBrightness(), dataset, test=dataset, runs=1, **OPTIONS)  # type: ignore[arg-type]


def mean_brightness(log_probs: FloatArray, labels: Labels) -> float:
    return float(log_probs[:, 1].mean())


def test_an_objective_of_ones_own_stands_beside_the_others(
    dataset: Dataset, tmp_path: Path
) -> None:
    found = objectives(
        ByBrightness(),
        dataset,
        objectives=[mean_brightness, "cll"],
        runs=1,
        directory=tmp_path,
        **OPTIONS,  # type: ignore[arg-type]
    )
    assert found.row("mean_brightness").label == "mean_brightness"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objectives": ["acuracy"]}, "did you mean 'accuracy'"),
        ({"objectives": ["cll", "cll"]}, "each objective once"),
        ({"objectives": []}, "at least 1 objective"),
        ({"runs": 0}, "at least 1 run, got 0"),
        ({"length": 0}, "length of at least 1"),
        ({"strategy": "conservative"}, "greedy or paper"),
        ({"budgets": [0]}, "budgets of at least 1"),
    ],
)
def test_bad_settings_are_refused(
    dataset: Dataset, options: dict[str, object], message: str
) -> None:
    with pytest.raises(RelookError, match=message):
        objectives(ByBrightness(), dataset, **{**OPTIONS, **options})  # type: ignore[arg-type]


def row(name: str, accuracy: tuple[float, float], cll: tuple[float, float]) -> ObjectiveRow:
    metrics = {
        "accuracy": Measured(*accuracy),
        "log_likelihood": Measured(cll[0] - 0.1, cll[1]),
        "cll": Measured(*cll),
    }
    label = {"accuracy": "accuracy", "ll": "LL", "cll": "cLL", PLAIN: "plain image"}[name]
    over = None
    if name in ("accuracy", "ll"):
        change = cll[0] + 0.623
        over = dict.fromkeys(metrics, Interval(change, change - 0.01, change + 0.01, 0.95))
    return ObjectiveRow(name, label, 1 if name == PLAIN else 100, 100, metrics, over)


# VGG of the paper's Table 1.
VGG = Objectives(
    rows=(
        row(PLAIN, (0.8, 0), (-0.9, 0)),
        row("accuracy", (0.8117, 0.0015), (-0.837, 0.003)),
        row("ll", (0.8189, 0.0007), (-0.640, 0.001)),
        row("cll", (0.8221, 0.0017), (-0.623, 0.001)),
    ),
    objectives=("accuracy", "ll", "cll"),
    budgets=(100,),
    runs=5,
    images=10_000,
    policies={name: (Policy((SubPolicy(),)),) for name in ("accuracy", "ll", "cll")},
    settings={"seed": 0},
)


def test_the_papers_table_has_its_layout() -> None:
    latex = objectives_latex({"VGG": VGG, "Wide_ResNet": VGG}, dataset="CIFAR-100")
    assert r"\begin{tabular}{rccc}" in latex
    assert r"GPS\\criterion\end{tabular} & VGG & Wide\_ResNet \\" in latex
    block = [line for line in latex.splitlines() if r"\mathbf{82.21\pm0.17}" in line]
    assert block == [r" & cLL & $\mathbf{82.21\pm0.17}$ & $\mathbf{82.21\pm0.17}$ \\"]
    assert r"& Acc. & $81.17\pm0.15$ & $81.17\pm0.15$ \\" in latex
    assert r"$-0.8370\pm0.0030$" in latex
    assert "plain" not in latex
    assert r"\label{table:gps_metrics}" in latex


def test_markdown_csv_and_terminal_hold_the_same_numbers() -> None:
    text = objectives_markdown({"VGG": VGG})
    assert "| cLL | cLL | **−0.6230±0.0010** |" in text
    assert "| acc. % | plain image | 80.00 |" in text
    lines = objectives_csv({"=VGG": VGG}).splitlines()
    assert lines[1].startswith("'=VGG,plain,1,100,5,10000,0.8,0,")
    assert lines[2].split(",")[-3:] == ["-0.214", "-0.224", "-0.204"]
    for width, shown in ((200, True), (80, False)):
        console = Console(file=io.StringIO(), width=width)
        console.print(fitting_table(VGG, console))
        printed = console.file.getvalue()  # type: ignore[attr-defined]
        assert "81.89±0.07" in printed
        assert ("[−0.2240, −0.2040]" in printed) == shown


def test_the_sentence_names_the_best_and_what_the_others_lose() -> None:
    assert VGG.sentence == (
        "The highest held-out cLL comes from searching with cLL; compared with cLL as the "
        "objective: accuracy −0.2140, 95 % interval −0.2240 to −0.2040; LL −0.0170, 95 % "
        "interval −0.0270 to −0.0070."
    )


def test_a_study_comes_back_from_its_file(tmp_path: Path) -> None:
    VGG.save(tmp_path / "objectives.json")
    assert load_objectives(tmp_path / "objectives.json") == VGG
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(FileFormatError, match="run  relook objectives  again"):
        load_objectives(tmp_path / "bad.json")


def test_the_figures_are_the_same_every_time(tmp_path: Path) -> None:
    (drawing,) = objectives_drawings({"VGG": VGG})
    assert "cLL: accuracy (%) 82.21±0.17, cLL −0.6230±0.0010" in drawing.description
    files = save_objectives_figures({"VGG": VGG, "other": VGG}, tmp_path / "a")
    assert [path.name for path in files] == [
        "objectives_1.svg",
        "objectives_1.png",
        "objectives_2.svg",
        "objectives_2.png",
    ]
    again = save_objectives_figures({"VGG": VGG, "other": VGG}, tmp_path / "b")
    assert [path.read_bytes() for path in files] == [path.read_bytes() for path in again]
