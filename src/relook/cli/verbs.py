"""The verbs. Each is imported when it is called, so `relook --help` does not wait for torch.

`relook study train` is the function `train_command` in `cli/study/train.py`: a new verb is one
file and one row.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from relook.errors import RelookError
from relook.foundation.registry import by_name

LEARN = "Learn a policy"
EVALUATE = "Evaluate it"
DEPLOY = "Use it"
MORE = "More"

MOST_IN_SHORT_HELP = 12
"""A command with more options than this lists only those without a panel, unless `--help-all`."""

_INPUT_OPTIONS = ("--size", "--mean", "--std", "--outputs")  # if wrong, so are the predictions

GROUPS = {
    "policy": "Import or freeze policy files, or select from predictions made elsewhere.",
    "study": "The paper's studies: train, corrupt, measure, and write tables and figures.",
}
"""The first words of two-word verbs, with one line of help each."""

MOVED = {
    "select": "policy select",
    "reproduce": "study run",
    **{
        name: f"study {name}"
        for name in (
            *("train", "corrupt", "robustness", "transfer"),
            *("ensembles", "objectives", "magnitudes", "statistics"),
        )
    },
}
"""Former one-word verbs, with their present names."""


@dataclass(frozen=True)
class Verb:
    """A command: its words, the panel of `relook --help` that lists it, and one line of help."""

    name: str
    panel: str
    help: str

    @property
    def group(self) -> str:
        """The first of two words; empty for a one-word verb."""
        return self.name.rpartition(" ")[0]

    @property
    def word(self) -> str:
        """The last word, by which its group lists it."""
        return self.name.rpartition(" ")[2]

    @property
    def function(self) -> Any:
        """The function that the command runs."""
        word = self.word.replace("-", "_")
        module = self.group if self.group == "policy" else f"{self.group}.{word}".strip(".")
        return getattr(import_module(f"relook.cli.{module}"), f"{word}_command")


_HELP: Mapping[str, Mapping[str, str]] = {
    LEARN: {
        "demo": "Train a small network on handwritten digits, search, compare, and write the "
        "report.",
        "search": "Learn which views to average, and show on held-out images whether they help.",
    },
    EVALUATE: {
        "compare": "Compare a policy with every baseline on held-out images, and say whether it "
        "helps.",
        "report": "Write a run's report as one self-contained HTML file, and print its path.",
        "show": "Show the transforms, a policy or a run; --image or --out draw a picture instead.",
        "suspects": "List images whose labels may be wrong, the least probable labels first.",
    },
    DEPLOY: {
        "predict": "Predict unlabelled images with a policy: top classes, entropy, disagreement "
        "of views.",
        "export": "Export views, network, averaging and temperature as one ONNX file, and verify "
        "it.",
        "early-exit": "Learn how many views each image needs, so that easy images get few and hard "
        "ones more.",
        "calibrate": "Fit a policy's temperatures on labelled images, for other data or another "
        "model.",
        "distil": "Distil a policy into the network: part of the gain for the cost of a single "
        "pass.",
        "conformal": "Make prediction sets that contain the true class as often as you ask.",
    },
    MORE: {
        "doctor": "Check what is installed and what works here, and how to install the rest.",
        "policy import": "Convert a published GPS policy to a relook policy file.",
        "policy freeze": "Draw signs, positions and flips once for all images, as exported models "
        "do.",
        "policy select": "Greedily pick the candidates whose average predicts best: views, models "
        "or others.",
        "study run": "Run a whole study from one file, and write the paper's tables and figures.",
        "study train": "Train a network with or without the paper's RandAugment; resumable.",
        "study corrupt": "Write corrupted versions of labelled images, for measuring robustness.",
        "study robustness": "Measure how errors grow under common corruptions, with and without "
        "the policy.",
        "study transfer": "Apply policies to models and data other than those they were found on.",
        "study ensembles": "Search for an ensemble in three ways, and score them alongside the "
        "usual baselines.",
        "study objectives": "Search the same pool by accuracy, LL and cLL, and score the policies "
        "found.",
        "study magnitudes": "Score test-time RandAugment at each magnitude, and find the best by "
        "each metric.",
        "study statistics": "Compare groups of policies: how often and how strongly they use each "
        "transform.",
    },
}
"""One line of help for each verb, by the panel of `relook --help` that lists it."""

VERBS: Mapping[str, Verb] = by_name(
    Verb(name, panel, text) for panel, verbs in _HELP.items() for name, text in verbs.items()
)
"""All verbs, in the order of `relook --help`."""


class ShortHelpCommand(TyperCommand):
    """Lists in `--help` only required options and those without a panel; `--help-all`: all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; `--help-all` takes precedence, like `--help`."""
        if "--help-all" in args:
            super().format_help(ctx, ctx.make_formatter())
            ctx.exit()
        known = {name for param in self.params for name in param.opts}
        unknown = {arg.partition("=")[0] for arg in args} - known
        if "--images" in unknown and "--data" in known:
            raise RelookError(f"{ctx.command_path} takes its images as --data, got --images")
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, without the less common options if there are many."""
        shown = copy(self)
        listed: list[Any] = [param for param in self.params if not getattr(param, "hidden", False)]
        if len(listed) > MOST_IN_SHORT_HELP:
            shown.params = [p for p in listed if p.required or p.rich_help_panel is None]
            hidden = {opt for param in listed if param not in shown.params for opt in param.opts}
            examples = ", ".join(name for name in _INPUT_OPTIONS if name in hidden)
            such_as = f", such as {examples}" if examples else ""
            shown.epilog = f"… more{such_as}: {ctx.command_path} --help-all"
        super(ShortHelpCommand, shown).format_help(ctx, formatter)


def load(verb: Verb) -> Any:
    """Import the verb's module and return its command."""
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command(verb.word, cls=ShortHelpCommand)(verb.function)
    return get_command(app)


class VerbGroup(TyperGroup):
    """Lists the verbs with a line of help each, and loads the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the called verb's name, its command and the remaining arguments."""
        group = self.name if self.name in GROUPS else ""
        if not group and args and args[0] in MOVED:
            raise RelookError(f"relook {args[0]} is now  relook {MOVED[args[0]]}")
        word, command, rest = super().resolve_command(ctx, args)
        verb = VERBS.get(f"{group} {word}".strip())
        return word, command if verb is None else load(verb), rest


def listing(group: str = "", text: str = "") -> typer.Typer:
    """Return an app that lists the verbs of a group; without a group, all verbs and groups."""
    app = typer.Typer(
        name=group or "relook",
        cls=VerbGroup,
        help=text,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for verb in VERBS.values():
        if verb.group == group:
            panel = None if group else verb.panel
            app.command(verb.word, help=verb.help, rich_help_panel=panel)(_placeholder)
    for name, help_line in () if group else GROUPS.items():
        app.add_typer(listing(name, help_line), rich_help_panel=MORE)
    return app


def _placeholder() -> None:
    """Stand for a verb in the list; VerbGroup runs the verb's own command instead."""
