"""The table of verbs agrees with the commands that it loads."""

import inspect
import sys
from types import ModuleType

import pytest
from typer.testing import CliRunner

from relook.cli import verbs
from relook.cli.verbs import VERBS, Verb, listing, load


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_a_verb_is_listed_with_the_first_line_of_its_own_help(verb: Verb) -> None:
    own = inspect.getdoc(verb.target)
    assert own is not None
    assert own.splitlines()[0] == verb.help


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_a_verb_loads_as_the_command_of_its_name(verb: Verb) -> None:
    assert load(verb).name == verb.word


def test_a_new_verb_is_one_file_and_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def greet_command(name: str) -> None:
        """Greet someone."""
        print(f"hello {name}")

    module = ModuleType("relook.cli.study.greet")
    module.greet_command = greet_command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = Verb("study greet", verbs.MORE, "Greet someone.")
    monkeypatch.setattr(verbs, "VERBS", {**VERBS, row.name: row})
    app = listing()
    assert "Greet someone." in CliRunner().invoke(app, ["study", "--help"]).output
    assert CliRunner().invoke(app, ["study", "greet", "you"]).output == "hello you\n"
