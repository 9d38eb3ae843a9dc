"""How each job of a study is run: from networks and images to files in the job's directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from relook.data.corrupted import corrupted_source
from relook.evaluation.baselines import Options
from relook.evaluation.compare import compare
from relook.evaluation.results import load_results
from relook.io.files import write_json_atomic
from relook.policy import Policy
from relook.policy_search.run_record import pool_views
from relook.policy_search.search import search_dataset
from relook.policy_search.settings import SearchSettings
from relook.studies.ensembles import ensembles
from relook.studies.magnitudes import best, magnitudes
from relook.studies.objectives import objectives
from relook.studies.reproduce.inputs import NETWORKS, TRAINED, JobInputs
from relook.studies.reproduce.plan import Entry, Job, search_settings
from relook.studies.reproduce.settings import StudyModel
from relook.studies.robustness import Shift, robustness, stratified_part
from relook.studies.training import TrainingPlan, train_models
from relook.studies.transfer import transfer
from relook.studies.transfer_targets import Target

STORE = "predictions"
"""Where a job keeps predictions while it runs."""

Runner = Callable[[Job, JobInputs, Path], tuple[str, ...]]
"""Runs a job in its directory; returns the files that are its result."""


def run_train(job: Job, inputs: JobInputs, directory: Path) -> tuple[str, ...]:
    """Train one network, twice where images are kept back for the search."""
    wanted, data = job.settings, inputs.study.data[job.entry.data]
    plan = TrainingPlan(
        network=wanted["network"],
        epochs=wanted["epochs"],
        seeds=(wanted["seed"],),
        augment=wanted["augment"],
        length=wanted["length"],
        magnitude=wanted["magnitude"],
        recipe=inputs.study.recipe_spec,
        exclude=inputs.study.exclude,
        batch=wanted["batch"],
        learning_rate=wanted["learning_rate"],
        weight_decay=wanted["weight_decay"],
        validation=data.validation,
        retrain=data.validation is not None,
        split_seed=wanted["split_seed"],
    )
    trained = train_models(
        inputs.training_images(job.entry),
        plan,
        directory / NETWORKS,
        device=inputs.device,
        threads=inputs.study.train.threads,
        progress=lambda _, done, total, loss: inputs.report(done, total, f"loss {loss:.3f}"),
    )
    files = {one.part: one.path.relative_to(directory).as_posix() for one in trained}
    content = {
        "source": trained[0].spec.partition("@")[0],
        "search": files.get("split", files["all"]),
        "score": files["all"],
    }
    write_json_atomic(directory / TRAINED, content)
    return (TRAINED, *files.values())


def run_search(job: Job, inputs: JobInputs, directory: Path) -> tuple[str, ...]:
    """Search a policy for the entry's network."""
    entry = job.entry
    predictor = inputs.model(job, entry, "search")
    dataset = inputs.images(job, entry, predictor, "search")
    settings = _search_settings(inputs, entry, len(dataset))
    data, test = inputs.study.data[entry.data], None
    origin = {
        "command": f"relook study run {inputs.study.name}",
        "model": inputs.model_spec(job, entry, "search"),
        "data": inputs.data_spec(job, entry, "search"),
        **said_of(inputs.study.models[entry.model]),
    }
    if data.validation is not None:
        test = inputs.images(job, entry, predictor, "score")
        origin["test"] = inputs.data_spec(job, entry, "score")
    search_dataset(
        predictor,
        dataset,
        settings,
        test=test,
        run=directory / "run",
        progress=lambda stage, done, total, score=None: inputs.report(done, total, stage),
        origin=origin,
        log=inputs.log,
    )
    return ("run/policy.json", "run/run.json")


def run_magnitudes(job: Job, inputs: JobInputs, directory: Path) -> tuple[str, ...]:
    """Score RandAugment at every magnitude, on the images to search with."""
    entry, study = job.entry, inputs.study
    predictor = inputs.model(job, entry, "search")
    dataset, places = inputs.part(job, entry, predictor, "search")
    found = magnitudes(
        predictor,
        dataset,
        recipe=study.views,
        grid=study.magnitudes.grid,
        views=study.magnitudes.views,
        length=study.randaugment(entry.model)[0],
        seed=study.seed,
        draws=search_settings(study).draws,
        indices=places,
        store_path=directory / STORE,
        batch=inputs.batch(entry),
        progress=_passes(inputs),
    )
    found.save(directory / "magnitudes.json")
    return ("magnitudes.json",)


