"""`relook show`: the transforms, a policy or a run, as tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text
from torch import Tensor

from relook.cli.shared.console import console, print_json, print_table, print_text, say
from relook.cli.shared.option_groups import argument, expand_options, option
from relook.cli.shared.options import JsonOption
from relook.data.prepare import Preparation
from relook.deploy.batch.image_source import read_unlabelled
from relook.errors import RelookError
from relook.evaluation.comparison import Comparison
from relook.evaluation.latency import LATENCY
from relook.foundation.wording import at_view_temperature, count, two_temperatures
from relook.io.files import one_line, write_bytes_atomic
from relook.policy import Policy
from relook.policy.presets import is_preset, preset_name
from relook.policy.recipes import RECIPES
from relook.policy.transform_counts import transform_statistics
from relook.report.comparison_tables import print_comparison, where_table
from relook.report.deployed_tables import latency_table
from relook.report.gallery import class_name
from relook.report.pictures import (
    builtin_picture,
    png_bytes,
    policy_picture,
    read_picture,
    transforms_picture,
)
from relook.report.run_files import RunFiles, read_run
from relook.transforms import TRANSFORMS

_SHOWN_MAGNITUDES = (0, 10, 20, 30, 45)
_PICTURE_SIDE = 72
_LARGEST_SIDE = 224
_TEMPERATURES_AT = (1, 2, 5, 10, 20, 50, 100)


@expand_options
def show_command(
    *,
    target: str = argument(
        "The word transforms, a policy file, preset:NAME, or a run's directory.", default=...
    ),
    image: Path | None = option("Draw the views of this image (default: a built-in one)."),
    out: Path | None = option("Where to write the picture, as PNG.", dir_okay=False),
    as_json: JsonOption = False,
) -> None:
    """Show the transforms, a policy or a run; --image or --out draw a picture instead."""
    path = Path(target)
    if target == "transforms":
        _show_transforms(image, out, as_json)
    elif path.is_dir():
        _show_run(read_run(path), image, out, as_json)
    elif is_preset(path):
        _show_policy(Policy.load(target), Path(f"{preset_name(target)}.png"), image, out, as_json)
    elif path.exists():
        _show_policy(Policy.load(path), path.with_suffix(".png"), image, out, as_json)
    else:
        raise RelookError(
            f"expected the word transforms, a policy file, preset:NAME or a run's directory, got "
            f"{one_line(target)!r}, which does not exist"
        )


def print_policy(policy: Policy) -> None:
    """Print a policy: its distinct sub-policies with counts, its transforms and temperatures."""
    print_text(_policy_line(policy))
    table = _bare_table("count", "sub-policy")
    for subpolicy, number in policy.counts():
        table.add_row(Text(str(number), justify="right"), Text(str(subpolicy)))
    console.print(table)
    uses = transform_statistics(policy)
    if uses:
        table = _bare_table("transform", numbers=("times used", "mean magnitude"))
        for use in uses:
            table.add_row(use.transform, str(use.count), use.magnitude_text)
        console.print()
        console.print(table)
    temperatures = temperatures_at(policy)
    if temperatures:
        shown = ", ".join(f"{value:.3f} at {views}" for views, value in temperatures.items())
        print_text(f"\ntemperature by views: {shown}")
        if policy.view_temperature > 1:
            print_text(two_temperatures(policy.view_temperature), style="dim")


def _bare_table(*heads: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(*heads, box=None, pad_edge=False, header_style="dim")
    for head in numbers:
        table.add_column(head, justify="right")
    return table


def policy_summary(policy: Policy) -> dict[str, Any]:
    """Return what `print_policy` prints, as JSON-able data."""
    return {
        "entries": len(policy),
        "views": policy.views,
        "draws": "fixed" if policy.is_fixed else "fresh",
        "recipe": policy.recipe,
        "seed": policy.seed,
        "subpolicies": [{"text": str(sub), "count": number} for sub, number in policy.counts()],
        "transforms": [
            {
                "transform": use.transform,
                "count": use.count,
                "mean_magnitude": use.mean_magnitude if use.has_magnitude else None,
            }
            for use in transform_statistics(policy)
        ],
        "temperatures": temperatures_at(policy),
        "view_temperature": policy.view_temperature,
    }


def temperatures_at(policy: Policy) -> dict[int, float]:
    """Return the policy's temperature at some budgets and at its full number of views."""
    if policy.temperatures is None or not len(policy):
        return {}
    budgets = [views for views in _TEMPERATURES_AT if views < policy.views]
    return {
        views: (policy.for_budget(views).temperatures or policy.temperatures)[-1]
        for views in (*budgets, policy.views)
    }


def _policy_line(policy: Policy) -> str:
    kind = "fixed" if policy.is_fixed else "fresh"
    recipe = "" if policy.recipe is None else f", recipe {one_line(policy.recipe)}"
    entries = count(len(policy), "entry", "entries")
    views = count(policy.views, "view")
    distinct = f" ({len(policy.counts())} distinct)" if policy.is_fixed else ""
    average = at_view_temperature(policy.view_temperature)
    how = f"{kind} draws{recipe}, seed {policy.seed}{average}"
    return f"{entries}{distinct}: {views} per image, {how}\n"


