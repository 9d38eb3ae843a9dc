"""`relook compare`: a policy beside every baseline, on images that it was not searched on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from relook.baselines import BASELINES, Options
from relook.cli import full_size as images_kept
from relook.cli import options, sources
from relook.cli.console import console, print_json, progress_bar, resumable, say
from relook.comparing import compare, save_comparison
from relook.comparison import Comparison, Row
from relook.data import Dataset
from relook.errors import RelookError
from relook.files import write_text_atomic
from relook.fingerprint import fingerprint
from relook.held_out import Split, held_out_part, recorded_recipe
from relook.models import Predictor
from relook.policy import Policy
from relook.policy_file import policy_to_json
from relook.recipes import Recipe, get_recipe
from relook.run_directory import RunDirectory
from relook.run_record import RunRecord, load_run
from relook.tables import fitting_table, frontier_table, to_csv, to_latex
from relook.verdict import MARGIN, pick

_FILES = "Results"
_OF_DATA = ("data", "test", "group", "skip_bad")


@dataclass(frozen=True)
class Inputs:
    """What a comparison is made of; `indices` are the images' places in the whole data set."""

    predictor: Predictor
    dataset: Dataset
    indices: NDArray[np.int64]
    validation: Dataset | None
    policies: tuple[Policy, ...]
    recipe: Recipe
    record: Mapping[str, Any]


def compare_command(
    run: sources.RunOption = None,
    model: sources.OwnModelOption = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="Labelled images that the policy was not searched on: folder:DIR, npz:FILE …",
            rich_help_panel=sources.PANEL,
        ),
    ] = None,
    policy: sources.PoliciesOption = None,
    validation: Annotated[
        str | None,
        typer.Option(
            help="Images to search MGrid's magnitude on; with --run, those of the search.",
            rich_help_panel=sources.PANEL,
        ),
    ] = None,
    budgets: Annotated[str, typer.Option(help="Numbers of views to compare at.")] = "1,5,10,20",
    methods: Annotated[
        str | None,
        typer.Option(help=f"Baselines, all by default: {','.join(BASELINES)}."),
    ] = None,
    runs: sources.RunsOption = 1,
    margin: Annotated[
        float, typer.Option(help="A difference in cLL that you would not care about.", min=0)
    ] = MARGIN,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Where the random baselines come from: cifar, imagenet, small, or a TOML file; "
            "the policy's own by default."
        ),
    ] = None,
    exclude: options.ExcludeOption = None,
    train_length: Annotated[
        int, typer.Option(help="Steps of a RandAugment sub-policy (MTrain, MGrid).", min=0)
    ] = Options.length,
    train_magnitude: Annotated[
        float, typer.Option(help="The magnitude that the model was trained with (MTrain).", min=0)
    ] = Options.magnitude,
    grid_views: sources.GridViewsOption = Options.grid_views,
    budget_views: Annotated[
        int | None, typer.Option(help="Pick the best for at most so many views.", min=1)
    ] = None,
    max_slowdown: Annotated[
        float | None, typer.Option(help="Pick the best for at most so many times the time.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where comparison.json and predictions go: --run, or else runs/compare.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    as_csv: Annotated[
        Path | None,
        typer.Option("--csv", help="Write every row to this CSV file.", rich_help_panel=_FILES),
    ] = None,
    latex: Annotated[
        Path | None,
        typer.Option(help="Write a table like the paper's to this file.", rich_help_panel=_FILES),
    ] = None,
    group: options.GroupOption = None,
    size: options.SizeOption = None,
    crop: options.CropOption = None,
    channels: options.ChannelsOption = None,
    skip_bad: options.SkipBadOption = False,
    classes: options.ClassesOption = None,
    full_size: images_kept.FullSizeOption = "auto",
    cache: images_kept.CacheOption = None,
    mean: options.MeanOption = None,
    std: options.StdOption = None,
    outputs: Annotated[
        str | None,
        typer.Option(
            help="What the model returns: logits, probabilities or log_probs.",
            rich_help_panel=sources.PANEL,
        ),
    ] = None,
    pretrained: options.PretrainedOption = False,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    batch: options.BatchOption = 256,
    as_json: options.JsonOption = False,
) -> None:
    """Compare a policy with every baseline on held-out images, and say whether it helps."""
    asked = read_budgets(budgets)
    given = options.origin(
        model=model or None,
        pretrained=pretrained or None,
        data=data,
        validation=validation,
        group=group,
        mean=mean,
        std=std,
        outputs=outputs,
        recipe=recipe,
        exclude=exclude,
        size=size,
        crop=crop,
        channels=channels,
        skip_bad=skip_bad or None,
        classes=classes,
        cache=cache,
    )
    inputs = read_inputs(run, policy, given, device, full_size)
    settings = Options(train_length, train_magnitude, grid_views=grid_views)
    target = out or run or Path("runs/compare")
    chosen = None if methods is None else options.names(methods)
    store = _store_name(inputs, settings, asked, chosen, runs, seed, batch)
    with (
        RunDirectory(target),
        resumable("Run the same command again to go on."),
        progress_bar("predicting", "views") as bar,
    ):
        comparison = compare(
            inputs.predictor,
            inputs.dataset,
            inputs.policies,
            indices=inputs.indices,
            validation=inputs.validation,
            recipe=inputs.recipe,
            budgets=asked,
            methods=chosen,
            options=settings,
            seed=seed,
            runs=runs,
            margin=margin,
            store_path=target / store,
            batch=batch,
            progress=bar,
            record=inputs.record,
        )
        save_comparison(target, comparison, inputs.dataset, inputs.indices)
    if as_csv is not None:
        write_text_atomic(as_csv, to_csv(comparison))
    if latex is not None:
        text = to_latex(comparison, inputs.dataset.name, inputs.record["model"]["spec"])
        write_text_atomic(latex, text)
    picked = None
    if budget_views is not None or max_slowdown is not None:
        picked = pick(comparison, budget_views, max_slowdown)
    _print(comparison, picked, target, as_json)


