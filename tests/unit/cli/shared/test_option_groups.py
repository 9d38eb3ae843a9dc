"""Options in groups: typer sees each by itself, and the command gets them together."""

from dataclasses import dataclass, fields
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from tests.support import refused
from typer.testing import CliRunner

from relook.api.recorded import OF_IMAGES
from relook.cli.shared.option_groups import expand_options, option
from relook.cli.shared.options import NetworkOptions, ReadingOptions


@dataclass(frozen=True)
class Frame:
    width: int = option("How wide.", "--width", "-w", default=..., min=1)
    note: Annotated[str | None, option("What to say.")] = None


def app_of(command: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return app


def run(command: Any, *arguments: str) -> Any:
    return CliRunner().invoke(app_of(command), list(arguments))


def test_a_command_gets_its_group_built_from_the_options() -> None:
    got: list[tuple[str, Frame, bool]] = []

    @expand_options
    def command(
        *, name: str = "a", frame: Frame, loud: bool = option("Loudly.", default=False)
    ) -> None:
        got.append((name, frame, loud))

    assert run(command, "-w", "3", "--note", "hm", "--name", "b").exit_code == 0
    assert run(command, "--width", "4", "--loud").exit_code == 0
    assert got == [("b", Frame(3, "hm"), False), ("a", Frame(4), True)]
    with pytest.raises(TypeError, match="width"):
        Frame()


def test_the_options_stand_where_the_group_stood() -> None:
    @expand_options
    def command(*, name: str = "a", frame: Frame, loud: bool = False) -> None:
        """Say it."""

    assert list(signature(command).parameters) == ["name", "width", "note", "loud"]
    assert list(command.__annotations__) == ["name", "width", "note", "loud"]
    shown = typer.main.get_command(app_of(command))
    assert shown.help == "Say it."
    texts = [(one.opts, getattr(one, "help", None)) for one in shown.params]
    assert texts[1:3] == [(["--width", "-w"], "How wide."), (["--note"], "What to say.")]


def test_rules_of_a_field_hold() -> None:
    @expand_options
    def command(*, frame: Frame) -> None:
        raise AssertionError(frame)

    assert run(command).exit_code == 2  # --width must be given
    assert run(command, "--width", "0").exit_code == 2


def test_an_option_that_is_there_twice_is_refused() -> None:
    def command(*, width: int = 1, frame: Frame) -> None:
        raise AssertionError(width, frame)

    with pytest.raises(ValueError, match="duplicate parameter name: 'width'"):
        expand_options(command)


def test_the_record_of_a_run_keeps_all_that_says_how_images_are_read() -> None:
    assert tuple(field.name for field in fields(ReadingOptions)) == OF_IMAGES


def test_given_leaves_out_what_was_not_given_and_keeps_zero() -> None:
    assert ReadingOptions().given() == {}
    assert NetworkOptions().given() == {}
    reading = ReadingOptions(crop=0.0, channels=0, skip_bad=True, full_size="yes")
    assert reading.given() == {"crop": 0.0, "channels": 0, "skip_bad": True}
    network = NetworkOptions(mean="0", pretrained=True)
    assert network.given() == {"mean": "0", "pretrained": True}


@pytest.mark.parametrize(
    ("asked", "crops", "full"),
    [("auto", True, True), ("auto", False, False), ("yes", False, True), ("no", True, False)],
)
def test_full_size_is_settled_by_data_and_views(asked: str, crops: bool, full: bool) -> None:
    reading = ReadingOptions(size="8", cache=Path("kept"), full_size=asked)
    expected = {"size": "8", "cache": "kept", **({"full_size": True} if full else {})}
    assert reading.resolved("folder:images", crops=crops) == expected


def test_full_size_of_no_files_is_refused() -> None:
    asked = ReadingOptions(full_size="yes")
    refused("--full-size yes: expected image files", asked.resolved, "digits", crops=False)
