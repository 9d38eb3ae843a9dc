"""`relook suspects`: images whose labels may be wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relook.api.recorded import as_recorded
from relook.cli.shared import options, sources
from relook.cli.shared.console import (
    console,
    print_json,
    print_verdict,
    progress_bar,
    resumable,
    say,
)
from relook.cli.shared.inputs import PolicySource, images_option
from relook.cli.shared.option_groups import expand_options, option
from relook.deploy.recommended import deployed
from relook.evaluation.suspects import Suspects, find_suspects
from relook.io.fingerprint import fingerprint
from relook.io.run_directory import RunDirectory
from relook.policy.file import policy_to_json
from relook.report.gallery import save_suspects
from relook.report.tables import new_table

_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class SuspectSource(PolicySource):
    """Options of the images to check; those that were searched on may be among them."""

    data: str | None = images_option(
        "Labelled images that the model was not trained on.",
        "the search's test set, or else all of its images",
    )


@expand_options
def suspects_command(
    *,
    checked: SuspectSource,
    as_csv: Path | None = option("Write all suspects to this CSV file.", "--csv"),
    gallery: Path | None = option("Write an .html page with pictures of the first suspects."),
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """List images whose labels may be wrong, the least probable labels first.

    A suspect is an image whose label the average of the policy's views contradicts; it is listed
    with how many views agree. All views are used, even if the verdict recommends another method.
    """
    inputs = checked.read_all()
    _announce_views(checked)
    policy, dataset = inputs.policies[0], inputs.dataset
    target = checked.source.directory or Path("runs/suspects")
    with RunDirectory(target), resumable(timeout=timeout):
        inputs = checked.with_engine(inputs, target, policy.views * len(dataset))
        identity = fingerprint(
            inputs.predictor.fingerprint, dataset.fingerprint, policy_to_json(policy), batch
        )
        with progress_bar("predicting", "views") as bar:
            found = find_suspects(
                inputs.predictor,
                dataset,
                policy,
                store_path=target / f"suspects-{identity[:8]}.zarr",
                batch=batch,
                progress=bar,
            )
    save_suspects(found, as_csv, gallery)
    if as_json:
        print_json(found.to_json())
        return
    _print(found)
    for path in (as_csv, gallery):
        if path is not None:
            say(f"written to {path}")
    print_verdict(found.sentence)


def _announce_views(checked: PolicySource) -> None:
    """Print which views are used if the run's verdict recommends others."""
    if checked.source.directory is None or len(checked.source.policies) > 1:
        return
    judged = sources.load_judged(checked.source, as_recorded(model=checked.model))
    best = deployed(*judged)
    if best.by_verdict and not best.whole:
        used = deployed(*judged, method="policy")
        say(f"{used.text}: the whole policy, though the verdict recommends {best.text}")


def _print(found: Suspects) -> None:
    table = new_table(f"the first {min(_SHOWN, len(found.found))} of {len(found.found):,} suspects")
    for name in ("image", "label", "suggested", "p(label)", "p(suggested)", "views", "confident"):
        table.add_column(name, justify="right" if name.startswith(("p(", "views")) else "left")
    for one in found.found[:_SHOWN]:
        numbers = one.score_text, f"{one.probability:.2f}", f"{one.views_agree}/{found.views}"
        confident = "yes" if one.confident else ""
        table.add_row(one.file, one.label, one.suggested, *numbers, confident)
    console.print(table)
