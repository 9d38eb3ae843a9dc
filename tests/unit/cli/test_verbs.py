"""The table of verbs agrees with the commands that it loads."""

import inspect

import pytest

from relook.cli.verbs import VERBS, Verb, load


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_a_verb_is_listed_with_the_first_line_of_its_own_help(verb: Verb) -> None:
    own = inspect.getdoc(verb.target)
    assert own is not None
    assert own.splitlines()[0] == verb.help


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_a_verb_loads_as_the_command_of_its_name(verb: Verb) -> None:
    assert load(verb).name == verb.word
