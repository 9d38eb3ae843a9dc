"""The verbs, each loaded when it is called: `relook --help` does not wait for torch.

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
EVALUATE = "See what it is worth"
DEPLOY = "Use it"
MORE = "More"

FEW = 12
"""A command with more options than this shows those of its first panel, unless asked for all."""

_OF_MODEL = ("--size", "--mean", "--std", "--outputs")  # wrong predictions if these are wrong

GROUPS = {
    "policy": "Policies as files: import, freeze, or select from predictions made elsewhere.",
    "study": "The paper's studies: train, corrupt, measure, and write tables and figures.",
}
"""Verbs of two words, by their first, with one line of help."""

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
"""Verbs that had one word, and where they are now."""


@dataclass(frozen=True)
class Verb:
    """A command: its words, the panel of `relook --help` that lists it, and one line of help."""

    name: str
    panel: str
    help: str

    @property
    def group(self) -> str:
        """The first word of two; empty for a verb of one."""
        return self.name.rpartition(" ")[0]

    @property
    def word(self) -> str:
        """The last word, by which its group lists it."""
        return self.name.rpartition(" ")[2]

    @property
    def target(self) -> Any:
        """The function that the command runs."""
        own = self.word.replace("-", "_")
        file = self.group if self.group == "policy" else f"{self.group}.{own}".strip(".")
        return getattr(import_module(f"relook.cli.{file}"), f"{own}_command")


_HELP: Mapping[str, Mapping[str, str]] = {
    LEARN: {
        "demo": "Train a small network on handwritten digits, search, compare, and write the "
        "report.",
        "search": "Learn which views to average, and show on held-out images whether they help.",
    },
    EVALUATE: {
        "compare": "Compare a policy with every baseline on held-out images, and say whether it "
        "helps.",
        "report": "Write a run's report, one HTML file that needs no network; prints its path.",
        "show": "Show the transforms, a policy or a run; --image or --out also draw a picture.",
        "suspects": "List images whose label the policy's average contradicts, least probable "
        "label first.",
    },
    DEPLOY: {
        "predict": "Predict images without labels with a policy: top classes, entropy, views' "
        "disagreement.",
        "export": "Write views, network, average and temperature as one ONNX file, checked on "
        "images.",
        "early-exit": "Learn how many views each image needs, so that easy images get few and hard "
        "ones more.",
        "calibrate": "Fit a policy's temperatures on labelled images: other data, another model, a "
        "frozen policy.",
        "distil": "Train the network to predict as the policy's views together: part of their gain "
        "for one pass.",
        "conformal": "Make sets of classes that contain the true class as often as you ask.",
    },
    MORE: {
        "doctor": "Say what is installed, what of it works here, and the one command that adds the "
        "rest.",
        "policy import": "Turn a published GPS policy into a relook policy file.",
        "policy freeze": "Draw signs, places and flips once, for all images; what exported models "
        "run.",
        "policy select": "Pick, one by one, the candidates whose average predicts best: views, "
        "models, anything.",
        "study run": "Run a whole study from one file, and write the paper's tables and figures.",
        "study train": "Train a network, with the paper's RandAugment or without; can be "
        "interrupted.",
        "study corrupt": "Write corrupted versions of labelled images, to measure robustness on.",
        "study robustness": "Measure how errors grow under common corruptions, with and without "
        "the policy.",
        "study transfer": "Apply policies to other models and data than they were found on.",
        "study ensembles": "Search for an ensemble in three ways, and score them alongside the "
        "usual baselines.",
        "study objectives": "Search the same pool with accuracy, LL and cLL as the objective, and "
        "score what is found.",
        "study magnitudes": "Score RandAugment at test time for rising magnitudes, and find the "
        "best by each metric.",
        "study statistics": "Count the transforms of policies and their mean magnitudes, in groups "
        "side by side.",
    },
}
"""One line of help for each verb, by the panel of `relook --help` that lists it."""

VERBS: Mapping[str, Verb] = by_name(
    Verb(name, panel, text) for panel, verbs in _HELP.items() for name, text in verbs.items()
)
"""All verbs, in the order of `relook --help`."""


class ShortHelpCommand(TyperCommand):
    """Shows what must be given and what has no panel of its own; with `--help-all`, all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; `--help-all` comes before anything else, like `--help`."""
        if "--help-all" in args:
            super().format_help(ctx, ctx.make_formatter())
            ctx.exit()
        known = {name for param in self.params for name in param.opts}
        asked = {arg.partition("=")[0] for arg in args} - known
        if "--images" in asked and "--data" in known:
            raise RelookError(f"{ctx.command_path} takes its images as --data, got --images")
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, without the finer options where there are many."""
        shown = copy(self)
        listed: list[Any] = [param for param in self.params if not getattr(param, "hidden", False)]
        if len(listed) > FEW:
            shown.params = [p for p in listed if p.required or p.rich_help_panel is None]
            hidden = {opt for param in listed if param not in shown.params for opt in param.opts}
            named = ", ".join(name for name in _OF_MODEL if name in hidden)
            such = f", such as {named}" if named else ""
            shown.epilog = f"… more{such}: {ctx.command_path} --help-all"
        super(ShortHelpCommand, shown).format_help(ctx, formatter)


def load(verb: Verb) -> Any:
    """Import the verb's module and return its command."""
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.command(verb.word, cls=ShortHelpCommand)(verb.target)
    return get_command(alone)


class VerbGroup(TyperGroup):
    """Lists the verbs by their line of help, and loads the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the called verb's name, its command and the arguments left."""
        group = self.name if self.name in GROUPS else ""
        if not group and args and args[0] in MOVED:
            raise RelookError(f"relook {args[0]} is now  relook {MOVED[args[0]]}")
        word, command, rest = super().resolve_command(ctx, args)
        verb = VERBS.get(f"{group} {word}".strip())
        return word, command if verb is None else load(verb), rest


def listing(group: str = "", text: str = "") -> typer.Typer:
    """Return the verbs of a group, each with its line of help; at the top, the groups too."""
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
            app.command(verb.word, help=verb.help, rich_help_panel=panel)(_listed)
    for name, about in () if group else GROUPS.items():
        app.add_typer(listing(name, about), rich_help_panel=MORE)
    return app


def _listed() -> None:
    """Stand in the list of verbs; VerbGroup runs the verb's own command instead."""
