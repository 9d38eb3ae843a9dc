"""`relook policy select`: greedy selection alone, on predictions that were made elsewhere."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from relook.cli.shared import options
from relook.cli.shared.console import console, print_json, progress_bar, resumable, say
from relook.evaluation.cross_validation import prefix_temperatures
from relook.foundation import wording
from relook.io.files import write_json_atomic
from relook.predictions.external import file_identity, load_labels, open_predictions
from relook.selection import SearchResult
from relook.selection.objectives import class_weights
from relook.selection.plan import SelectionPlan
from relook.selection.record import Selection, plan_of, select, selection_identity

GO_ON = "Run the same command again to go on."


def select_command(
    predictions: Annotated[
        Path,
        typer.Option(
            help="Array \\[candidate, image, class]: an npy or npz file, or a Zarr directory. An "
            "npy file of log-probabilities may be larger than the memory.",
            show_default=False,
        ),
    ],
    labels: Annotated[
        Path,
        typer.Option(
            help="The images' classes: npy, npz or Zarr, or text (.txt, .csv), one per line.",
            show_default=False,
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(help="What the array holds: log_probs or probabilities.", show_default=False),
    ],
    length: Annotated[int, typer.Option(help="How many to pick, repeats counted.", min=1)] = 20,
    objective: Annotated[
        str, typer.Option(help="What to maximise: cll, ll, accuracy, brier or ece.")
    ] = "cll",
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Give each class the same weight.")
    ] = False,
    memory: options.MemoryOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the result to this JSON file. If interrupted, the same command goes on "
            "from FILE.partial next to it.",
            metavar="FILE",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would need; select nothing.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Pick, one by one, the candidates whose average predicts best: views, models, anything."""
    limit = options.bytes_of(memory)
    source = open_predictions(predictions, kind)  # type: ignore[arg-type]  # checked there
    selection = Selection(source, load_labels(labels), length, objective, balanced)
    if dry_run:
        _print_needs(plan_of(selection, limit), source.shape, as_json)
        return
    partial = None if out is None else out.with_name(f"{out.name}.partial")
    how = "With --out FILE it can be continued." if out is None else GO_ON
    with resumable(how), progress_bar("selecting", "steps", objective) as bar:
        selected = select(
            selection,
            plan_of(selection, limit, partial),
            identity=selection_identity(selection, [kind, *file_identity(predictions)]),
            path=partial,
            progress=bar,
            log=say,
        )
    weights = class_weights(selection.labels) if balanced else None
    entries = (selected.log_probs[pick] for pick in selected.result.picks)
    shrunk = prefix_temperatures(entries, length, selection.labels, weights)
    found = replace(selected.result, temperatures=shrunk)
    result = {
        "picks": list(found.picks),
        "scores": list(found.scores),
        "temperatures": list(found.temperatures),
        **({} if found.view_temperature == 1 else {"view_temperature": found.view_temperature}),
        "objective": objective,
        "candidates": source.shape[0],
        "images": source.shape[1],
    }
    if out is not None and partial is not None:
        write_json_atomic(out, result)
        partial.unlink(missing_ok=True)
    if as_json:
        print_json(result)
        return
    _print_steps(found, objective)


def _print_needs(plan: SelectionPlan, shape: tuple[int, int, int], as_json: bool) -> None:
    if as_json:
        print_json(asdict(plan))
        return
    candidates, images, classes = shape
    typer.echo(f"{candidates:,} candidates × {images:,} images × {classes:,} classes: {plan}")


def _print_steps(found: SearchResult, objective: str) -> None:
    table = Table("step", "candidate", f"{objective} so far", "temperature", box=SIMPLE_HEAD)
    for step, row in enumerate(
        zip(found.picks, found.scores, found.temperatures, strict=True), start=1
    ):
        table.add_row(str(step), str(row[0]), wording.plain(row[1], 5), f"{row[2]:.3f}")
    console.print(table)
    if found.view_temperature != 1:
        console.print(f"view temperature {found.view_temperature:.4g}")
    say("The scores are those of the images searched on: check the result on other images.")
