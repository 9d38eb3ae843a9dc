"""What the README and the pages show is what runs."""

import re
from pathlib import Path
from typing import Any

import pytest

import relook as package
from relook.cli.verbs import VERBS
from relook.policy.recipes import load_recipe
from relook.policy_search.job import SearchJob

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.filterwarnings("ignore:the model takes")
def test_the_readmes_example_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # As on a slow machine, where a search has fewer candidates and images.
    monkeypatch.setattr(SearchJob, "seconds_a_pass", lambda job: 0.05)
    (example,) = blocks(ROOT / "README.md", "python")
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)  # noqa: S102
    sentence = " ".join(names["found"].comparison.verdict.sentence.split())
    assert sentence in " ".join(capsys.readouterr().out.split())
    assert names["probabilities"].shape == (5, 10)
    assert package.load("runs/mine").comparison.budgets == (1, 5, 20)
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("number", [0, 1])
def test_the_recipes_on_the_page_are_recipes(number: int, tmp_path: Path) -> None:
    path = tmp_path / "page.toml"
    path.write_text(blocks(ROOT / "docs" / "howto" / "recipes.md", "toml")[number])
    assert len(package.sample_pool(load_recipe(path), 20)) == 20


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in VERBS:
        assert f"`relook {name}`" in text
