"""The study of objectives against the search itself, and tables with numbers of the paper."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.studies.brightness_model import ByBrightness, bright_and_dark
from tests.unit.studies.shown import drawn, printed

from relook.data import Dataset
from relook.errors import RelookError
from relook.evaluation.cross_validation import cross_validated
from relook.evaluation.results import Result, Results, join
from relook.numerics.arrays import FloatArray, Labels
from relook.numerics.calibration import prefix_log_probs
from relook.numerics.metrics import per_image_log_likelihood
from relook.numerics.splits import stratified_split
from relook.policy import Policy
from relook.policy.file import policy_from_json
from relook.policy.pool import sample_pool
from relook.policy.recipes import get_recipe
from relook.policy_search.settings import SearchSettings
from relook.predictions.passes import View, distinct_views, predict_views
from relook.report.latex import latex
from relook.selection import greedy_search
from relook.studies.objectives import (
    PLAIN,
    STUDY,
    objective_label,
    objectives,
    paper_table,
    sentence,
    tables,
)

POOL, LENGTH = 12, 4
SETTINGS = SearchSettings(
    get_recipe("cifar"), strategy="greedy", pool_size=POOL, length=LENGTH, seed=5
)


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
    found = objectives(ByBrightness(), dataset, SETTINGS, runs=2)
    assert found.values("method") == [PLAIN, "accuracy", "ll", "cll"]
    assert found.values("images") == [50]
    expected: dict[str, list[float]] = {}
    likelihoods: dict[str, list[FloatArray]] = {}
    for name in ("accuracy", "ll", "cll"):
        for run, seed in enumerate((5, 6)):
            mean, labels, policy = by_hand(dataset, name, seed)
            assert list(policies_of(found, name)[run]) == list(policy)
            scored = cross_validated(mean, labels, seed=seed)
            expected.setdefault(name, []).append(scored.metrics["cll"])
            likelihoods.setdefault(name, []).append(per_image_log_likelihood(mean, labels))
    for name, values in expected.items():
        row = found.one(method=name, metric="cll")
        assert row.value == pytest.approx(np.mean(values), abs=1e-9)
        assert row.deviation == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    over = found.one(method="accuracy", metric="log_likelihood", versus="cll")
    change = np.concatenate(likelihoods["accuracy"]) - np.concatenate(likelihoods["cll"])
    assert over.value == pytest.approx(change.mean(), abs=1e-9)
    assert over.low is not None
    assert over.high is not None
    assert over.low <= change.mean() <= over.high
    assert not found.where(method=("cll", PLAIN), versus="cll")
    assert found.one(method=PLAIN, metric="cll")["views"] == 1


def test_a_pool_is_predicted_once_for_all_objectives(dataset: Dataset, tmp_path: Path) -> None:
    one, three = ByBrightness(), ByBrightness()
    arguments = {"runs": 1, "directory": tmp_path}
    objectives(one, dataset, SETTINGS, objectives=["cll"], **arguments)  # type: ignore[arg-type]
    found = objectives(three, dataset, SETTINGS, **arguments)  # type: ignore[arg-type]
    pool = len(distinct_views([View(s, i) for i, s in enumerate(sample_pool("cifar", POOL, 5))])[0])
    # A check beforehand shows the model some images; the rest of the first call is the pool.
    assert one.passes >= pool * 100
    held_out = {s for name in found.settings["policies"] for s in policies_of(found, name)[0]}
    assert three.passes <= one.passes - pool * 100 + (len(held_out) + 1) * 50
    again = ByBrightness()
    assert objectives(again, dataset, SETTINGS, **arguments) == found  # type: ignore[arg-type]
    assert again.passes <= one.passes - pool * 100


def test_budgets_cut_the_policies(dataset: Dataset) -> None:
    found = objectives(
        ByBrightness(),
        dataset,
        SETTINGS,
        objectives=["cll"],
        runs=1,
        budgets=[1, 3],
    )
    assert [row["budget"] for row in found.where(metric="cll").rows] == [1, 1, 3]
    assert found.one(method="cll", budget=1)["views"] == 1


def test_separate_test_images_serve_all_runs(dataset: Dataset) -> None:
    test = replace(bright_and_dark(60), images=bright_and_dark(60).plain + 3)
    found = objectives(ByBrightness(), dataset, SETTINGS, test=test, runs=1)
    assert found.values("images") == [60]
    assert found.one(method="cll", metric="accuracy").value == 1
    with pytest.raises(RelookError, match="images"):
        objectives(ByBrightness(), dataset, SETTINGS, test=dataset, runs=1)


def mean_brightness(log_probs: FloatArray, labels: Labels) -> float:
    return float(log_probs[:, 1].mean())


def test_an_objective_of_ones_own_stands_beside_the_others(
    dataset: Dataset, tmp_path: Path
) -> None:
    found = objectives(
        ByBrightness(),
        dataset,
        SETTINGS,
        objectives=[mean_brightness, "cll"],
        runs=1,
        directory=tmp_path,
    )
    assert found.one(method="mean_brightness")["label"] == "mean_brightness"


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ({}, {"objectives": ["acuracy"]}, "did you mean 'accuracy'"),
        ({}, {"objectives": ["cll", "cll"]}, "each objective once"),
        ({}, {"objectives": []}, "at least 1 objective"),
        ({}, {"runs": 0}, "at least 1 run, got 0"),
        ({"length": 0}, {}, "length of at least 1"),
        ({"strategy": "conservative"}, {}, "greedy or paper"),
        ({"cross_fit": True}, {}, "cross_fit holds out no images"),
        ({}, {"budgets": [0]}, "budgets of at least 1"),
        ({}, {"seed": 1}, "unknown keyword of objectives 'seed'"),
    ],
)
def test_bad_settings_are_refused(
    dataset: Dataset, settings: dict[str, object], options: dict[str, object], message: str
) -> None:
    with pytest.raises(RelookError, match=message):
        objectives(ByBrightness(), dataset, replace(SETTINGS, **settings), **options)  # type: ignore[arg-type]


def rows(name: str, accuracy: tuple[float, float], cll: tuple[float, float]) -> list[Result]:
    metrics = {"accuracy": accuracy, "log_likelihood": (cll[0] - 0.1, cll[1]), "cll": cll}
    keys = {
        "data": "CIFAR-100",
        "method": name,
        "label": objective_label(name),
        "budget": 1 if name == PLAIN else 100,
        "views": 100,
        "images": 10_000,
        "runs": 5,
    }
    made = [Result(metric, one[0], deviation=one[1], keys=keys) for metric, one in metrics.items()]
    if name in ("accuracy", "ll"):
        change, own = cll[0] + 0.623, {**keys, "versus": "cll"}
        made += [Result(m, change, change - 0.01, change + 0.01, keys=own) for m in metrics]
    return made


# VGG of the paper's Table 1.
_VGG = Results(
    "objectives",
    (
        *rows(PLAIN, (0.8, 0), (-0.9, 0)),
        *rows("accuracy", (0.8117, 0.0015), (-0.837, 0.003)),
        *rows("ll", (0.8189, 0.0007), (-0.640, 0.001)),
        *rows("cll", (0.8221, 0.0017), (-0.623, 0.001)),
    ),
)
VGG = replace(_VGG, sentence=sentence(_VGG))


def policies_of(found: Results, name: str) -> list[Policy]:
    return [policy_from_json(one) for one in found.settings["policies"][name]]


def test_the_papers_table_has_its_layout() -> None:
    found = latex(paper_table(join({"VGG": VGG, "Wide_ResNet": VGG})))
    assert r"\begin{tabular}{llcc}" in found
    assert r"metric & GPS criterion & VGG & Wide\_ResNet \\" in found
    best = r"\textbf{82.21 {\tiny$\pm$0.17}}"
    assert [line for line in found.splitlines() if best in line] == [
        rf" & cLL & {best} & {best} \\"
    ]
    other = r"81.17 {\tiny$\pm$0.15}"
    assert rf"acc. \% & accuracy & {other} & {other} \\" in found
    assert r"$-$0.8370 {\tiny$\pm$0.0030}" in found
    assert "plain" not in found
    assert "measured on CIFAR-100" in found
    assert r"\label{table:gps_metrics}" in found


def test_markdown_csv_and_terminal_hold_the_same_numbers() -> None:
    text = STUDY.markdown(VGG)
    assert "| cLL | 100 | **82.21±0.17** | **−0.7230±0.0010** | **−0.6230±0.0010** |" in text
    assert "| plain image | 100 | **80.00** |" in text  # the best that one view buys
    lines = join({"=VGG": VGG}).to_csv().splitlines()
    assert lines[1].startswith(
        "objectives,'=VGG,CIFAR-100,plain,plain image,1,100,10000,5,,accuracy,0.8"
    )
    change = next(line for line in lines if ",accuracy,accuracy,100,100,10000,5,cll,cll," in line)
    found = [float(part) for part in change.split(",")[-4:-1]]
    assert found == pytest.approx([-0.214, -0.224, -0.204])
    (table,) = tables(VGG)
    for width, shown in ((200, True), (70, False)):
        assert "81.89±0.07" in printed(table, width)
        assert ("[−0.2240, −0.2040]" in printed(table, width)) == shown


def test_the_sentence_names_the_best_and_what_the_others_lose() -> None:
    assert VGG.sentence == (
        "The highest held-out cLL comes from searching with cLL; compared with cLL as the "
        "objective: accuracy −0.2140, 95 % interval −0.2240 to −0.2040; LL −0.0170, 95 % "
        "interval −0.0270 to −0.0070."
    )


def test_the_figures_are_the_same_every_time(tmp_path: Path) -> None:
    (drawing,) = STUDY.figures(VGG)
    assert "cLL: acc. % 82.21±0.17, cLL −0.6230±0.0010" in drawing.description
    both = join({"VGG": VGG, "other": VGG})
    assert drawn(STUDY, both, tmp_path) == ["objectives_1", "objectives_2"]
