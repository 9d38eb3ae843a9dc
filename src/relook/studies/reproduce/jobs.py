"""Run each kind of job of a study, from networks and images to files in the job's directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from relook.data.corrupted import corrupted_source
from relook.evaluation.baselines import Options
from relook.evaluation.compare import compare
from relook.evaluation.results import Results, load_results
from relook.io.files import write_json_atomic
from relook.policy import Policy
from relook.policy_search.run_record import load_run, pool_views
from relook.policy_search.search import search_dataset
from relook.studies.ensembles import ensembles
from relook.studies.magnitudes import best, magnitudes
from relook.studies.objectives import objectives
from relook.studies.reproduce.inputs import NETWORKS, RUN, STORE, TRAINED, JobInputs
from relook.studies.reproduce.plan import Entry, search_settings
from relook.studies.reproduce.settings import (
    ComparePart,
    RobustnessPart,
    StudyModel,
    TransferPart,
)
from relook.studies.robustness import Shift, robustness, stratified_part
from relook.studies.training import TrainingPlan, train_models
from relook.studies.transfer import transfer
from relook.studies.transfer_targets import Target

COMPARISON = "comparison.json"


def results_file(part: str) -> str:
    """Return the name of the file with a job's results."""
    return f"{part}.json"


def run_train(inputs: JobInputs) -> tuple[str, ...]:
    """Train one network, twice if images are held out for the search."""
    settings = inputs.job.settings
    names = ("network", "epochs", "augment", "length", "magnitude", "batch", "learning_rate",
             "weight_decay", "validation", "split_seed")  # fmt: skip
    plan = TrainingPlan(
        seeds=(settings["seed"],),
        recipe=inputs.study.recipe,
        exclude=inputs.study.exclude,
        retrain=settings["validation"] is not None,
        **{name: settings[name] for name in names},
    )
    trained = train_models(
        inputs.training_images(inputs.job.entry),
        plan,
        inputs.directory / NETWORKS,
        device=inputs.device,
        threads=inputs.study.train.threads,
        progress=lambda _, done, total, loss: inputs.report(done, total, f"loss {loss:.3f}"),
    )
    files = {one.part: one.path.relative_to(inputs.directory).as_posix() for one in trained}
    content = {
        "source": trained[0].spec.partition("@")[0],
        "search": files.get("split", files["all"]),
        "score": files["all"],
    }
    write_json_atomic(inputs.directory / TRAINED, content)
    return (TRAINED, *files.values())


def run_search(inputs: JobInputs) -> tuple[str, ...]:
    """Search a policy for the entry's network."""
    entry = inputs.job.entry
    predictor = inputs.model(entry, "search")
    dataset = inputs.images(entry, predictor, "search")
    test = inputs.test_images(entry, predictor)
    origin = {
        "command": _command(inputs),
        "model": inputs.model_spec(entry, "search"),
        "data": inputs.data_spec(entry, "search"),
        **model_options(inputs.study.models[entry.model]),
    }
    if test is not None:
        origin["test"] = inputs.data_spec(entry, "score")
    search_dataset(
        predictor,
        dataset,
        inputs.search_settings(entry, len(dataset)),
        test=test,
        run=inputs.directory / RUN,
        progress=inputs.stages,
        origin=origin,
        log=inputs.log,
    )
    return (f"{RUN}/policy.json", f"{RUN}/run.json")


def run_compare(inputs: JobInputs) -> tuple[str, ...]:
    """Compare a policy with the baselines on images that no search has seen."""
    entry = inputs.job.entry
    predictor, dataset, places = inputs.part(entry, "score")
    comparison = compare(
        predictor,
        dataset,
        _policy(inputs, entry),
        options=_options(inputs),
        indices=places,
        batch=inputs.batch(entry),
        progress=inputs.stages,
        measure_cost=False,
        learned_averages=inputs.study.search.strategy != "paper",
        record=_record(inputs, entry),
        known=pool_views(inputs.run_of(entry), predictor, dataset),
        **_scoring_keywords(inputs, inputs.study.compare),
    )
    comparison.save(inputs.directory / COMPARISON)
    return (COMPARISON,)


def run_magnitudes(inputs: JobInputs) -> Results:
    """Score RandAugment at every magnitude on the images to search on."""
    entry, study = inputs.job.entry, inputs.study
    predictor, dataset, places = inputs.part(entry, "search")
    return magnitudes(
        predictor,
        dataset,
        recipe=study.views,
        grid=study.magnitudes.grid,
        views=study.magnitudes.views,
        length=study.randaugment(entry.model)[0],
        seed=study.seed,
        draws=search_settings(study).draws,
        indices=places,
        store_path=inputs.directory / STORE,
        batch=inputs.batch(entry),
        progress=inputs.passes,
    )


def run_robustness(inputs: JobInputs) -> Results:
    """Score the policy and the baselines under corruptions."""
    entry, part = inputs.job.entry, inputs.study.robustness
    predictor, dataset, places = inputs.part(entry, "score")
    kept = stratified_part(dataset, part.images, inputs.study.seed)
    dataset, places = dataset.subset(kept), places[kept]
    folder = inputs.data(entry).corrupted
    source = None if folder is None else corrupted_source(folder, dataset, places)
    return robustness(
        predictor,
        dataset,
        _policy(inputs, entry),
        shift=Shift(part.corruptions, part.severities, source),
        options=_options(inputs),
        indices=places,
        batch=inputs.batch(entry),
        progress=inputs.passes,
        record=_record(inputs, entry),
        **_scoring_keywords(inputs, part),
    )


