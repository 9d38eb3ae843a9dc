"""The table of verbs agrees with the commands that it loads."""

import inspect
import re
import sys
from types import ModuleType

import pytest
from typer.testing import CliRunner

from relook.cli import verbs
from relook.cli.verbs import MOST_IN_SHORT_HELP, VERBS, Verb, listing, load


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_a_verb_is_listed_with_the_first_line_of_its_own_help(verb: Verb) -> None:
    own = inspect.getdoc(verb.function)
    assert own is not None
    assert own.splitlines()[0] == verb.help


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_a_verb_loads_as_the_command_of_its_name(verb: Verb) -> None:
    assert load(verb).name == verb.word


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_help_shows_few_options_and_help_all_shows_all(verb: Verb) -> None:
    command = load(verb)
    params = [one for one in command.params if not getattr(one, "hidden", False)]
    every = {max(one.opts, key=len) for one in params if one.param_type_name == "option"}
    needed = {max(one.opts, key=len) for one in params if one.required} & every
    short, whole = (_listed_by(verb, asked) for asked in ("--help", "--help-all"))
    assert whole[0] == every | {"--help"}
    assert needed <= short[0] <= whole[0]
    assert len(short[0] - {"--help"}) <= MOST_IN_SHORT_HELP
    assert not whole[1].startswith("… more")
    if len(params) <= MOST_IN_SHORT_HELP:
        assert short == whole
    else:
        assert short[1].startswith("… more")
        assert short[1].endswith(f": relook {verb.name} --help-all")


@pytest.mark.parametrize(
    ("verb", "listed"), [("search", ("--mean", "--std", "--outputs")), ("export", ())]
)
def test_short_help_names_what_says_how_a_model_is_fed(verb: str, listed: tuple[str, ...]) -> None:
    options, last = _listed_by(VERBS[verb], "--help")
    every = ("--size", "--mean", "--std", "--outputs")
    assert options.intersection(every) == set(listed)
    others = ", ".join(one for one in every if one not in listed)
    assert last == f"… more, such as {others}: relook {verb} --help-all"


def test_short_help_has_the_option_that_asks_for_a_time() -> None:
    for verb in ("compare", "export"):
        assert "--latency" in _listed_by(VERBS[verb], "--help")[0]


def _listed_by(verb: Verb, asked: str) -> tuple[set[str], str]:
    """Return the options that a help lists, and its last line."""
    shown = CliRunner().invoke(listing(), [*verb.name.split(), asked], env={"COLUMNS": "300"})
    assert shown.exit_code == 0
    lines = [line.strip() for line in shown.output.splitlines() if line.strip()]
    return set(re.findall(r"^│ [* ]*(--[a-z-]+)", shown.output, re.MULTILINE)), lines[-1]


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


def test_images_are_given_as_data() -> None:
    done = CliRunner().invoke(listing(), ["predict", "--images", "photos"])
    assert str(done.exception) == "relook predict takes its images as --data, got --images"
