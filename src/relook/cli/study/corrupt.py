"""`relook study corrupt`: the fifteen common corruptions, in the published layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from relook.cli.shared import loading, options
from relook.cli.shared.console import print_json, progress_bar, resumable, say
from relook.cli.shared.option_groups import expand_options, option
from relook.errors import RelookError
from relook.studies.corruptions import CORRUPTIONS, check_corruptions, check_severities
from relook.studies.corruptions.write import write_arrays, write_folders, write_npz

CorruptionsOption = Annotated[
    str | None, option(f"Corruptions, by default all: {','.join(CORRUPTIONS)}.")
]
SeveritiesOption = Annotated[str | None, option("Severities, such as 1,3,5.", shown="1,2,3,4,5")]


@expand_options
def corrupt_command(
    *,
    data: options.DataOption,
    out: Path = option(
        "A directory, which gets CIFAR-10-C's layout (one .npy file per corruption) or, for "
        "folder: data, ImageNet-C's; or FILE.npz for one corruption at one severity.",
        default=...,
    ),
    corruptions: CorruptionsOption = None,
    severities: SeveritiesOption = None,
    jpeg: bool = option(
        "Write folders as JPEG of quality 85, like ImageNet-C, instead of PNG.",
        "--jpeg",
        default=False,
    ),
    seed: options.SeedOption = 0,
    shape: options.ShapeOptions,
    skip_bad: options.SkipBadOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Write corrupted versions of labelled images, for measuring robustness."""
    chosen, levels = read_conditions(corruptions, severities)
    single = out.suffix.lower() == ".npz"
    folders = data.startswith("folder:") and not single
    if single and (len(chosen), len(levels)) != (1, 1):
        raise RelookError(
            f"{out}: expected one corruption at one severity for a file (--corruptions fog "
            f"--severities 3), got {len(chosen)} at {len(levels)}: give a directory"
        )
    if jpeg and not folders:
        raise RelookError(f"--jpeg: expected data from folder:DIR, got {data}")
    dataset = loading.read_data(data, skip_bad=skip_bad, **vars(shape))
    keywords: dict[str, Any] = {"corruptions": chosen, "severities": levels, "seed": seed}
    with resumable(), progress_bar("corrupting", "images") as bar:
        if single:
            write_npz(dataset, out, chosen[0], levels[0], seed=seed, progress=bar)
            written = [out]
        elif folders:
            written = write_folders(dataset, out, jpeg=jpeg, progress=bar, **keywords)
        else:
            written = write_arrays(dataset, out, progress=bar, **keywords)
    if as_json:
        files = [str(path) for path in written]
        print_json({"out": str(out), "corruptions": list(chosen), "files": files})
        return
    count = len(dataset) * len(chosen) * len(levels)
    say(f"written to {out}: {count:,} images, {len(chosen)} corruptions × {len(levels)} severities")


def read_conditions(
    corruptions: str | None, severities: str | None
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Parse and check `fog,snow` and `1,3,5`; None means all."""
    names = check_corruptions(None if corruptions is None else loading.read_names(corruptions))
    levels = None
    if severities is not None:
        levels = loading.whole_numbers(severities, "--severities", "from 1 to 5 like 1,3,5")
    return names, check_severities(levels)