def run_compare(job: Job, inputs: JobInputs, directory: Path) -> tuple[str, ...]:
    """Compare a policy with the baselines on images that no search has seen."""
    entry, part = job.entry, inputs.study.compare
    predictor = inputs.model(job, entry, "score")
    dataset, places = inputs.part(job, entry, predictor, "score")
    found = compare(
        predictor,
        dataset,
        policy_of(job, inputs, entry),
        recipe=inputs.study.views,
        budgets=part.budgets,
        methods=part.methods,
        options=_options(job, inputs),
        seed=inputs.study.seed,
        runs=part.runs,
        indices=places,
        store_path=directory / STORE,
        batch=inputs.batch(entry),
        progress=lambda stage, done, total, score=None: inputs.report(done, total, stage),
        measure_cost=False,
        learned_averages=inputs.study.search.strategy != "paper",
        record=_record(job, inputs, entry),
        known=pool_views(_run_of(job, inputs, entry), predictor, dataset),
    )
    found.save(directory / "comparison.json")
    return ("comparison.json",)


def run_robustness(job: Job, inputs: JobInputs, directory: Path) -> tuple[str, ...]:
    """Score the policy and the baselines under corruptions."""
    entry, part, study = job.entry, inputs.study.robustness, inputs.study
    predictor = inputs.model(job, entry, "score")
    dataset, places = inputs.part(job, entry, predictor, "score")
    kept = stratified_part(dataset, part.images, study.seed)
    dataset, places = dataset.subset(kept), places[kept]
    folder = inputs.corrupted(entry)
    found = robustness(
        predictor,
        dataset,
        policy_of(job, inputs, entry),
        recipe=study.views,
        shift=Shift(
            part.corruptions,
            part.severities,
            None if folder is None else corrupted_source(folder, dataset, places),
        ),
        budgets=part.budgets,
        methods=part.methods,
        options=_options(job, inputs),
        seed=study.seed,
        runs=part.runs,
        indices=places,
        store_path=directory / STORE,
        batch=inputs.batch(entry),
        progress=_passes(inputs),
        record=_record(job, inputs, entry),
    )
    found.save(directory / "robustness.json")
    return ("robustness.json",)


def run_objectives(job: Job, inputs: JobInputs, directory: Path) -> tuple[str, ...]:
    """Search the same pools by accuracy, log-likelihood and cLL."""
    entry, part, study = job.entry, inputs.study.objectives, inputs.study
    predictor = inputs.model(job, entry, "search")
    dataset = inputs.images(job, entry, predictor, "search")
    settings, test = _search_settings(inputs, entry, len(dataset)), None
    if settings.strategy == "conservative":  # it knows one objective
        size = study.search.pool_size
        settings = replace(settings, strategy="greedy", pool_size=size)
    if study.data[entry.data].validation is not None:
        test = inputs.images(job, entry, predictor, "score")
    found = objectives(
        predictor,
        dataset,
        replace(settings, race=False),
        objectives=part.objectives,
        test=test,
        runs=part.runs,
        budgets=(part.views or settings.length,),
        directory=directory / STORE,
        progress=lambda stage, done, total: inputs.report(done, total, stage),
    )
    found.save(directory / "objectives.json")
    return ("objectives.json",)