def run_objectives(inputs: JobInputs) -> Results:
    """Search the same pools by accuracy, log-likelihood and cLL."""
    entry, part = inputs.job.entry, inputs.study.objectives
    predictor = inputs.model(entry, "search")
    dataset = inputs.images(entry, predictor, "search")
    settings = replace(inputs.search_settings(entry, len(dataset)), race=False)
    if settings.strategy == "conservative":  # it has a single objective
        size = inputs.study.search.pool_size
        settings = replace(settings, strategy="greedy", pool_size=size)
    return objectives(
        predictor,
        dataset,
        settings,
        objectives=part.objectives,
        test=inputs.test_images(entry, predictor),
        runs=part.runs,
        budgets=(part.views or settings.length,),
        directory=inputs.directory / STORE,
        progress=inputs.stages,
    )


def run_transfer(inputs: JobInputs) -> Results:
    """Score every policy on every model."""
    targets, policies = [], {}
    for entry in inputs.job.entries:
        predictor, dataset, places = inputs.part(entry, "score")
        name, own = inputs.label(entry), None
        if entry.model in inputs.study.searched:
            policies[name] = _policy(inputs, entry)
            own = name
        targets.append(Target(name, predictor, dataset, own, places, inputs.batch(entry)))
    return transfer(
        targets,
        policies,
        batch=inputs.study.batch,
        progress=inputs.passes,
        **_scoring_keywords(inputs, inputs.study.transfer),
    )


def run_ensembles(inputs: JobInputs) -> Results:
    """Search for one member, for the ensemble and for each member, and score all three."""
    job, entry, part = inputs.job, inputs.job.entry, inputs.study.ensembles
    same_model = len({one.model for one in job.entries}) == 1
    members = {
        f"member {one.member + 1}" if same_model else one.model: inputs.model(one, "search")
        for one in job.entries
    }
    first = next(iter(members.values()))
    dataset = inputs.images(entry, first, "search")
    return ensembles(
        members,
        dataset,
        inputs.search_settings(entry, len(dataset)),
        test=inputs.test_images(entry, first),
        methods=part.methods,
        budgets=part.budgets,
        options=_options(inputs),
        runs=part.runs,
        run=inputs.directory / STORE,
        pools={
            name: inputs.run_of(one)
            for name, one in zip(members, job.entries, strict=True)
            # Predictions depend on the batch in their last digits, so it must be the same.
            if job.needs_of("search", one)
            and inputs.batch(one) == inputs.batch(entry)
            and _used_given_recipe(inputs.run_of(one))
        },
        progress=inputs.stages,
    )


def _used_given_recipe(run: Path) -> bool:
    """Whether a search's pool is drawn from the given recipe, not from a variant of it."""
    probe = load_run(run).probe
    return probe is None or not any(one["taken"] for one in probe.tried)


def model_options(model: StudyModel) -> dict[str, Any]:
    """Return the options of a model in the form that a run records, for later commands."""
    options: dict[str, Any] = {"outputs": model.outputs, "pretrained": model.pretrained}
    options["size"] = model.size and str(model.size)
    for name in ("mean", "std"):
        options[name] = ",".join(map(repr, getattr(model, name) or ()))
    return {name: value for name, value in options.items() if value}


def _policy(inputs: JobInputs, entry: Entry) -> Policy:
    return Policy.load(inputs.run_of(entry) / "policy.json")


def _scoring_keywords(
    inputs: JobInputs, part: ComparePart | RobustnessPart | TransferPart
) -> dict[str, Any]:
    """Return the keywords shared by the studies that score policies alongside baselines."""
    return {
        "recipe": inputs.study.views,
        "budgets": part.budgets,
        "methods": part.methods,
        "seed": inputs.study.seed,
        "runs": part.runs,
        "store_path": inputs.directory / STORE,
    }


def _options(inputs: JobInputs) -> Options:
    """Return the options of RandAugment; MGrid's magnitude is the best one of the grid search."""
    magnitude = None
    if inputs.job.needs_of("magnitudes"):
        file = inputs.needed("magnitudes") / results_file("magnitudes")
        magnitude = best(load_results(file, "magnitudes"), "cll")
    length, trained = inputs.study.randaugment(inputs.job.entry.model)
    return Options(length, trained, magnitude, inputs.study.magnitudes.views)


def _command(inputs: JobInputs) -> str:
    return f"relook study run {inputs.study.name}"


def _record(inputs: JobInputs, entry: Entry) -> dict[str, Any]:
    return {
        "command": _command(inputs),
        "model": {"spec": inputs.model_spec(entry, "score")},
        "data": {"spec": inputs.data_spec(entry, "score")},
    }


RUNNERS: Mapping[str, Callable[[JobInputs], Results | tuple[str, ...]]] = MappingProxyType(
    {
        "train": run_train,
        "search": run_search,
        "magnitudes": run_magnitudes,
        "compare": run_compare,
        "robustness": run_robustness,
        "objectives": run_objectives,
        "transfer": run_transfer,
        "ensembles": run_ensembles,
    }
)
"""The runner of each part's jobs; it returns results of a study, or the names of its files."""
