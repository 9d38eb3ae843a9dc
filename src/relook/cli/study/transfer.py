"""`relook study transfer`: policies on models and data other than those they were found on."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.api.recorded import next_to
from relook.cli.shared import loading, options
from relook.cli.shared.console import say, typed_command
from relook.cli.shared.inputs import BALANCE_NOTE
from relook.cli.shared.option_groups import expand_options, option
from relook.cli.shared.sources import load_given_model
from relook.cli.study import shared as study
from relook.data import Dataset
from relook.errors import RelookError
from relook.foundation import wording
from relook.models.base import input_of
from relook.policy import Policy
from relook.policy.recipes import Recipe, get_recipe
from relook.policy_search.run_record import RunRecord, load_run, recorded_recipe, was_balanced
from relook.studies.transfer import METHODS, STUDY, transfer
from relook.studies.transfer_targets import Target, unseen_images


@expand_options
def transfer_command(
    *,
    policies: study.RunsAndPolicies,
    model: list[str] | None = options.model_option(
        "A classifier to apply the policies to, as in  relook search. If there are several, give "
        "a policy file for each, in the same order; with one model, or none, policy files belong "
        "to other models.",
        "--model",
        "-m",
    ),
    data: list[str] | None = options.model_option(
        "Labelled images: one set for all, or one per run and model, in order.",
        "--data",
        "-d",
        shown="those of the runs",
    ),
    name: list[str] | None = options.model_option(
        "Names of the runs and models in tables, in order.", shown="from their files"
    ),
    budgets: study.BudgetsOption = "5,10,20",
    methods: study.MethodsOption = ",".join(METHODS),
    runs: options.RunsOption = 1,
    recipe: str | None = option("Recipe of the random crops; by default that of the policies."),
    out: Path = option(
        "Directory for transfer.json, figures and predictions.",
        default=Path("runs/transfer"),
        panel=options.RESULTS,
    ),
    results: study.ResultOptions,
    reading: options.InputOptions,
    work: study.WorkOptions,
) -> None:
    """Apply policies to models and data other than those they were found on.

    A small network's policy on a large one:  relook study transfer runs/small --model LARGE
    """
    sizes, baselines = loading.read_budgets(budgets), loading.read_names(methods)
    specs, foreign = target_specs(
        policies.runs, model or [], policies.policies, data or [], name or [], reading.given()
    )
    targets, loaded, prior, sources = read_transfer(
        specs, foreign, recipe, reading.device, reading.reading.full_size, next_to(out)
    )
    with work.in_directory(out) as bar:
        found = transfer(
            targets,
            loaded,
            recipe=prior,
            budgets=sizes,
            methods=baselines,
            seed=work.seed,
            runs=runs,
            store_path=out / "predictions",
            batch=work.batch,
            progress=bar,
            record={"command": typed_command(), **sources},
        )
    most = found.settings["budgets"][-1]
    if most < max(sizes):
        say(f"compared with at most {most} views: the shortest policy has no more distinct ones")
    results.show(STUDY, found, out)


_DATA_OPTIONS = ("data", "group", "skip_bad", "classes", "cache")


@dataclass(frozen=True)
class TargetSpec:
    """A target before loading: options of its model and data, and its own policy, if any."""

    name: str
    given: Mapping[str, Any]
    policy: Path | None


def read_transfer(
    specs: Sequence[TargetSpec],
    foreign: Mapping[str, Path],
    recipe: str | None,
    device: str,
    full_size: str,
    overflow: Path,
) -> tuple[list[Target], dict[str, Policy], Recipe | None, dict[str, Any]]:
    """Load models, images that no search saw, policies and recipe; also return their sources."""
    paths = {one.name: one.policy for one in specs if one.policy is not None} | dict(foreign)
    policies = {name: Policy.load(path) for name, path in paths.items()}
    records = {name: loading.load_search_record(path) for name, path in paths.items()}
    targets: list[Target] = []
    unseen: dict[str, tuple[Dataset, NDArray[np.int64]]] = {}
    for one in specs:
        predictor = load_given_model(one.given, device)
        near = one.policy or next(iter(paths.values()))
        full = loading.reads_full_size(full_size, one.given["data"], near, policies.values())
        given = {**one.given, "full_size": full}
        keywords = loading.image_options(given)
        searched = None if one.policy is None else policies[one.name].preparation
        key = repr((given["data"], given.get("group"), keywords, input_of(predictor), searched))
        if key not in unseen:
            dataset = loading.read_data(
                given["data"],
                given.get("group"),
                model=predictor,
                overflow=overflow,
                searched=searched,
                **keywords,
            )
            _check_channels(one.name, dataset, records)
            places = unseen_images(dataset, list(paths.values()))
            part = f"all {len(dataset):,} images"
            if len(places) < len(dataset):
                part = f"{len(places):,} of its {len(dataset):,} images, those that no policy was "
                part += "searched on"
            say(f"{dataset.name}: {part}")
            unseen[key] = dataset.subset(places), places
        dataset, places = unseen[key]
        own = None if one.policy is None else one.name
        targets.append(Target(one.name, predictor, dataset, own, places))
    _check_owners(targets, records)
    if any(map(was_balanced, records.values())):
        say(BALANCE_NOTE)
    search = next((record for record in records.values() if record is not None), None)
    prior = get_recipe(recipe) if recipe is not None else None
    if prior is None and search is not None:
        prior = recorded_recipe(search)
    sources = {
        one.name: {
            "model": " + ".join(loading.as_list(one.given["model"])),
            "data": one.given["data"],
        }
        for one in specs
    }
    files = {name: str(path) for name, path in paths.items()}
    return targets, policies, prior, {"specs": sources, "policy_files": files}


def target_specs(
    runs: Sequence[Path],
    models: Sequence[str],
    policies: Sequence[Path],
    data: Sequence[str],
    names: Sequence[str],
    given: Mapping[str, Any],
) -> tuple[list[TargetSpec], dict[str, Path]]:
    """Return the targets, each with its model, images and own policy, and all other policies."""
    number = len(runs) + len(models)
    _check_counts(len(runs), len(models), len(policies))
    for flag, values, once in (("--data", data, True), ("--name", names, False)):
        if values and len(values) != number and not (once and len(values) == 1):
            raise RelookError(
                f"expected {flag} {'once or ' if once else ''}{number} times, one per run and "
                f"model, in order; got {len(values)}"
            )
    paired = len(models) > 1 and bool(policies)
    files = [one / "policy.json" if one.is_dir() else one for one in policies]
    origins = [_run_options(run, given) for run in runs]
    shared = {name: value for name, value in (origins or [{}])[0].items() if name in _DATA_OPTIONS}
    origins += [{**shared, **given, "model": spec} for spec in models]
    chosen = list(data) * number if len(data) == 1 else list(data)
    if chosen:
        origins = [{**one, "data": spec} for one, spec in zip(origins, chosen, strict=True)]
    if any("data" not in one for one in origins):
        raise RelookError("expected --data: labelled images to score on, got none")
    titles = list(names) or [run.resolve().name for run in runs] + [_short(m) for m in models]
    own = [run / "policy.json" for run in runs] + (files if paired else [None] * len(models))
    used = _all_distinct(titles)
    specs = [TargetSpec(*one) for one in zip(used, origins, own, strict=True)]
    foreign: dict[str, Path] = {}
    for file in [] if paired else files:
        title = file.resolve().parent.name if file.name == "policy.json" else file.stem
        foreign[_distinct(title, [*used, *foreign])] = file
    return specs, foreign


def model_names(specs: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the models' names in tables: those given, or else from their files."""
    if names and len(names) != len(specs):
        raise RelookError(f"expected --name {len(specs)} times, one per model, got {len(names)}")
    return _all_distinct(names or [_short(spec) for spec in specs])


