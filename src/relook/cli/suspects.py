"""`relook suspects`: images whose labels may be wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relook.api.recorded import as_recorded
from relook.cli.shared import options, sources
from relook.cli.shared.console import console, print_json, progress_bar, resumable, say
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
    """Options of what is looked at: searched images too."""

    data: str | None = images_option(
        "Labelled images that the model was not trained on.",
        "the search's test set, or else all of its images",
    )


@expand_options
def suspects_command(
    *,
    looked_at: SuspectSource,
    as_csv: Path | None = option("Write all suspects to this CSV file.", "--csv"),
    gallery: Path | None = option("Write a page with pictures of the first ones, .html."),
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """List images whose label the policy's average contradicts, least probable label first.

    Each is listed with how many views agree. All views of the policy are taken, also where the
    verdict recommends another method.
    """
    inputs = looked_at.read_all()
    _say_views(looked_at)
    policy, dataset = inputs.policies[0], inputs.dataset
    target = looked_at.source.directory or Path("runs/suspects")
    with RunDirectory(target), resumable(timeout=timeout):
        inputs = looked_at.with_engine(inputs, target, policy.views * len(dataset))
        asked = fingerprint(
            inputs.predictor.fingerprint, dataset.fingerprint, policy_to_json(policy), batch
        )
        with progress_bar("predicting", "views") as bar:
            found = find_suspects(
                inputs.predictor,
                dataset,
                policy,
                store_path=target / f"suspects-{asked[:8]}.zarr",
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
    console.print(found.sentence, soft_wrap=True, markup=False, style="bold")


def _say_views(looked_at: PolicySource) -> None:
    """Say which views are taken, where the run's verdict recommends others."""
    if looked_at.source.directory is None or len(looked_at.source.policies) > 1:
        return
    judged = sources.load_judged(looked_at.source, as_recorded(model=looked_at.model))
    best = deployed(*judged)
    if best.by_verdict and not best.whole:
        taken = deployed(*judged, method="policy")
        say(f"{taken.text}: all of the policy, though the verdict recommends {best.text}")


def _print(found: Suspects) -> None:
    table = new_table(f"the first {min(_SHOWN, len(found.found))} of {len(found.found):,} suspects")
    for name in ("image", "label", "suggested", "p(label)", "p(suggested)", "views", "confident"):
        table.add_column(name, justify="right" if name.startswith(("p(", "views")) else "left")
    for one in found.found[:_SHOWN]:
        numbers = f"{one.score:.2g}", f"{one.probability:.2f}", f"{one.views_agree}/{found.views}"
        confident = "yes" if one.confident else ""
        table.add_row(one.file, one.label, one.suggested, *numbers, confident)
    console.print(table)