def run_transfer(job: Job, inputs: JobInputs, directory: Path) -> tuple[str, ...]:
    """Score every policy on every model."""
    part, targets, policies = inputs.study.transfer, [], {}
    for entry in job.entries:
        predictor = inputs.model(job, entry, "score")
        dataset, places = inputs.part(job, entry, predictor, "score")
        name, own = inputs.label(entry), None
        if inputs.study.models[entry.model].searched:
            policies[name] = policy_of(job, inputs, entry)
            own = name
        targets.append(Target(name, predictor, dataset, own, places, inputs.batch(entry)))
    found = transfer(
        targets,
        policies,
        recipe=inputs.study.views,
        budgets=part.budgets,
        methods=part.methods,
        seed=inputs.study.seed,
        runs=part.runs,
        store_path=directory / STORE,
        batch=inputs.study.batch,
        progress=_passes(inputs),
    )
    found.save(directory / "transfer.json")
    return ("transfer.json",)


def run_ensembles(job: Job, inputs: JobInputs, directory: Path) -> tuple[str, ...]:
    """Search for one member, for the ensemble and for each member, and score all three."""
    entry, part, study = job.entry, inputs.study.ensembles, inputs.study
    alike = len({one.model for one in job.entries}) == 1
    members = {
        f"member {one.member + 1}" if alike else one.model: inputs.model(job, one, "search")
        for one in job.entries
    }
    first = next(iter(members.values()))
    dataset, test = inputs.images(job, entry, first, "search"), None
    if study.data[entry.data].validation is not None:
        test = inputs.images(job, entry, first, "score")
    found = ensembles(
        members,
        dataset,
        _search_settings(inputs, entry, len(dataset)),
        test=test,
        budgets=part.budgets,
        options=_options(job, inputs),
        runs=part.runs,
        run=directory / STORE,
        pools={
            name: job.need("search", one).directory(inputs.jobs) / "run"
            for name, one in zip(members, job.entries, strict=True)
            # Predictions depend on the batch in their last digits, so stores are of one batch.
            if job.waits_for("search", one) and inputs.batch(one) == inputs.batch(entry)
        },
        progress=lambda stage, done, total, score=None: inputs.report(done, total, stage),
    )
    found.save(directory / "ensembles.json")
    return ("ensembles.json",)


def policy_of(job: Job, inputs: JobInputs, entry: Entry) -> Policy:
    """Return the policy that was found for an entry."""
    return Policy.load(_run_of(job, inputs, entry) / "policy.json")


def _run_of(job: Job, inputs: JobInputs, entry: Entry) -> Path:
    return job.need("search", entry).directory(inputs.jobs) / "run"


def said_of(model: StudyModel) -> dict[str, Any]:
    """Return what a study says of a model as a run's record keeps it, for later commands."""
    said: dict[str, Any] = {"outputs": model.outputs, "pretrained": model.pretrained}
    said["size"] = model.size and str(model.size)
    for name in ("mean", "std"):
        said[name] = ",".join(map(repr, getattr(model, name) or ()))
    return {name: value for name, value in said.items() if value}


def _search_settings(inputs: JobInputs, entry: Entry, images: int) -> SearchSettings:
    """Return the settings of a search, with the split of `images` images."""
    settings = replace(search_settings(inputs.study), batch=inputs.batch(entry))
    data = inputs.study.data[entry.data]
    whole = data.validation is not None or settings.cross_fit
    return settings.with_split(None if whole else data.split, images)


def _options(job: Job, inputs: JobInputs) -> Options:
    """Return what RandAugment is made with; MGrid's magnitude is the one found."""
    magnitude = None
    if job.waits_for("magnitudes"):
        file = job.need("magnitudes").directory(inputs.jobs) / "magnitudes.json"
        magnitude = best(load_results(file, "magnitudes"), "cll")
    length, trained = inputs.study.randaugment(job.entry.model)
    return Options(length, trained, magnitude, inputs.study.magnitudes.views)


def _record(job: Job, inputs: JobInputs, entry: Entry) -> dict[str, Any]:
    return {
        "command": f"relook study run {inputs.study.name}",
        "model": {"spec": inputs.model_spec(job, entry, "score")},
        "data": {"spec": inputs.data_spec(job, entry, "score")},
    }


def _passes(inputs: JobInputs) -> Callable[[int, int], None]:
    return lambda done, total: inputs.report(done, total, "")


RUNNERS: Mapping[str, Runner] = MappingProxyType(
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
"""How the jobs of each part are run."""
