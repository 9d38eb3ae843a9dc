"""`relook.search`, `compare`, `calibrate`, `load`: each takes (model, images, labels, …)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from relook.api.found import FoundPolicy
from relook.api.judging import calibrated, compared, pair_of, policies_of
from relook.api.progress_bars import ProgressChoice, chosen_bars, is_shown, say
from relook.api.recorded import (
    OF_SESSION,
    as_recorded,
    keeps_full_size,
    next_to,
    recorded_images,
    recorded_model,
)
from relook.data import Dataset, Preparation, as_dataset
from relook.data.adapt import data_spec, prepared_for
from relook.deploy.calibrate import calibrated_policy
from relook.errors import RelookError, RunError, warn
from relook.evaluation.comparison import Comparison
from relook.foundation.registry import check_names
from relook.io.fingerprint import fingerprint
from relook.models import Predictor, as_predictor
from relook.models.base import input_of
from relook.models.describe import model_record
from relook.models.specs import model_spec
from relook.policy import Policy
from relook.policy_search.job import SearchJob, plan_search
from relook.policy_search.run_record import RunRecord, load_run, load_trace, recorded_recipe
from relook.policy_search.search import search_dataset
from relook.policy_search.settings import (
    MODEL_KEYWORDS,
    RecipeChoice,
    SearchKeywords,
    SearchSettings,
)
from relook.policy_search.time_plan import TimeRequest
from relook.report.run_files import read_run

_KEPT_KEYWORDS = ("mean", "std", "outputs", "pretrained", *OF_SESSION)


def search(
    model: object,
    images: Any,
    labels: ArrayLike | None = None,
    *,
    test: Any = None,
    groups: ArrayLike | str | None = None,
    classes: Sequence[str] | str | Path | None = None,
    size: int | tuple[int, int] | None = None,
    crop: float | None = None,
    channels: int | None = None,
    out: str | Path | None = None,
    progress: ProgressChoice = None,
    run: str | Path | None = None,
    **keywords: Unpack[SearchKeywords],
) -> FoundPolicy:
    """Learn which views of an image to average, and compare them on held-out images.

    `model` is a torch module (timm's and Hugging Face's too), an ONNX Runtime session, a path to an
    ONNX file, a spec such as "timm:resnet18@FILE", a function, a Predictor, or a list of these,
    which are averaged; `mean`, `std`, `device`, `outputs` and `pretrained` are the keywords of a
    model. `images` with `labels` are tensors or arrays (uint8, or floats in 0…1; [n, c, h, w],
    [n, h, w, c] or [n, h, w]) or a list of PIL images; a DataLoader, a torch or Hugging Face data
    set, a directory with a folder per class and a spec such as "npz:FILE" include their labels.
    Images of other shapes are converted to `size`, `crop` and `channels` (default: the model's).
    `classes` are names in the model's order, or a file of them; images of one of the `groups` stay
    together.

    With `out`, everything is kept in that directory: the same call resumes an interrupted search,
    and `relook.load` and the command line can use the run. `progress` shows bars, or lines on
    stderr if that is no terminal (False: nothing), or is a function to report to.

    The other keywords are the fields of `SearchSettings` and a few more.
    `recipe` may be a name ("auto": by the images' size and channels), and `exclude` names
    transforms that make no sense for these images. A stratified share `holdout` (1/3) is held
    out, unless separate `test` images are given (with their labels as a pair); `split` sets
    both parts instead: "0.5:0.5", "5000:5000", "2500:rest". With few images, `cross_fit=True` holds
    nothing out and compares on all of them, scoring each half with views learned on the other.

    `time` limits search and comparison together ("15m", "1h30m", or seconds), as does `effort`
    ("quick" is 2 minutes, "normal" 15, "thorough" an hour): if it is short, there are fewer
    candidates and images. The default is "normal", unless `pool_size`, `split` or `holdout` is
    given. With `out`, a run keeps its plan, `plan=RUN` repeats another's, and `finish=True` ends an
    interrupted one with the candidates that are complete. Predictions that runs next to `out` have
    made of the same images with the same model are reused (unless `reuse=False`).

    What is searched: `strategy` ("auto", "conservative", "greedy" or "paper"), `length` (20
    entries), `pool_size` (80; for "greedy" and "paper" the recipe's own number), `draws` ("fixed"
    or "fresh"), `plain` (False leaves the plain image out of the candidates, as the paper's
    ImageNet pool does), `objective` ("cll"), `balanced`, `seed`.
    For speed: `batch` (default: by the images' size), `accelerate` ("torch", "channels-last",
    "onnx", or "auto": the fastest of them, if the work is long), `precision`, `compiled`;
    `race` predicts unpromising candidates only on some of the images. `memory` is how many
    bytes the selection may take (default: 70 % of what is free): with `out`, predictions beyond
    it are read from disk, where they are kept in `store_precision` ("auto": float16 above 200
    classes, else float32).
    """
    if run is not None:
        _warn_former("search(run=…)", "search(out=…)")
    place = None if out is None and run is None else Path(out or run or "")
    reuse = keywords.pop("reuse", True)
    prior, given, model_options, split, time_request = _settings(keywords)
    if split is not None and test is not None:
        raise RelookError("expected a split of the images or separate test images, got both")
    of_spec = {"size": size, "crop": crop} if model_spec(model) is not None else {}
    known = {name: value for name, value in of_spec.items() if value is not None}
    predictor = as_predictor(model, **model_options, **known)
    spec = data_spec(images)
    crops = prior.crops(input_of(predictor))
    wanted = Preparation(
        (size, size) if isinstance(size, int) else size,
        crop,
        channels=channels,
        full_size=spec is not None and keeps_full_size("auto", spec, crops),
        overflow=None if place is None else next_to(place),
    )

    def read(images: Any, labels: ArrayLike | None, **how: Any) -> Dataset:
        ready = prepared_for(images, wanted, predictor)
        how |= {"classes": classes, "outputs": predictor.classes, "preparation": ready}
        return as_dataset(images, labels, **how)

    dataset, test_set = read(images, labels, groups=groups), None
    if test is not None:
        test_set = read(*pair_of(test), like=dataset, name="test images")
    given_as = {name: model_options.get(name) for name in _KEPT_KEYWORDS}
    given_as |= {"size": size, "crop": crop, "channels": channels, "full_size": wanted.full_size}
    origin = _origin(model, images, test, predictor, groups, classes, given_as)
    shape = tuple(dataset.images.shape[1:])
    settings = SearchSettings(prior.of(shape)[0], **given).with_split(split, len(dataset))
    with chosen_bars(progress, str(settings.objective)) as bars:
        found = search_dataset(
            predictor,
            dataset,
            settings,
            test=test_set,
            run=place,
            progress=bars,
            origin=origin,
            log=say if is_shown(progress) else None,
            warn=warn,
            time_request=time_request,
            reuse=reuse,
        )
    return FoundPolicy(
        **vars(found),
        recipe=settings.recipe,
        shape=shape,
        classes=found.comparison.classes,
        origin=origin,
        path=place,
    )


def compare(
    model: object,
    images: Any,
    labels: Any = None,
    *,
    policy: Any = None,
    recipe: Any = None,
    validation: Any = None,
    indices: ArrayLike | None = None,
    store_path: str | Path | None = None,
    progress: Any = None,
    record: Mapping[str, Any] | None = None,
    accelerate: str = "auto",
    **keywords: Any,
) -> Comparison:
    """Score a policy and every baseline at every budget on labelled images.

    Model, images and labels are as for `relook.search`, and so are `mean`, `std`, `device`,
    `outputs`, `classes` and `groups`. `policy` is a policy, its file, a preset's name or a
    sequence of policies, one per run; the random baselines come from `recipe` (default:
    the policy's own). MGrid chooses its magnitude on `validation` images (with their labels as a
    pair). With `store_path` predictions are kept, and an interrupted call can be resumed.
    `ood` are foreign images, of no class that the model knows, to measure how well it detects them.

    Images that the policy was found on are left out, with a warning. `accelerate` is how the model
    runs, as for `relook.search`. The other keywords are the fields of `ComparisonSettings`:
    `budgets`, `methods`, `runs`, `margin`, `seed`, `batch` …
    """
    if policy is None and labels is not None and _is_policy(labels):
        _warn_former(
            "compare(predictor, dataset, policy)", "compare(model, images, labels, policy=…)"
        )
        policy, labels = labels, None
        if progress is not None:  # it took the views and their total
            report = progress
            progress = lambda stage, done, total, score=None: report(done, total)  # noqa: E731
    if policy is None:
        raise RelookError("expected policy=…, a policy, its file or a preset's name, got none")
    options = _pop(keywords, MODEL_KEYWORDS)
    reading = _pop(keywords, ("classes", "groups", "ood"))
    found, _ = compared(
        as_predictor(model, **options),
        images,
        labels,
        policy,
        recipe=recipe,
        indices=indices,
        validation=validation,
        store_path=store_path,
        progress=progress,
        record=record,
        keywords=keywords,  # type: ignore[arg-type]  # whose names are checked there
        engine={"mode": accelerate},
        **reading,
    )
    return found


def calibrate(
    model: object,
    images: Any,
    labels: ArrayLike | None = None,
    *,
    policy: Policy | str | Path,
    reuse_images: bool = False,
    **options: Any,
) -> Policy:
    """Return a policy whose average and temperatures are fitted on labelled images.

    Model, images, labels and the model's keywords are as for `relook.search`. Images that the
    policy was found on are refused unless `reuse_images`; those used here are added to them.
    `options`: `balanced`, `keep_view_temperature`, `batch`, `progress`, `classes`, `groups`.
    """
    (found,) = policies_of(policy)
    predictor = as_predictor(model, **_pop(options, MODEL_KEYWORDS))
    used = None if reuse_images else found.seen
    return calibrated(predictor, images, labels, found, used, **options)


def calibrate_policy(predictor: Predictor, dataset: Dataset, policy: Policy, **how: Any) -> Policy:
    """Return `calibrate(model, images, labels, policy=…)`, whose older form this is."""
    _warn_former(
        "calibrate_policy(predictor, dataset, policy)",
        "calibrate(model, images, labels, policy=…)",
    )
    return calibrated_policy(predictor, dataset, policy, **how).policy


def load(
    run: str | Path,
    model: object = None,
    images: Any = None,
    labels: ArrayLike | None = None,
    **options: Any,
) -> FoundPolicy:
    """Return the result of a search from its directory, made here or by `relook search`.

    Model and images are loaded when needed. If the search got them in memory, give them here. The
    search's keywords are recorded and hold for them too, as far as the model takes them (`mean`,
    `std`, `outputs`, `size`, `classes` …); only `groups` must be given again. A keyword given here
    overrides the recorded one, with a warning if the model's inputs or outputs differ from the
    search's. `device` can always be given.
    """
    check_names("keyword of relook.load", options, (*MODEL_KEYWORDS, "classes", "groups"))
    path = Path(run)
    record, files = load_run(path), read_run(path)
    if files.comparison is None:
        raise RunError(f"{path}: expected comparison.json in the run, got none: search again")
    pool, trace = load_trace(path)
    of_model = _pop(options, MODEL_KEYWORDS)
    names = tuple(map(str, record.data.get("classes") or ()))
    none = np.empty(0, np.int64)

    def model_of_run() -> Predictor:
        return recorded_model(record.origin, path, of_model, model)

    def job_of_run(predictor: Predictor) -> SearchJob:
        found = recorded_images(record, predictor, images, labels, **options)
        return _recorded_job(record, predictor, *found)

    notes, seconds = files.record.get("notes"), files.record.get("seconds")
    return FoundPolicy(
        Policy.load(path / "policy.json"),
        pool,
        trace,
        files.comparison,
        search_indices=none,
        held_out_indices=none,
        timings=seconds if isinstance(seconds, dict) else {},
        notes=tuple(map(str, notes)) if isinstance(notes, list) else (),
        race=record.race,
        probe=record.probe,
        recipe=recorded_recipe(record),
        shape=tuple(record.data.get("shape") or ()),
        classes=(*names, *files.comparison.classes[len(names) :]),
        origin=record.origin,
        path=path,
        model_of_run=model_of_run,
        job_of_run=job_of_run,
    )


def _recorded_job(
    record: RunRecord, predictor: Predictor, dataset: Dataset, test: Dataset | None
) -> SearchJob:
    """Return a run's job with its images, after checking that these are the ones searched on."""
    names = [one.name for one in fields(SearchSettings)]
    known = {name: record.settings[name] for name in names if name in record.settings}
    settings = SearchSettings(**{**known, "recipe": recorded_recipe(record)})
    job = plan_search(predictor, dataset, settings, test=test)
    if fingerprint(job.split.held_out) != record.split.get("held_out_fingerprint"):
        raise RunError(
            f"{record.path}: expected the images that it was searched on, got others: compare "
            "with .compare(images, labels)"
        )
    return job


def _settings(
    keywords: Mapping[str, Any],
) -> tuple[RecipeChoice, dict[str, Any], dict[str, Any], str | None, TimeRequest]:
    """Return the recipe asked for, other settings, the model's keywords, the split and the time."""
    check_names("keyword of relook.search", keywords, SearchKeywords.__annotations__)
    given = dict(keywords)
    model_options, split = _pop(given, MODEL_KEYWORDS), given.pop("split", None)
    prior = RecipeChoice(**_pop(given, ("recipe", "exclude")))
    time_request = TimeRequest.from_keywords(given, split)
    SearchSettings(prior.of((3, 32, 32))[0], **given)  # raises errors before images are read
    return prior, given, model_options, split, time_request


def _origin(
    model: object,
    images: object,
    test: object,
    predictor: Predictor,
    groups: object,
    classes: object,
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """Return where model and images come from, as far as a command line can express it."""
    data, test_spec = data_spec(images), data_spec(test)
    named = classes is None or isinstance(classes, str | Path)
    told = named and (groups is None or isinstance(groups, str))
    if not told or (test is not None and test_spec is None):
        data = None
    of_data = {} if data is None else {"test": test_spec, "group": groups, "classes": classes}
    of_model = {"model": model_spec(model), "model_inputs": model_record(predictor)}
    return as_recorded(**given, **of_data, **of_model, data=data)


def _pop(options: Any, names: Sequence[str]) -> dict[str, Any]:
    """Remove these keywords from the options, and return those that are given."""
    return {name: options.pop(name) for name in names if name in options}


def _is_policy(thing: Any) -> bool:
    several = isinstance(thing, list | tuple) and len(thing) > 0
    return all(isinstance(one, Policy) for one in (thing if several else (thing,)))


def _warn_former(old: str, new: str) -> None:
    warnings.warn(f"relook.{old} is relook.{new} now", DeprecationWarning, stacklevel=3)
