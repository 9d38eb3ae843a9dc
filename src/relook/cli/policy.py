"""`relook policy`: import and freeze policy files, and select from predictions."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from relook.cli.shared import options
from relook.cli.shared.console import (
    RESUME_HINT,
    console,
    print_json,
    print_text,
    progress_bar,
    resumable,
    say,
)
from relook.cli.shared.option_groups import FieldsOf, argument, expand_options, option
from relook.cli.shared.sources import refuse_to_overwrite
from relook.errors import RelookError
from relook.evaluation.cross_validation import prefix_temperatures
from relook.foundation import wording
from relook.io.files import one_line, write_json_atomic
from relook.policy import Policy
from relook.policy.file import policy_to_json
from relook.policy_search.settings import SearchSettings
from relook.predictions.external import file_identity, load_labels, open_predictions
from relook.selection import SearchResult
from relook.selection.objectives import class_weights
from relook.selection.plan import SelectionPlan
from relook.selection.record import Selection, plan_of, select, selection_identity

_OutOption = Annotated[Path, option("Where to write the policy.")]


@expand_options
def import_command(
    *,
    file: Path = argument("A policy that the GPS authors published: .npz or .npy.", default=...),
    out: _OutOption = Path("policy.json"),
    force: options.ForceOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Convert a published GPS policy to a relook policy file."""
    refuse_to_overwrite(out, force)
    _write(Policy.from_reference(file), out, as_json)


@expand_options
def freeze_command(
    *,
    file: Path = argument("A policy of fresh draws.", default=...),
    out: _OutOption = Path("frozen.json"),
    seed: options.SeedOption = 0,
    force: options.ForceOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Draw signs, positions and flips once for all images, as exported models do.

    The temperatures belong to other views and are dropped: fit new ones with relook calibrate.
    """
    refuse_to_overwrite(out, force)
    policy = Policy.load(file)
    if policy.is_fixed:
        raise RelookError(
            f"{one_line(str(file))}: expected a policy of fresh draws, got fixed ones"
        )
    _write(policy.freeze(seed), out, as_json)
    say("it has no temperatures: fit them with  relook calibrate")


def _write(policy: Policy, out: Path, as_json: bool) -> None:
    """Write a policy, and describe it in one line: `9 sub-policies (7 distinct), fixed …`."""
    policy.save(out)
    if as_json:
        print_json({"out": str(out), "policy": policy_to_json(policy)})
        return
    entries = wording.count(len(policy), "sub-policy", "sub-policies")
    kind = "fixed draws" if policy.is_fixed else "fresh draws"
    recipe = "" if policy.recipe is None else f", recipe {policy.recipe}"
    average = wording.at_view_temperature(policy.view_temperature)
    print_text(
        f"{entries} ({len(policy.counts())} distinct), {kind}{recipe}{average}, written to "
        f"{one_line(str(out))}"
    )


@expand_options
def select_command(
    *,
    predictions: Path = option(
        "Array \\[candidate, image, class]: an npy or npz file, or a Zarr directory. An npy file "
        "of log-probabilities may be larger than memory.",
        default=...,
    ),
    labels: Path = option(
        "The images' classes: npy, npz or Zarr, or text (.txt, .csv), one per line.", default=...
    ),
    kind: str = option("What the array holds: log_probs or probabilities.", default=...),
    length: int = option("Number of picks, counting repeats.", default=20, min=1),
    objective: str = option(
        "The objective to optimise: cll, ll, accuracy, brier or ece.", default="cll"
    ),
    balanced: bool = option("Weight all classes equally.", "--balanced", default=False),
    limits: Annotated[dict[str, Any], FieldsOf(SearchSettings, ("memory",))],
    out: Path | None = option(
        "Write the result to this JSON file. If interrupted, the same command resumes from "
        "FILE.partial next to it.",
        metavar="FILE",
    ),
    dry_run: bool = option("Print the memory needed; select nothing.", "--dry-run", default=False),
    as_json: options.JsonOption = False,
) -> None:
    """Greedily pick the candidates whose average predicts best: views, models or others."""
    source = open_predictions(predictions, kind)  # type: ignore[arg-type]  # checked there
    selection = Selection(source, load_labels(labels), length, objective, balanced)
    if dry_run:
        _print_needs(plan_of(selection, limits["memory"]), source.shape, as_json)
        return
    partial = None if out is None else out.with_name(f"{out.name}.partial")
    hint = "Use --out FILE to be able to resume." if out is None else RESUME_HINT
    with resumable(hint), progress_bar("selecting", "steps", objective) as bar:
        selected = select(
            selection,
            plan_of(selection, limits["memory"], partial),
            identity=selection_identity(selection, [kind, *file_identity(predictions)]),
            path=partial,
            progress=bar,
            log=say,
        )
    weights = class_weights(selection.labels) if balanced else None
    entries = (selected.log_probs[pick] for pick in selected.result.picks)
    shrunk = prefix_temperatures(entries, length, selection.labels, weights)
    result = replace(selected.result, temperatures=shrunk)
    content = {
        "picks": list(result.picks),
        "scores": list(result.scores),
        "temperatures": list(result.temperatures),
        **({} if result.view_temperature == 1 else {"view_temperature": result.view_temperature}),
        "objective": objective,
        "candidates": source.shape[0],
        "images": source.shape[1],
    }
    if out is not None and partial is not None:
        write_json_atomic(out, content)
        partial.unlink(missing_ok=True)
    if as_json:
        print_json(content)
        return
    _print_steps(result, objective)


def _print_needs(plan: SelectionPlan, shape: tuple[int, int, int], as_json: bool) -> None:
    if as_json:
        print_json(asdict(plan))
        return
    candidates, images, classes = shape
    print_text(f"{candidates:,} candidates × {images:,} images × {classes:,} classes: {plan}")


def _print_steps(result: SearchResult, objective: str) -> None:
    table = Table("step", "candidate", f"{objective} so far", "temperature", box=SIMPLE_HEAD)
    rows = zip(result.picks, result.scores, result.temperatures, strict=True)
    for step, (pick, score, temperature) in enumerate(rows, start=1):
        table.add_row(str(step), str(pick), wording.plain(score, 5), f"{temperature:.3f}")
    console.print(table)
    if result.view_temperature != 1:
        print_text(f"view temperature {result.view_temperature:.4g}")
    say("These scores are on the images searched on: check the result on other images.")
