"""What a command works on: RUN, and the older names --run and --policy."""

from pathlib import Path

import pytest
import typer
from tests.support import refused
from typer.testing import CliRunner

from relook.cli.shared.option_groups import expand_options
from relook.cli.shared.sources import ModelOfRun, RunOrPolicy, refuse_to_overwrite
from relook.models import CallablePredictor
from relook.policy_search.run_record import RunRecord


def given(*arguments: str) -> RunOrPolicy:
    """Return what a command gets from a shell's arguments."""
    got: list[RunOrPolicy] = []

    @expand_options
    def command(*, source: RunOrPolicy) -> None:
        got.append(source)

    app = typer.Typer(add_completion=False)
    app.command()(command)
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return got[0]


@pytest.mark.parametrize("arguments", [["{}"], ["--run", "{}"], ["--policy", "{}"], ["-p", "{}"]])
def test_a_run_brings_its_policy(arguments: list[str], tmp_path: Path) -> None:
    source = given(*(one.format(tmp_path) for one in arguments))
    assert source.directory == tmp_path
    assert source.policy == tmp_path / "policy.json"


@pytest.mark.parametrize("arguments", [["{}"], ["--policy", "{}"], ["-p", "{}"]])
def test_a_policy_file_has_no_run(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    source = given(*(one.format(file) for one in arguments))
    assert source.directory is None
    assert source.search_record() is None
    assert source.policies == [source.policy] == [file]


@pytest.mark.parametrize("run", [["{}"], ["--run", "{}"]])
def test_a_policy_takes_the_place_of_the_runs(run: list[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    source = given(*(one.format(tmp_path) for one in run), "--policy", str(file))
    assert source.directory == tmp_path
    assert source.policy == file


def test_one_policy_is_one(tmp_path: Path) -> None:
    source = given("-p", "one.json", "--policy", "other.json")
    assert source.policies == [Path("one.json"), Path("other.json")]
    refused("expected one policy file, got 2", lambda: source.policy)
    refused("expected RUN, the directory of a search or a policy", lambda: given().policy)


def test_a_file_is_overwritten_only_by_force(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    refuse_to_overwrite(out, force=False)
    out.touch()
    refuse_to_overwrite(out, force=True)
    refused("exists: give another --out, or --force", refuse_to_overwrite, out, force=False)


@pytest.mark.parametrize("shape", [[3, 32, 32], ["a", 1, 2], [[], 1, 2], [3, 32], None])
def test_a_damaged_shape_in_a_record_says_nothing(shape: object) -> None:
    record = RunRecord({}, {}, {"shape": shape}, {})
    model = ModelOfRun({}, record, CallablePredictor(lambda images: images, outputs="logits"))
    assert model.size == ((32, 32) if shape == [3, 32, 32] else None)
