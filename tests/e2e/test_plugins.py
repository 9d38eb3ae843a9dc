"""A package outside relook adds to every table, by its entry point alone."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.faults import Ended, run

from relook.foundation import registry

PACKAGE = Path(__file__).parents[1] / "plugin_package" / "toy_relook.py"
SEARCH = ("search", "--model", "toynet:3", "--data", "toyset:60", "--pool-size", "6")


def installed(directory: Path, target: str = "toy_relook:register") -> Path:
    """Write the package as an installer would."""
    shutil.copy(PACKAGE, directory)
    about = directory / "toy_relook-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-relook\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[relook.plugins]\ntoy = {target}\n")
    return directory


def python(*arguments: object, site: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


@pytest.fixture
def relook(tmp_path: Path) -> Callable[..., Ended]:
    """Run a command in a child of its own, in which no plug-in has been looked for."""

    def command(*arguments: object, site: Path | None) -> Ended:
        def installed() -> None:
            registry._plugins_loaded = False
            sys.path[:0] = [str(site)] if site else []

        return run(tmp_path / "log", *arguments, before=installed)

    return command


def said(done: Ended) -> str:
    assert done.code == 0, done.lines
    return "\n".join(done.lines)


def refused(done: Ended) -> str:
    assert done.code == 2, done.lines
    assert not [line for line in done.lines if "Traceback" in line]
    return done.last


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site").mkdir()
    return installed(tmp_path / "site")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "dim.toml"
    path.write_text(
        'transforms = ["dim"]\nimage_size = 12\n'
        "groups = [{ count = 6, length = 1, magnitude = 60 }]\n"
    )
    return path


def test_search_and_compare_use_all_that_a_package_brings(
    relook: Callable[..., Ended], site: Path, recipe: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    options = ("--recipe", recipe, "--objective", "mean_right", "--length", 3, "--no-plain")
    said(relook(*SEARCH, *options, "--out", run, site=site))
    content = json.loads((run / "policy.json").read_text())
    names = [sub["steps"][0]["transform"] for sub in content["subpolicies"]]
    assert names == ["toy_relook:dim"] * 3
    table = said(relook("compare", run, "--methods", "corners", "--budgets", "2", site=site))
    assert "corners" in table
    report = relook("show", run, site=site)
    assert "dim" in said(report)
    without = relook("show", run / "policy.json", site=None)
    assert "expected the transform 'dim' of toy_relook, which is not registered" in refused(without)
    of_run = refused(relook("show", run, site=None))  # its comparison has the policy too
    assert "import toy_relook first; the command line needs a package" in of_run
    assert "(docs/howto/extend.md)" in of_run
    assert "again" not in of_run


def test_listings_and_errors_name_what_a_package_brings(
    relook: Callable[..., Ended], site: Path, recipe: Path
) -> None:
    shown = json.loads(said(relook("show", "transforms", "--json", site=site)))
    assert shown["transforms"]["dim"]["unit"] == "grey levels"
    assert "corners" in python("-m", "relook", "compare", "--help", site=site).stdout
    wrong = ("search", "--model", "toyne:3", "--data", "toyset:60")
    assert "did you mean 'toynet'" in refused(relook(*wrong, site=site))
    wrong = ("search", "--model", "toynet:3", "--data", "toyset:")
    assert "expected a data set as toyset:IMAGES" in refused(relook(*wrong, site=site))
    without = relook(*SEARCH, "--recipe", recipe, site=None)
    assert "the transform 'dim' is not registered" in refused(without)


def test_a_broken_plug_in_is_one_line(tmp_path: Path) -> None:
    site = installed(tmp_path, target="toy_relook:no_such_thing")
    done = python("-m", "relook", "show", "transforms", site=site)
    assert "rotate" in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if "plug-in" in line]
    assert "the plug-in 'toy' (toy_relook:no_such_thing) cannot be loaded: AttributeError" in line
    assert "Warning" not in done.stderr


def test_plug_ins_are_loaded_only_when_they_are_needed(site: Path) -> None:
    program = (
        "import sys; from relook import TRANSFORMS, Step; Step('rotate', 3); "
        "assert 'toy_relook' not in sys.modules; Step('dim', 3); "
        "import relook.testing as t; t.check_transform('dim'); t.check_objective('mean_right'); "
        "t.check_baseline('corners'); t.check_data_source('toyset:9'); import torch; "
        "images = torch.zeros((4, 1, 12, 12), dtype=torch.uint8); "
        "t.check_model_source('toynet:3', images)"
    )
    python("-c", program, site=site)