def _check_counts(runs: int, models: int, policies: int) -> None:
    if not runs and not (models and policies):
        raise RelookError(
            "expected RUN, or --model and a policy file; to apply one model's policy to another:  "
            "relook study transfer runs/small --model timm:large@FILE"
        )
    if models > 1 and policies and policies != models:
        raise RelookError(
            f"expected a policy for each --model, in the same order, got {policies} for {models}"
            ": policies that were found elsewhere go with one --model"
        )


def _run_options(run: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a search on model and data, with its test set, if any, as data."""
    origin = dict(load_run(run).origin)
    if "model" not in origin or "data" not in origin:
        raise RelookError(
            f"{run} was searched from Python: give --model, its policy.json and --data"
        )
    if "test" in origin:
        origin["data"] = origin.pop("test")
        origin["group"] = loading.groups_for_test(origin.get("group"))
    return origin | ({"cache": given["cache"]} if "cache" in given else {})


def _check_channels(target: str, dataset: Dataset, records: Mapping[str, RunRecord | None]) -> None:
    """Raise if a policy was searched on images with another number of channels."""
    here = dataset.images.shape[1]
    for name, record in records.items():
        shape = None if record is None else record.data.get("shape")
        if isinstance(shape, list) and shape and shape[0] != here:
            raise RelookError(
                f"the policy of {name} was searched on images with "
                f"{wording.count(shape[0], 'channel')}, those of "
                f"{target} have {here}: read them alike with --channels, or leave it out"
            )


def _check_owners(targets: Sequence[Target], records: Mapping[str, RunRecord | None]) -> None:
    """Raise if records show that the policies are in another order than their models."""
    owners = {target.predictor.fingerprint: target.name for target in targets}
    for target in targets:
        record = records.get(target.own or "")
        searched = None if record is None else record.settings.get("model")
        owner = owners.get(str(searched), target.name)
        if owner != target.name and searched != target.predictor.fingerprint:
            raise RelookError(
                f"the policy given for {target.name} was searched for {owner}: give policies in "
                "the order of --model"
            )


def _short(spec: str) -> str:
    """Return a short name for a model spec: that of its file or of its last part."""
    last = re.split("[@:]", spec)[-1]
    return Path(last).stem or spec


def _all_distinct(names: Sequence[str]) -> list[str]:
    used: list[str] = []
    for name in names:
        used.append(_distinct(name, used))
    return used


def _distinct(name: str, used: Collection[str]) -> str:
    """Return the name, with a number added if it is already used."""
    numbered = (f"{name} {number}" for number in count(2))
    return next(one for one in chain([name], numbered) if one not in used)