def read_inputs(
    run: Path | None,
    policy: list[Path] | None,
    given: Mapping[str, Any],
    device: str,
    full_size: str,
) -> Inputs:
    """Bring model, images, policies and recipe together, from a run or from the options."""
    if run is None:
        missing = [f"--{name}" for name in ("model", "data") if name not in given]
        if not policy:
            missing.append("--policy")
        if missing:
            raise RelookError(f"expected --run, or else {' and '.join(missing)} besides")
        return _from_options(policy or [], given, device, full_size)
    record = load_run(run)
    recorded = dict(record.origin)
    if "data" in given:  # other images: what was said of the search's does not hold for them
        recorded = {name: value for name, value in recorded.items() if name not in _OF_DATA}
    elif "test" in recorded:
        searched = recorded.pop("data")
        recorded = {**recorded, "validation": searched, "data": recorded["test"]}
        recorded.pop("group", None)
    merged = {**recorded, **given}
    if "model" not in merged or "data" not in merged:
        raise RelookError(f"{run} was searched from Python: give --model and --data")
    return _from_options(policy or [run / "policy.json"], merged, device, full_size, record)


def _from_options(
    paths: list[Path],
    given: Mapping[str, Any],
    device: str,
    full_size: str,
    record: RunRecord | None = None,
) -> Inputs:
    policies = tuple(Policy.load(path) for path in paths)
    given = {**given, "full_size": _full_size(full_size, given["data"], paths[0], policies)}
    predictor = options.read_model(
        given["model"],
        given.get("mean"),
        given.get("std"),
        given.get("outputs"),
        device,
        size=given.get("size"),
        crop=given.get("crop"),
        pretrained=given.get("pretrained", False),
    )
    dataset, validation = _images(given, predictor, None if record is None else record.path)
    splits = [split for path in paths if (split := held_out_part(path, dataset)) is not None]
    indices = np.arange(len(dataset))
    if splits:
        dataset, indices, validation = _held_out(splits, validation)
    kept = {
        "command": shlex.join(["relook", *sys.argv[1:]]),
        "model": {"spec": " + ".join(options.as_list(given["model"]))},
        "data": {"spec": given["data"]},
    }
    if record is None and (paths[0].parent / "run.json").is_file():
        record = load_run(paths[0].parent)
    recipe = _recipe(given, policies[0], record)
    return Inputs(predictor, dataset, indices, validation, policies, recipe, kept)


