"""The verbs, each loaded when it is called: `relook --help` does not wait for torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from relook.foundation.registry import by_name

LEARN = "Learn a policy"
JUDGE = "See what it is worth"
DEPLOY = "Use it"


@dataclass(frozen=True)
class Verb:
    """A command: where its function (or its own Typer) is, and one line of help."""

    name: str
    target: str
    panel: str
    help: str


VERBS: Mapping[str, Verb] = by_name(
    (
        Verb(
            "demo",
            "demo:demo_command",
            LEARN,
            "Train a small network on handwritten digits, search, compare, and write the report.",
        ),
        Verb(
            "search",
            "search:search_command",
            LEARN,
            "Learn which views to average, and show on held-out images whether they help.",
        ),
        Verb(
            "train",
            "train:train_command",
            LEARN,
            "Train a network, with the paper's RandAugment or without; can be interrupted.",
        ),
        Verb(
            "select",
            "select:select_command",
            LEARN,
            "Pick, one by one, the candidates whose average predicts best: "
            "views, models, anything.",
        ),
        Verb(
            "compare",
            "compare:compare_command",
            JUDGE,
            "Compare a policy with every baseline on held-out images, and say whether it helps.",
        ),
        Verb(
            "report",
            "report:report_command",
            JUDGE,
            "Write a run's report, one HTML file that needs no network; prints its path.",
        ),
        Verb(
            "robustness",
            "robustness:robustness_command",
            JUDGE,
            "Measure how errors grow under common corruptions, with and without the policy.",
        ),
        Verb(
            "corrupt",
            "corrupt:corrupt_command",
            JUDGE,
            "Write corrupted versions of labelled images, to measure robustness on.",
        ),
        Verb(
            "transfer",
            "transfer:transfer_command",
            JUDGE,
            "Apply policies to other models and data than they were found on.",
        ),
        Verb(
            "ensembles",
            "ensembles:ensembles_command",
            JUDGE,
            "Search for an ensemble in three ways, and score them beside the usual baselines.",
        ),
        Verb(
            "objectives",
            "objectives:objectives_command",
            JUDGE,
            "Search the same pool with accuracy, LL and cLL as the objective, and score what is "
            "found.",
        ),
        Verb(
            "magnitudes",
            "magnitudes:magnitudes_command",
            JUDGE,
            "Score RandAugment at test time for rising magnitudes, and find the best by each "
            "metric.",
        ),
        Verb(
            "statistics",
            "statistics:statistics_command",
            JUDGE,
            "Count the transforms of policies and their mean magnitudes, in groups side by side.",
        ),
        Verb(
            "reproduce",
            "reproduce:reproduce_command",
            JUDGE,
            "Run a whole study from one file, and write the paper's tables and figures.",
        ),
        Verb(
            "show",
            "show:show_command",
            JUDGE,
            "Show the transforms, a policy or a run; --image or --out also draw a picture.",
        ),
        Verb(
            "predict",
            "predict:predict_command",
            DEPLOY,
            "Predict images without labels with a policy: top classes, entropy, "
            "views' disagreement.",
        ),
        Verb(
            "export",
            "export:export_command",
            DEPLOY,
            "Write views, network, average and temperature as one ONNX file, checked on images.",
        ),
        Verb(
            "early-exit",
            "early_exit:early_exit_command",
            DEPLOY,
            "Learn how many views each image needs, so that easy images get few and hard ones "
            "more.",
        ),
        Verb(
            "calibrate",
            "calibrate:calibrate_command",
            DEPLOY,
            "Fit a policy's temperatures on labelled images: other data, another model, "
            "a frozen policy.",
        ),
        Verb("policy", "policy:app", DEPLOY, "Policy files."),
    )
)
"""All verbs, in the order of `relook --help`."""


def load(verb: Verb) -> Any:
    """Import the verb's module and return its command."""
    module, name = verb.target.split(":")
    target = getattr(import_module(f"relook.cli.{module}"), name)
    if not isinstance(target, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command(verb.name)(target)
        target = alone
    return get_command(target)


class VerbGroup(TyperGroup):
    """Lists the verbs by their line of help, and loads the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the called verb's name, its command and the arguments left."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else load(VERBS[name]), rest
