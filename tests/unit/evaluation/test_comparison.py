import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support import refused
from tests.unit.data.marked_images import TURNED, Oracle, noisy
from tests.unit.evaluation.compare_cases import QUICK

from relook.errors import FileFormatError
from relook.evaluation.baselines import POLICY_METHOD
from relook.evaluation.compare import compare
from relook.evaluation.comparison import Comparison, load_comparison, place_for
from relook.policy import Policy, SubPolicy


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    dataset, logits = noisy(80)
    record = {"command": "relook compare", "notes": ["a", 1, None]}
    options = {**QUICK, "methods": ("flip", "d4"), "budgets": (1, 4, 8), "record": record}
    return compare(Oracle(logits).predictor, dataset, TURNED, **options)


def test_a_file_is_there_and_back_again(comparison: Comparison, tmp_path: Path) -> None:
    file = tmp_path / "comparison.json"
    comparison.save(file)
    assert load_comparison(file) == comparison
    json.dumps(comparison.to_json(), allow_nan=False)
    comparison.save(tmp_path / "again.json")
    assert file.read_bytes() == (tmp_path / "again.json").read_bytes()


def test_a_mistake_in_the_set_up_is_said_right_after_the_advice() -> None:
    dataset, logits = noisy(80)
    options = {**QUICK, "methods": ("flip",), "budgets": (4,), "record": {"set_up": "check it"}}
    found = compare(Oracle(logits).predictor, dataset, TURNED, **options)
    assert found.settings["set_up"] == "check it"
    advice, checked, _ = found.verdict.sentence.split(". ", 2)
    assert ": use " in advice
    assert checked == "First check the set-up: check it"


def test_a_row_is_found_by_method_and_budget(comparison: Comparison) -> None:
    keys = ("d4", 8), ("d4", 4), ("cf", 4)
    found = [comparison.row(*key) for key in keys]
    assert [one and one.key for one in found] == [("d4", 8), None, None]


def test_a_narrower_comparison_does_not_take_the_place_of_a_fuller_one(
    comparison: Comparison, tmp_path: Path
) -> None:
    def place(new: Comparison) -> str:
        return place_for(tmp_path, new).relative_to(tmp_path).as_posix()

    narrower = replace(comparison, rows=comparison.rows[:-1])
    assert place(narrower) == "."  # there is none yet
    comparison.save(tmp_path / "comparison.json")
    assert place(comparison) == "."
    assert place(narrower) == "narrower"
    marked = {"model": {"fingerprint": "1"}, "data": {"fingerprint": "2"}}
    for settings in ({"model": marked["model"]}, {"data": marked["data"]}):  # others than before
        new = replace(narrower, settings={**comparison.settings, **settings})
        assert place(new) == "."
    assert place(replace(narrower, policy=Policy((SubPolicy(),)))) == "."
    assert place(replace(narrower, rows=(*narrower.rows, replace(narrower.rows[0], budget=9)))) == (
        "."
    )
    few = [row for row in comparison.rows if row.method != POLICY_METHOD or row.views < 4]
    more = replace(few[0], method="cf", label="random crops (CF)")
    assert place(replace(comparison, rows=(*few, more))) == "narrower"  # without the whole policy
    narrower.save(tmp_path / "comparison.json")
    assert place(comparison) == "."


def spoil(content: dict[str, Any], path: list[str | int], value: object) -> None:
    for key in path[:-1]:
        content = content[key]  # type: ignore[index]
    content[path[-1]] = value  # type: ignore[index]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["format"], "something else"),
        (["version"], 4),
        (["rows"], None),
        (["rows", 0], {}),
        (["rows", 1, "metrics"], []),
        (["rows", 1, "over_plain"], {"cll": {"estimate": 1}}),
        (["verdict"], "helps"),
        (["gained"], [{"index": 1}]),
        (["gallery"], ["x"]),
        (["settings"], 3),
        (["policy"], {}),
    ],
)
def test_what_is_not_a_comparison_is_refused_in_one_line(
    comparison: Comparison, tmp_path: Path, path: list[str | int], value: object
) -> None:
    content = json.loads(json.dumps(comparison.to_json()))
    spoil(content, path, value)
    file = tmp_path / "comparison.json"
    file.write_text(json.dumps(content))
    with pytest.raises(FileFormatError) as caught:
        load_comparison(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "null", "3", '{"format": "relook-comparison"}', "", "{"])
def test_other_files_are_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "comparison.json"
    file.write_text(text)
    refused(r"comparison\.json", load_comparison, file, error=FileFormatError)
