"""Copy what a study found into the documentation: its page, and a JSON file for each finished job.

    python tools/keep_results.py runs/shared-cifar10 --data DIR --out docs/results/shared-cifar10

DIR, where the study's data and networks were, is called DIR in the copies, and the study's own
directory OUT. Of figures the SVG is kept, of tables the CSV.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relook.io.files import read_json, write_bytes_atomic, write_json_atomic

_DONE = "done.json"
_DIGITS = 6


def kept(job: Path, places: Mapping[str, str]) -> dict[str, Any]:
    """Return a job's results by file name, with when and how long it ran."""
    done: Any = read_json(job / _DONE, what="the mark of a finished job")
    results = {
        name.removeprefix("run/").removesuffix(".json"): _without(
            read_json(job / name, what="a result"), places
        )
        for name in done["files"]
        if name.endswith(".json") and not name.endswith("run.json")
    }
    return {"finished": done["finished"], "seconds": round(done["seconds"]), **results}


def _without(value: Any, places: Mapping[str, str]) -> Any:
    """Return the content with places by their names, and floats as long as they mean much."""
    if isinstance(value, dict):
        return {key: _without(one, places) for key, one in value.items()}
    if isinstance(value, list):
        return [_without(one, places) for one in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if not isinstance(value, str):
        return value
    for place, name in places.items():
        value = value.replace(place, name)
    return value


def keep_page(study: Path, places: Mapping[str, str], out: Path) -> None:
    """Copy the study's page with its figures and tables."""
    for folder, ending in (("figures", "svg"), ("tables", "csv")):
        (out / folder).mkdir(parents=True, exist_ok=True)
        for file in sorted((study / folder).glob(f"*.{ending}")):
            text = _without(file.read_text("utf-8"), places)
            write_bytes_atomic(out / folder / file.name, text.encode())
    page = (study / "index.md").read_text("utf-8").replace(".png)", ".svg)")
    page = re.sub(r"The table as \[md\].*?(\[csv\]\([^)]*\)).*", r"The table as \1.", page)
    write_bytes_atomic(out / "index.md", page.encode())


def main() -> None:
    """Run what the options ask for."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("study", type=Path, help="the study's --out")
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    given = options.parse_args()
    places = {str(given.data.absolute()): "DIR", str(given.study.absolute()): "OUT"}
    for mark in sorted((given.study / "jobs").glob(f"*/*/{_DONE}")):
        job = mark.parent
        name = f"{job.parent.name}-{job.name.rpartition('-')[0]}.json"
        content = kept(job, places)
        write_json_atomic(given.out / name, content)
        print(f"{given.out / name}: {len(json.dumps(content)):,} characters")
    keep_page(given.study, places, given.out)


if __name__ == "__main__":
    main()
