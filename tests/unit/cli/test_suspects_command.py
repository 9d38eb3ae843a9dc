import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.cli import command_line
from tests.unit.policy_search.searched_run import searched_run
from tests.unit.report.html_reader import read_html
from tests.unit.studies.brightness_model import ByBrightness, bright_and_dark

import relook
from relook.data import load_data
from relook.evaluation.suspects import find_suspects
from relook.models.small import new_small
from relook.policy import Policy


def test_a_run_gives_a_table_a_csv_and_a_page(tmp_path: Path) -> None:
    run = searched_run(tmp_path)
    table, page = tmp_path / "suspects.csv", tmp_path / "suspects.html"
    result = command_line.relook("suspects", run.path, "--csv", table, "--gallery", page)
    assert "of 90 images" in " ".join(result.stdout.split()).lower()
    rows = list(csv.DictReader(table.read_text().splitlines()))
    names = ["file", "index", "label", "suggested", "score", "probability"]
    assert list(rows[0]) == [*names, "views_agree", "confident", "searched"]
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores)
    assert all(row["label"] != row["suggested"] for row in rows)
    labels = [run.dataset.classes[one] for one in run.dataset.labels]
    assert all(labels[int(row["index"])] == row["label"] for row in rows)
    text = page.read_text()
    assert text.count("<img") == min(60, len(rows))
    words = read_html(text).words()
    assert f"image {rows[0]['index']}" in words
    assert "searched on" not in words
    shown = [f"{float(row['score']):.5f}" for row in rows if float(row["score"]) >= 1e-5]
    assert all(one in result.stdout and one in words for one in shown[:5])
    assert "look at these first" not in result.stdout
    found = json.loads(command_line.relook("suspects", run.path, "--json").stdout)
    assert [one["index"] for one in found["suspects"]] == [int(row["index"]) for row in rows]


@pytest.mark.filterwarnings("ignore::relook.RelookWarning")
def test_it_says_which_views_it_takes_where_the_verdict_is_for_others(tmp_path: Path) -> None:
    run = searched_run(tmp_path)
    quick: Any = {"pool_size": 4, "length": 2, "progress": False}
    found = relook.search(run.model, run.data, out=tmp_path / "own", **quick)
    assert found.comparison.verdict.recommended_method == "plain"
    said = command_line.relook("suspects", tmp_path / "own").stderr
    assert "the learned policy with 2 views: the whole policy, though the verdict" in said
    assert "recommends the plain image" in " ".join(said.split())
    assert "though the verdict" not in command_line.relook("suspects", run.path).stderr


def test_wrong_labels_are_found_and_too_few_images_said() -> None:
    found = find_suspects(ByBrightness(), bright_and_dark(40, wrong=4), Policy.preset("flip"))
    assert {one.index for one in found.found} == {0, 1, 2, 3}
    assert all(one.confident and one.views_agree == 2 for one in found.found)
    assert "4 labels are contradicted by the average of 2 views, 4 of them with" in found.sentence
    part = bright_and_dark(40, wrong=4).subset(np.array([0, *range(4, 40, 2), 5]))
    few = find_suspects(ByBrightness(), part, Policy.preset("plain"))
    assert few.few == (part.classes[1],)
    assert f"Too few images to be confident of: {part.classes[1]} (fewer than" in few.sentence
    assert [one.confident for one in few.found] == [True]


def test_a_search_lists_its_own_images(tmp_path: Path) -> None:
    digits = load_data("digits").subset(np.arange(90))
    with pytest.warns(UserWarning, match="images"):
        search = relook.search(new_small(seed=1), digits, recipe="small", pool_size=4, length=2)
    found = search.suspects(csv=tmp_path / "s.csv", gallery=tmp_path / "s.html")
    assert len(found.dataset) == 90
    assert {one.searched for one in found.found} == {True, False}
    assert "images used in the search" in found.sentence
    assert (tmp_path / "s.csv").exists()
    assert (tmp_path / "s.html").exists()
