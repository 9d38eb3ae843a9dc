"""`relook conformal`: prediction sets with a coverage guarantee."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relook.api.recorded import as_recorded
from relook.cli.shared import loading, options, sources
from relook.cli.shared.console import (
    print_json,
    print_table,
    print_text,
    print_verdict,
    progress_bar,
    resumable,
    say,
)
from relook.cli.shared.inputs import PolicyInputs, PolicySource, images_option
from relook.cli.shared.option_groups import expand_options, option
from relook.data import Dataset
from relook.deploy.conformal import PolicySets, policy_sets
from relook.evaluation.unseen import check_unused, doubt_of, part_not_in
from relook.numerics.conformal import FREE, PENALTY, check_sets
from relook.policy.file import policy_to_json
from relook.policy_search.run_record import used_images
from relook.report.deployed_tables import sets_sentence, sets_table

_HOW_TO_LEAVE_OUT = (
    "search with  --split 0.4:0.3  (the other 30 % are left for this), or give --data"
)


@dataclass(frozen=True, kw_only=True)
class SetSource(PolicySource):
    """Options of the policy, and of the images that set the threshold."""

    data: str | None = images_option(
        "Labelled images to set the threshold on; nothing else may have been learned on them.",
        "those that the search's --split left out",
    )


@expand_options
def conformal_command(
    *,
    scored: SetSource,
    coverage: float = option("How often the true class should be in the set.", default=0.9),
    score: str = option(
        "How to build sets: lac (smallest, some empty), aps (the most likely classes, at least "
        "one) or raps (aps with a penalty for large sets).",
        default="aps",
    ),
    per_class: bool = option(
        "Reach the coverage for each class, not only overall.", "--per-class", default=False
    ),
    method: options.MethodOption = None,
    views: options.ViewsOption = None,
    penalty: float = options.details_option(
        "raps: the penalty for each class beyond --free.", default=PENALTY
    ),
    free: int = options.details_option(
        "raps: the number of classes without a penalty.", default=FREE, min=1
    ),
    out: Path | None = option("Where to write the policy with its sets; by default next to it."),
    force: options.ForceOption = False,
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Make prediction sets that contain the true class as often as you ask.

    The threshold is set on images that the search neither used nor held out: those that its
    --split left out, or --data. The held-out images show coverage and size of the sets. The
    policy records the images; TTA.predict_set and exported ONNX files return the sets.
    """
    rule: Any = {"coverage": coverage, "score": score, "penalty": penalty, "free": free}
    check_sets(**rule)
    source = scored.source
    target = out or sources.derived_policy(source.policy, "sets")
    chosen = sources.choose_deployed(source, as_recorded(model=scored.model), method, views)
    inputs, dataset, others = _read(scored)
    sources.refuse_to_overwrite(target, force)  # without images, --force would not help
    with resumable("Nothing was written.", timeout), progress_bar("predicting", "views") as bar:
        passes = (chosen.policy.views + 1) * (len(dataset) + len(others or ()))
        inputs = scored.with_engine(inputs, target.absolute().parent, passes)
        found = policy_sets(
            *(inputs.predictor, dataset, chosen.policy, others),
            temperature=chosen.temperature,
            per_class=per_class,
            batch=batch,
            progress=bar,
            **rule,
        )
    found.policy.save(target)
    found.keep(source.search_directory(scored.model), inputs.policies[0], chosen.text)
    if as_json:
        print_json({"out": str(target), "policy": policy_to_json(found.policy), **found.to_json()})
        return
    _print(found, coverage)
    sources.say_policy_written(target)


def _read(scored: PolicySource) -> tuple[PolicyInputs, Dataset, Dataset | None]:
    """Return the model, the images that set the threshold, and those that evaluate the sets."""
    file, record = scored.source.policy, scored.source.search_record(scored.model)
    if record is None or "data" not in record.origin:
        inputs = scored.read()
        dataset, others = inputs.dataset, None
    elif scored.data is None:
        inputs = scored.read_with_left_out(_HOW_TO_LEAVE_OUT)
        dataset, others = inputs.left_out or inputs.dataset, inputs.dataset
    else:
        inputs = replace(scored, data=None, group=None).read()
        others, policies = inputs.dataset, inputs.policies
        full = loading.reads_full_size(scored.reading.full_size, scored.data, file, policies)
        given = {**record.origin, **scored.reading.given(), "full_size": full}
        keywords = {**loading.image_options(given), "model": inputs.predictor, "like": others}
        searched = policies[0].preparation
        dataset = loading.read_data(scored.data, scored.group, searched=searched, **keywords)
    used = used_images(file, inputs.policies[0])
    check_unused(dataset, used, _HOW_TO_LEAVE_OUT)
    if doubt := doubt_of(dataset.identities, used):
        say(doubt)
    # After a cross-fit, the held-out images include those that the views were learned on.
    others = None if others is None else part_not_in(others, inputs.policies[0].seen)
    evaluated = "" if others is None else f", {len(others):,} to evaluate the sets"
    say(f"{len(dataset):,} images to set the threshold{evaluated}")
    return inputs, dataset, others


def _print(found: PolicySets, coverage: float) -> None:
    rule = found.policy.sets
    if rule is not None:
        number = len(rule.thresholds)
        text = f"{rule.thresholds[0]:.4f}" if number == 1 else f"one per class, {number} in all"
        print_text(f"score {rule.score}, threshold {text}")
    if found.report is None:
        print_text("no other images to measure coverage and size on")
    else:
        print_table(sets_table(found.report))
        if found.report.figures is None:
            print_text("too few images to measure coverage and size")
        else:
            print_verdict(sets_sentence(found.report, coverage))
        if found.note is not None:
            print_text(found.note)
        if found.report.of_plain:
            print_text("the sets are the plain image's: there is nothing to compare them with")
    if rule is not None and len(rule.thresholds) == 1:
        print_text(
            f"the guarantee, {100 * coverage:g} %, is a mean over all draws of {found.images:,} "
            f"such images; with these it may be off by {200 * found.deviation:.1f} points (two "
            "deviations)"
        )