def _show_transforms(image: Path | None, out: Path | None, as_json: bool) -> None:
    rows = {
        name: {
            "unit": row.unit,
            "values": {str(m): row.value(m) for m in _SHOWN_MAGNITUDES} if row.trend else None,
            "signed": row.signed,
            "draws": list(row.draws),
        }
        for name, row in TRANSFORMS.items()
    }
    picture = None
    if image is not None or out is not None:
        shown = _picture(image, _PICTURE_SIDE)
        picture = out or Path("transforms.png")
        write_bytes_atomic(picture, png_bytes(transforms_picture(shown)))
    if as_json:
        print_json({"transforms": rows, "picture": None if picture is None else str(picture)})
        return
    if picture is None:
        _print_transforms(rows)
    else:
        typer.echo(picture)


def _print_transforms(rows: Mapping[str, Mapping[str, Any]]) -> None:
    table = _bare_table("transform", "unit", numbers=[f"M = {one}" for one in _SHOWN_MAGNITUDES])
    for name, row in rows.items():
        sign = "±" if row["signed"] else ""
        values = [f"{sign}{value:.3g}" for value in (row["values"] or {}).values()]
        table.add_row(name, row["unit"] if values else "", *values)
    console.print(table)
    say("relook show transforms --out FILE.png  draws them")


def _show_policy(
    policy: Policy, default: Path, image: Path | None, out: Path | None, as_json: bool
) -> None:
    picture = _draw_policy(policy, default, image, out)
    if as_json:
        print_json({**policy_summary(policy), "picture": picture and str(picture)})
        return
    if picture is None:
        print_policy(policy)
    else:
        typer.echo(picture)


def _draw_policy(
    policy: Policy,
    default: Path,
    image: Path | None,
    out: Path | None,
    record: Mapping[str, Any] | None = None,
) -> Path | None:
    if image is None and out is None:
        return None
    # A crop of 4 pixels is one thing at 32 pixels and another at 224: draw at the network's size,
    # or else at the recipe's.
    wanted = _searched_as(policy, record or {})
    if image is not None and wanted.size is not None:
        shown = read_unlabelled(image, wanted).images
    else:
        recipe = RECIPES.get(policy.recipe or "")
        side = (recipe.image_size if recipe else None) or _LARGEST_SIDE
        shown = _picture(image, min(wanted.size or (side,)))[None]
    target = out or default
    write_bytes_atomic(target, png_bytes(policy_picture(policy, shown)))
    return target


def _searched_as(policy: Policy, record: Mapping[str, Any]) -> Preparation:
    """Return how the search prepared images, as far as the policy or its run's record knows."""
    data, plan = record.get("data"), policy.preparation
    shape = data.get("shape") if isinstance(data, Mapping) else None
    wanted = (
        Preparation()
        if plan is None
        else Preparation(full_size=plan.full_size, channels=plan.channels)
    )
    if isinstance(shape, list) and len(shape) == 3 and all(type(side) is int for side in shape):
        wanted = replace(wanted, channels=shape[0], size=(shape[1], shape[2]))
    return wanted.as_searched(plan)


def _picture(image: Path | None, side: int) -> Tensor:
    return builtin_picture(side) if image is None else read_picture(image, side)


def _show_run(run: RunFiles, image: Path | None, out: Path | None, as_json: bool) -> None:
    picture = None
    if run.policy is not None:
        picture = _draw_policy(run.policy, run.path / "policy.png", image, out, run.record)
    if as_json:
        print_json(
            {
                "run": str(run.path),
                "policy": None if run.policy is None else policy_summary(run.policy),
                "comparison": None if run.comparison is None else run.comparison.to_json(),
                "latency": None if run.latency is None else LATENCY.to_json(run.latency),
                "scores": list(run.scores),
                "picture": picture and str(picture),
            }
        )
        return
    if picture is not None:
        typer.echo(picture)
        return
    if run.policy is not None:
        print_policy(run.policy)
        console.print()
    if run.comparison is not None:
        print_comparison(run.comparison, console)
        _print_where(run.comparison)
        if run.latency is not None:
            console.print()
            print_table(latency_table(run.latency))
            print_text(run.latency.sentence)
    else:
        say(f"no comparison yet;  relook compare {one_line(str(run.path))}  adds one")


def _print_where(comparison: Comparison) -> None:
    """Print where the policy gains and loses, and which confusions it corrects and causes."""
    where = comparison.where
    if where is None:
        return
    console.print()
    print_table(where_table(where))
    for verb, found in (("corrects", where.mended), ("makes", where.made)):
        pairs = (
            f"{class_name(comparison.classes, one.label)} → "
            f"{class_name(comparison.classes, one.answer)} ({one.images})"
            for one in found
        )
        text = f"confusions it {verb} (true class → answer): {', '.join(pairs) or 'none'}"
        print_text(text)
