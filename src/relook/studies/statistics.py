"""The transforms that policies are made of, group by group (the paper's last appendix figure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from relook.errors import RelookError
from relook.evaluation.results import Result, Results
from relook.foundation.wording import count
from relook.policy import Policy
from relook.policy.transform_counts import IDENTITY, magnitudes_of
from relook.report.tables import Cell, Column, Line, Table, table_of
from relook.studies.study import Study
from relook.transforms import TRANSFORMS

if TYPE_CHECKING:  # drawing needs matplotlib
    from relook.report.figures import Drawing

ALL = "all"
"""Stands for all transforms that change the image."""


def statistics(groups: Mapping[str, Sequence[Policy]]) -> Results:
    """Count the transforms of each group's policies; repeated entries count each time.

    The metric `count` is how often a policy uses a transform, on average over the group's
    policies; `magnitude` is the mean over all uses, for transforms with a magnitude; `entries`
    counts sub-policies, `plain_entries` those that leave the image unchanged. How steps are
    counted is defined in `policy.transform_counts`.
    """
    if not groups:
        raise RelookError("expected at least 1 group of policies, got none")
    for name, policies in groups.items():
        if not policies or not all(len(policy) for policy in policies):
            raise RelookError(f"group {name!r}: expected policies with at least 1 entry each")
    uses = {name: magnitudes_of(policies) for name, policies in groups.items()}
    used = [name for name in TRANSFORMS if any(name in own for own in uses.values())]
    counts = {t: sum(len(uses[g].get(t, ())) / len(groups[g]) for g in groups) for t in used}
    used.sort(key=lambda name: (name == IDENTITY, -counts[name]))
    rows = [
        row for name, policies in groups.items() for row in _rows(name, policies, uses[name], used)
    ]
    return Results(STUDY.name, tuple(rows))


def tables(results: Results) -> list[Table]:
    """Return a line per transform with its count per policy and its mean magnitude by group."""
    groups = results.values("group")
    columns = [Column("transform", number=False, levels=("", "Transform"))]
    for group in groups:
        for metric, head, level in (("count", group, "Count"), ("magnitude", "M", "M")):
            where = {"group": group, "metric": metric}
            columns.append(Column(head, where, levels=(group, level)))
    lines = [Line((name.replace("_", " "),), {"transform": name}) for name in _transforms(results)]
    table = table_of(
        results,
        columns,
        [lines, [Line(("all that change the image",), {"transform": ALL})]],
        missing="–",
        title="uses of each transform in a policy, and their mean magnitude (M)",
        caption="Counts and mean magnitudes of the transforms in learned policies.",
        label="table:transform-hist",
    )
    plain = [Cell("entries that are the plain image")]
    for group in groups:
        own = results.where(group=group)
        some, entries = own.one(metric="plain_entries"), own.one(metric="entries")
        plain += [Cell(f"{_number(some.value)} of {_number(entries.value)}"), Cell()]
    *before, last = table.sections
    return [replace(table, sections=(*before, (*last, tuple(plain))))]


def figures(results: Results) -> list[Drawing]:
    """Draw how often and how strongly policies use each transform that changes the image."""
    from relook.report.shapes import bars_drawing, named_styles

    names = [name for name in _transforms(results) if name != IDENTITY]
    groups = {
        group: count(own.rows[0]["policies"], "policy", "policies")
        for (group,), own in results.groups("group")
    }
    styles = {
        group: replace(style, label=f"{group} ({groups[group]})")
        for group, style in named_styles(groups).items()
    }

    def value(group: str, name: str, metric: str) -> float:
        row = results.get(group=group, transform=name, metric=metric)
        return 0.0 if row is None else row.value

    panels = {
        title: {group: [value(group, name, metric) for name in names] for group in groups}
        for title, metric in (("uses in a policy", "count"), ("mean magnitude", "magnitude"))
    }
    words = "; ".join(_words(results.where(group=group), group, names) for group in groups)
    shown = [name.replace("_", " ") for name in names]
    title = "Transforms of learned policies"
    return [bars_drawing("policy_transforms", title, shown, panels, styles, f"{words}.")]


STUDY = Study(
    "statistics",
    "What the policies are made of",
    "Figure transform_hist",
    "How often the learned policies use each transform, and its mean magnitude, by how the "
    "networks were trained.",
    tables,
    lambda results: tables(results)[0],
    figures,
)


def _rows(
    group: str,
    policies: Sequence[Policy],
    magnitudes: Mapping[str, Sequence[float]],
    transforms: Sequence[str],
) -> Iterator[Result]:
    share = 1 / len(policies)
    keys = {"group": group, "policies": len(policies)}
    changing = [name for name in magnitudes if name != IDENTITY]
    for name, counted in (*((one, [one]) for one in transforms), (ALL, changing)):
        uses = sum(len(magnitudes.get(one, ())) for one in counted)
        yield Result("count", share * uses, keys={**keys, "transform": name})
        strong = [m for one in counted if TRANSFORMS[one].trend for m in magnitudes.get(one, ())]
        if strong:
            mean = sum(strong) / len(strong)
            yield Result("magnitude", mean, keys={**keys, "transform": name})
    plain = sum(sub.is_plain for policy in policies for sub in policy)
    yield Result("entries", share * sum(map(len, policies)), keys=keys)
    yield Result("plain_entries", share * plain, keys=keys)


def _transforms(results: Results) -> list[str]:
    return [name for name in results.values("transform") if name != ALL]


def _number(value: float) -> str:
    return f"{value:g}" if value == round(value) else f"{value:.1f}"


def _words(own: Results, group: str, names: Sequence[str]) -> str:
    texts = []
    for name in names:
        magnitude = own.get(transform=name, metric="magnitude")
        text = f"{name.replace('_', ' ')} {own.one(transform=name, metric='count').value:.3g} times"
        texts.append(text if magnitude is None else f"{text} at {magnitude.value:.1f}")
    return f"{group}: {', '.join(texts) or 'nothing changes the image'}"
