"""`relook select`: greedy selection alone, on predictions that were made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from relook.cli import options
from relook.cli.console import console, print_json, progress_bar, say
from relook.files import write_json_atomic
from relook.predictions_file import load_labels, load_predictions
from relook.selection import greedy_search


def select_command(
    predictions: Annotated[
        Path,
        typer.Option(
            help="Array \\[candidate, image, class]: an npy or npz file, or a Zarr directory.",
            show_default=False,
        ),
    ],
    labels: Annotated[
        Path,
        typer.Option(
            help="The images' classes: an npy or npz file, or text with one a line.",
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
    out: Annotated[Path | None, typer.Option(help="Write the result to this JSON file.")] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Pick, one by one, the candidates whose average predicts best: views, models, anything."""
    log_probs = load_predictions(predictions, kind)  # type: ignore[arg-type]  # checked there
    classes = load_labels(labels)
    with progress_bar("selecting", "steps") as bar:
        found = greedy_search(
            log_probs,
            classes,
            length,
            objective,
            balanced=balanced,
            progress=lambda done, total, _: bar(done, total),
        )
    result = {
        "picks": list(found.picks),
        "scores": list(found.scores),
        "temperatures": list(found.temperatures),
        "objective": objective,
        "candidates": log_probs.shape[0],
        "images": log_probs.shape[1],
    }
    if out is not None:
        write_json_atomic(out, result)
    if as_json:
        print_json(result)
        return
    table = Table("step", "candidate", f"{objective} so far", "temperature", box=SIMPLE_HEAD)
    for step, row in enumerate(
        zip(found.picks, found.scores, found.temperatures, strict=True), start=1
    ):
        table.add_row(str(step), str(row[0]), f"{row[1]:.5f}", f"{row[2]:.3f}")
    console.print(table)
    say("The scores are those of the images searched on: check the result on other images.")