def _full_size(asked: str, spec: str, path: Path, policies: Sequence[Policy]) -> bool:
    """Return whether files are kept at full size: as in the search, where there is its record."""
    was = images_kept.was_full_size(path) if asked == "auto" else None
    crops = images_kept.begins_with_crops(policies) if was is None else was
    return images_kept.keeps_full_size(asked, spec, crops)


def _images(
    given: Mapping[str, Any], predictor: Predictor, run: Path | None
) -> tuple[Dataset, Dataset | None]:
    """Return the images to compare on and those for validation, with the same classes."""
    overflow = None if run is None else images_kept.beside(run)
    how = {"model": predictor, "overflow": overflow, **options.images_of(given)}
    if "validation" not in given:
        return options.read_data(given["data"], given.get("group"), **how), None
    if "test" in given:  # the search read its own images first, and the test set like them
        validation = options.read_data(given["validation"], **how)
        return options.read_data(given["data"], like=validation, **how), validation
    dataset = options.read_data(given["data"], given.get("group"), **how)
    return dataset, options.read_data(given["validation"], like=dataset, **how)


def _held_out(
    splits: list[Split], validation: Dataset | None
) -> tuple[Dataset, NDArray[np.int64], Dataset]:
    """Keep the images that no search saw; those of the first search serve for validation."""
    whole = splits[0].dataset
    held_out = splits[0].held_out
    for split in splits[1:]:
        held_out = np.intersect1d(held_out, split.held_out)
    if not len(held_out):
        raise RelookError("expected images that none of the policies was searched on, got none")
    say(
        f"{whole.name} is what the policy was searched on: only its {len(held_out):,} held-out "
        "images are used"
    )
    return whole.subset(held_out), held_out, validation or whole.subset(splits[0].search)


def _recipe(given: Mapping[str, Any], policy: Policy, record: RunRecord | None) -> Recipe:
    """Return the recipe of the option, of the search, or of the policy, whichever is there."""
    if "recipe" in given:
        found = get_recipe(given["recipe"])
    elif record is not None:
        found = recorded_recipe(record)
    elif policy.recipe is not None:
        found = get_recipe(policy.recipe)
    else:
        raise RelookError("the policy does not say which recipe it comes from: give --recipe")
    return found.without(options.names(given.get("exclude")))


def read_budgets(text: str) -> tuple[int, ...]:
    """Read `1,5,10,20`."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise RelookError(
            f"--budgets: expected whole numbers like 1,5,10,20; got {text!r}"
        ) from None


def _store_name(inputs: Inputs, settings: Options, *rest: Any) -> str:
    """Name the store by what is asked for, so that no other question meets its predictions."""
    mark = fingerprint(
        inputs.predictor.fingerprint,
        inputs.dataset.fingerprint,
        inputs.recipe.to_json(),
        [policy_to_json(policy) for policy in inputs.policies],
        asdict(settings),
        *rest,
    )
    return f"compare-{mark[:8]}.zarr"


def _print(comparison: Comparison, picked: Row | None, out: Path, as_json: bool) -> None:
    for method, reason in comparison.settings["left_out"].items():
        say(f"left out: {method}: {reason}")
    if as_json:
        chosen = None if picked is None else {"method": picked.method, "views": picked.views}
        print_json({"out": str(out), "picked": chosen, **comparison.to_json()})
        return
    console.print(fitting_table(comparison, console))
    console.print(frontier_table(comparison))
    say(f"written to {out}: comparison.json, examples.npz")
    if picked is not None:
        cll, accuracy = picked.metrics["cll"].mean, picked.metrics["accuracy"].mean
        console.print(
            f"Picked: {picked.label} with {picked.views} views: cLL {cll:.4f}, "
            f"accuracy {100 * accuracy:.2f} %, {picked.slowdown:.1f} × the time of one view.",
            soft_wrap=True,
            markup=False,
        )
    console.print(comparison.verdict.sentence, soft_wrap=True, markup=False, style="bold")
