"""`relook calibrate`: refit how a policy's views are averaged and calibrated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from relook.api.recorded import as_recorded
from relook.cli.shared import loading, options, sources
from relook.cli.shared.console import (
    print_json,
    print_table,
    print_text,
    progress_bar,
    resumable,
    say,
)
from relook.cli.shared.inputs import BALANCE_NOTE
from relook.cli.shared.option_groups import expand_options, option
from relook.data import Dataset
from relook.deploy.calibrate import CalibratedPolicy, WeighedPolicy, calibrated_policy, weigh_policy
from relook.errors import RelookError, unknown_name
from relook.evaluation.unseen import check_unused, left_out_note, unseen_places
from relook.foundation import wording
from relook.models import Predictor
from relook.policy import Policy
from relook.policy.file import policy_to_json
from relook.policy_search.run_record import used_images, was_balanced
from relook.report.tables import Cell, Column, Table, change_cell

_WEIGHTS = ("equal", "learn", "always")


@expand_options
def calibrate_command(
    *,
    source: sources.RunOrPolicy,
    data: options.DataOption,
    model: options.SearchedModelOption = None,
    out: Path | None = option(
        "Where to write the calibrated policy; by default next to the old one."
    ),
    force: options.ForceOption = False,
    balanced: bool | None = options.details_option(
        "Weight all classes equally.", shown="as the search did"
    ),
    weights: str = option(
        "Weights of the views: equal (as in the policy), learn (learned on the images, and kept if "
        "better on held-out ones), or always (learned and kept in any case).",
        default="equal",
    ),
    keep_view_temperature: bool = options.details_option(
        "Keep the policy's view temperature instead of refitting it.",
        "--keep-view-temperature",
        default=False,
    ),
    reuse_images: bool = option(
        "Also fit on images that the policy was found or compared on.",
        "--reuse-images",
        default=False,
    ),
    seed: options.SeedOption = 0,
    inputs: options.InputOptions,
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Fit a policy's temperatures on labelled images, for other data or another model.

    A frozen policy needs this too. The view temperature is refitted unless it is kept. By default
    the model and the reading of images are those of the search. The policy records the images, so
    that no later command claims a gain on them.
    """
    if weights not in _WEIGHTS:
        raise unknown_name("value of --weights", weights, _WEIGHTS)
    if balanced and weights != "equal":
        raise RelookError("--balanced: weights of views are learned with equal weight per image")
    policy = Policy.load(source.policy)
    target = out or sources.derived_policy(source.policy, "calibrated")
    sources.refuse_to_overwrite(target, force)
    if balanced is None and was_balanced(source.search_record()):
        balanced = weights == "equal"
        if not balanced:
            say(BALANCE_NOTE)
    predictor, dataset = _read(source, model, data, inputs)
    if weights != "equal":  # a gain of learned weights is claimed, so the images must be new
        unseen = unseen_places(dataset, [replace(policy, halves=())])
        if len(unseen) < len(dataset):
            say(left_out_note(dataset, len(unseen)))
            dataset = dataset.subset(unseen)
    elif not reuse_images:
        check_unused(dataset, used_images(source.policy, policy), "--reuse-images")
    keywords: dict[str, Any] = {"keep_view_temperature": keep_view_temperature, "batch": batch}
    with resumable("Nothing was written.", timeout), progress_bar("predicting", "views") as bar:
        keywords["progress"] = bar
        made: CalibratedPolicy | WeighedPolicy
        if weights == "equal":
            made = calibrated_policy(
                predictor, dataset, policy, balanced=balanced is True, **keywords
            )
        else:
            keywords |= {"always": weights == "always", "seed": seed}
            made = weigh_policy(predictor, dataset, policy, **keywords)
    made.policy.save(target)
    _print(policy, made, target, as_json)


def _read(
    source: sources.RunOrPolicy, model: list[str] | None, data: str, inputs: options.InputOptions
) -> tuple[Predictor, Dataset]:
    """Return the model and the images, by default read as in the search."""
    reading, policy = inputs.reading, Policy.load(source.policy)
    given = as_recorded(model=model or None, **reading.given(), **inputs.network.given())
    # A model other than the search's may take other images: the search's options do not apply.
    record = source.search_record(model)
    if model and (record is None or loading.as_list(record.origin.get("model", "")) != model):
        record = None
    known = sources.ModelOfRun.load(record, given, inputs.device)
    kept = loading.reads_full_size(reading.full_size, data, source.policy, [policy])
    keywords = {**loading.image_options(known.given), "full_size": kept, "model": known.predictor}
    searched = None if record is None else policy.preparation
    return known.predictor, loading.read_data(data, inputs.group, searched=searched, **keywords)


def _print(
    old: Policy, made: CalibratedPolicy | WeighedPolicy, target: Path, as_json: bool
) -> None:
    if as_json:
        learned: dict[str, Any] = (
            {"weights": made.to_json()}
            if isinstance(made, WeighedPolicy)
            else {"before": made.before, "after": made.after}
        )
        print_json({"out": str(target), "policy": policy_to_json(made.policy), **learned})
        return
    if isinstance(made, WeighedPolicy):
        _print_weights(made)
    else:
        _print_scores(made)
    _print_fitted(old, made.policy)
    sources.say_policy_written(target)


def _print_scores(fitted: CalibratedPolicy) -> None:
    """Print the policy's scores before and after."""
    if fitted.after is None:
        return
    (cll, ece), (new_cll, new_ece) = fitted.before.values(), fitted.after.values()
    print_text(
        f"all views, cross-validated: cLL {wording.plain(cll, 4)} → {wording.plain(new_cll, 4)}, "
        f"calibration error (ECE) {100 * ece:.1f} % → {100 * new_ece:.1f} %"
    )


def _print_fitted(old: Policy, new: Policy) -> None:
    """Print the fitted temperatures, and the previous ones."""
    before, after = old.view_temperature, new.view_temperature
    if before != 1 or after != 1:
        was = "" if before == after else f" (was {before:.4g})"
        print_text(f"view temperature {after:.4g}{was}")
    known = old.temperatures if len(old) == len(new) else None
    for length, temperature in enumerate(new.temperatures or (), 1):
        if length in (1, 2, 5, 10, 20, 50, 100, len(new.temperatures or ())):
            was = "" if known is None else f" (was {known[length - 1]:.4f})"
            print_text(f"first {length:>3}: temperature {temperature:.4f}{was}")


def _print_weights(weighed: WeighedPolicy) -> None:
    """Print the gain of learned weights over equal ones, and whether they were kept."""
    found = weighed.learned
    columns = (Column("", number=False), *map(Column, ("equal", "learned", "learned − equal")))
    held_out = (
        Cell("held-out images"),
        *(Cell(wording.plain(one, 4)) for one in (found.cll_equal, found.cll)),
        change_cell(found.gain, 4),
    )
    fit = (
        Cell("fitted images"),
        *(Cell(wording.plain(one, 4)) for one in (found.fit_cll_equal, found.fit_cll)),
        Cell(wording.signed(found.fit_cll - found.fit_cll_equal, 4)),
    )
    title = "cLL of the views' mean, with equal and with learned weights"
    print_table(Table(title, columns, ((held_out, fit),)))
    outcome = "the learned weights are written, as repeats of views"
    if not weighed.used:
        outcome = "weights unchanged: held-out images do not show that learned weights help"
    elif not found.better:
        outcome += ", though held-out images do not show that they help"
    say(f"{outcome} ({', '.join(f'{weight:.2f}' for weight in found.weights)})")
    if weighed.doubt:
        say(weighed.doubt)
