"""`relook conformal`: prediction sets with a guarantee."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relook.api.recorded import as_recorded
from relook.cli.shared import loading, options, sources
from relook.cli.shared.console import console, print_json, progress_bar, resumable, say
from relook.cli.shared.inputs import PolicyInputs, PolicySource, images_option
from relook.cli.shared.option_groups import expand_options, option
from relook.data import Dataset
from relook.deploy.conformal import PolicySets, policy_sets
from relook.evaluation.unseen import check_unused, doubt_of, part_not_in
from relook.numerics.conformal import FREE, PENALTY
from relook.policy.file import policy_to_json
from relook.policy_search.run_record import used_images
from relook.report.deployed_tables import sets_sentence, sets_table
from relook.report.tables import terminal

_HOW_TO_LEAVE = "search with  --split 0.4:0.3  (the other 30 % are left for this), or give --data"


@dataclass(frozen=True, kw_only=True)
class SetSource(PolicySource):
    """Options of what sets are made of; other images than a comparison's set the threshold."""

    data: str | None = images_option(
        "Labelled images that set the threshold: nothing may be learned on them.",
        "those that the search's --split left out",
    )


@expand_options
def conformal_command(
    *,
    scored: SetSource,
    coverage: float = option("How often the true class should be in the set.", default=0.9),
    score: str = option(
        "lac (smallest sets, some empty), aps (the likeliest classes, at least one) or raps (aps "
        "with a penalty for large sets).",
        default="aps",
    ),
    per_class: bool = option(
        "Cover each class that often, not only all together.", "--per-class", default=False
    ),
    method: options.MethodOption = None,
    views: options.ViewsOption = None,
    penalty: float = options.details_option(
        "Of raps: what each class costs after --free.", default=PENALTY
    ),
    free: int = options.details_option(
        "Of raps: how many classes cost nothing.", default=FREE, min=1
    ),
    out: Path | None = option("Where to write the policy with its sets; next to it by default."),
    force: options.ForceOption = False,
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Make sets of classes that contain the true class as often as you ask.

    Images that the search has neither used nor held out set the threshold: those that --split of
    the search left out, or --data. The held-out images show coverage and size of the sets. The
    policy remembers the images; TTA.predict_set and exported ONNX files return the sets.
    """
    source = scored.source
    target = out or sources.derived_policy(source.policy, "sets")
    chosen = sources.choose_deployed(source, as_recorded(model=scored.model), method, views)
    inputs, dataset, others = _read(scored)
    sources.refuse_to_overwrite(target, force)  # where there are no images, --force would not help
    wanted: Any = {"coverage": coverage, "score": score, "penalty": penalty, "free": free}
    with resumable("Nothing was written.", timeout), progress_bar("predicting", "views") as bar:
        passes = (chosen.policy.views + 1) * (len(dataset) + len(others or ()))
        inputs = scored.with_engine(inputs, target.absolute().parent, passes)
        found = policy_sets(
            *(inputs.predictor, dataset, chosen.policy, others),
            temperature=chosen.temperature,
            per_class=per_class,
            batch=batch,
            progress=bar,
            **wanted,
        )
    found.policy.save(target)
    found.keep(source.search_directory(scored.model), inputs.policies[0], chosen.text)
    if as_json:
        print_json({"out": str(target), "policy": policy_to_json(found.policy), **found.to_json()})
        return
    _print(found, coverage)
    sources.say_policy_written(target)


def _read(scored: PolicySource) -> tuple[PolicyInputs, Dataset, Dataset | None]:
    """Return the model, the images that set the threshold, and those that show what it is worth."""
    file, record = scored.source.policy, scored.source.search_record(scored.model)
    of_run = record is not None and "data" in record.origin
    if not of_run:
        inputs = scored.read()
        dataset, others = inputs.dataset, None
    elif scored.data is None:
        inputs = scored.read_with_left_out(_HOW_TO_LEAVE)
        dataset, others = inputs.left_out or inputs.dataset, inputs.dataset
    else:
        inputs = replace(scored, data=None, group=None).read()
        others = inputs.dataset
        known = inputs.policies
        kept = loading.keeps_full_size_as_searched(
            scored.reading.full_size, scored.data, file, known
        )
        given = {**(record.origin if record else {}), **scored.reading.given(), "full_size": kept}
        how = {**loading.image_options(given), "model": inputs.predictor, "like": others}
        dataset = loading.read_data(scored.data, scored.group, searched=known[0].preparation, **how)
    used = used_images(file, inputs.policies[0])
    check_unused(dataset, used, _HOW_TO_LEAVE)
    if doubt := doubt_of(dataset.identities, used):
        say(doubt)
    # Of a cross-fit, the proof's images are also those that the views were learned on.
    others = None if others is None else part_not_in(others, inputs.policies[0].seen)
    shown = "" if others is None else f", {len(others):,} to show what it is worth"
    say(f"{len(dataset):,} images to set the threshold{shown}")
    return inputs, dataset, others


def _print(found: PolicySets, coverage: float) -> None:
    rule = found.policy.sets
    if rule is not None:
        many = len(rule.thresholds)
        text = f"{rule.thresholds[0]:.4f}" if many == 1 else f"{many} of them, one per class"
        console.print(f"score {rule.score}, threshold {text}")
    if found.report is None:
        console.print("no other images to show coverage and size on")
    else:
        console.print(terminal(sets_table(found.report), console))
        if found.report.figures is None:
            console.print("too few images to tell coverage and size")
        else:
            console.print(sets_sentence(found.report, coverage), soft_wrap=True, style="bold")
        if found.note is not None:
            console.print(found.note, soft_wrap=True)
        if found.report.of_plain:
            console.print("the sets are the plain image's: there is nothing to compare them with")
    if rule is not None and len(rule.thresholds) == 1:
        console.print(
            f"the guarantee, {100 * coverage:g} %, is a mean over all draws of {found.images:,} "
            f"such images; with these it may be off by {200 * found.deviation:.1f} points (two "
            "deviations)",
            soft_wrap=True,
        )
