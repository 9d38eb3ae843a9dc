"""The result of a comparison, as frozen data: all that tables and reports read.

It is saved with the images that show what a policy does: gained and lost ones, and a few others.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluation.baselines import POLICY_METHOD
from relook.evaluation.comparison_results import record_of, results_of
from relook.evaluation.results import Results
from relook.evaluation.where import ChangedImage, Where
from relook.foundation import notebook
from relook.foundation.wording import count
from relook.io.files import write_bytes_atomic
from relook.io.records import Kind
from relook.numerics.intervals import Interval
from relook.numerics.metrics import SelectiveRisks
from relook.numerics.randomness import uniforms
from relook.policy import Policy
from relook.policy.file import POLICY_FORM

METRICS_OF_A_ROW = (
    "accuracy",
    "log_likelihood",
    "cll",
    "brier",
    "brier_calibrated",
    "ece",
    "ece_calibrated",
    "temperature",
)
USUAL, LEARNED = "_usual_average", "_learned_average"
"""The endings of cLL and accuracy under the usual average of views, and under a learned one."""
METRICS_OF_AVERAGES = tuple(name + end for end in (USUAL, LEARNED) for name in ("cll", "accuracy"))

MARGIN = 0.001
"""The default margin of indifference: a difference in cLL that nobody should care about."""

RELEVANT_GAIN = 0.01
"""The smallest gain in cLL worth looking for: images whose interval may hide it are too few."""

HELPS, AVERAGING, NO_DIFFERENCE, HURTS = "helps", "averaging helps", "no difference", "hurts"
TOO_FEW = "too few images to tell"

MOST_CHANGED = 12
GALLERY = 6

T = TypeVar("T")

_GALLERY_SLOT = 1 << 31  # away from the slots that views are drawn with


def outcome_of(difference: Interval, margin: float = MARGIN) -> str:
    """Return the outcome for a difference in cLL to the plain image."""
    if difference.low > 0 and difference.estimate > margin:
        return HELPS
    if difference.high < 0 and difference.estimate < -margin:
        return HURTS
    unsure = difference.low <= 0 and difference.high > max(RELEVANT_GAIN, margin)
    return TOO_FEW if unsure else NO_DIFFERENCE


@dataclass(frozen=True)
class Measured:
    """A metric's mean over runs and its standard deviation (0 for a single run)."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Fitted:
    """The temperatures of a deployed method, fitted on all images of the comparison."""

    view_temperature: float
    temperature: float


@dataclass(frozen=True)
class Row:
    """One method at one budget, scored on the held-out images.

    `views` are its model passes per image, at most `budget`; `slowdown` is its time relative to one
    pass over the plain image. Metrics are those of the method's own average: the usual one, or that
    of a policy. `over_plain` and `over_rival` hold the differences in `cll` and `accuracy` to the
    plain image and to the best baseline of the same budget, both with a learned average.
    """

    method: str
    label: str
    budget: int
    views: int
    slowdown: float
    metrics: Mapping[str, Measured]
    over_plain: Mapping[str, Interval] | None = None
    over_rival: Mapping[str, Interval] | None = None
    rival: str | None = None
    fitted: Fitted | None = None

    @property
    def key(self) -> tuple[str, int]:
        """The method and the budget."""
        return self.method, self.budget

    @property
    def best_cll(self) -> float:
        """The cLL with a learned average; a policy's is its own."""
        return self.metrics.get(f"cll{LEARNED}", self.metrics["cll"]).mean

    @property
    def with_learned_average(self) -> Row:
        """The row with the figures of its learned average in place of its own."""
        return replace(
            self,
            metrics=_learned_first(self.metrics),
            over_plain=self.over_plain and _learned_first(self.over_plain),
        )


def _learned_first(found: Mapping[str, T]) -> dict[str, T]:
    return {name: found.get(f"{name}{LEARNED}", one) for name, one in found.items()}


@dataclass(frozen=True)
class ReliabilityBin:
    """Images whose confidence falls into one bin: their share, mean confidence, accuracy."""

    share: float
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Detection:
    """How well a score of the plain image or of the policy detects foreign images.

    `fpr95` is the share of foreign images that pass when 95 % of the own images do, `over_plain`
    the difference in AUROC to the plain image's highest probability.
    """

    method: str
    score: str
    auroc: float
    fpr95: float
    over_plain: Interval | None = None


@dataclass(frozen=True)
class Verdict:
    """The plain answer; `outcome` is `HELPS`, `AVERAGING`, … above.

    `from_views` is the policy's gain in cLL over the plain image with the usual average of its
    views, `from_average` what its own average adds to that.
    """

    outcome: str
    sentence: str
    recommended_method: str
    recommended_views: int
    from_views: float | None = None
    from_average: float | None = None


@dataclass(frozen=True, repr=False)
class Comparison:
    """Every method at every budget on the same images, and the verdict.

    `rows` holds all prefixes that were scored; `budgets` are those asked for. `reliability`
    has the bins of "plain", "policy", "plain_calibrated" and "policy_calibrated". `gallery`,
    `gained` and `lost` refer to images by their index in the data set; `examples.npz` keeps them.
    `against` has the differences in cLL and accuracy between the recommended row and every baseline
    of no more views. `per_image` has the recommended row's values for each image, float32 `[n]`,
    and if there are any, `units` (int32: images of the same number count as one) and `weights`, to
    compare another run with it. `selective` is the gain from leaving unsure images unanswered; None
    if there are too few images.
    """

    policy: Policy
    rows: tuple[Row, ...]
    budgets: tuple[int, ...]
    verdict: Verdict
    reliability: Mapping[str, tuple[ReliabilityBin, ...]]
    gained: tuple[ChangedImage, ...]
    lost: tuple[ChangedImage, ...]
    gained_count: int
    lost_count: int
    gallery: tuple[int, ...]
    images: int
    classes: tuple[str, ...]
    settings: Mapping[str, Any]
    against: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)
    per_image: Mapping[str, bytes] = field(default_factory=dict)
    where: Where | None = None
    selective: SelectiveRisks | None = None
    ood: tuple[Detection, ...] = ()

    @property
    def images_text(self) -> str:
        """The number of images, called held-out only if that is known."""
        if self.settings.get("cross_fit"):
            return f"{count(self.images, 'image')}, each half by views learned on the other"
        kind = "image" if self.settings.get("doubt") else "held-out image"
        return count(self.images, kind)

    @property
    def learned_averages(self) -> Comparison | None:
        """The comparison with learned averages for all methods; None if that changes nothing."""
        changed = any(
            row.metrics.get(f"cll{end}", row.metrics["cll"]) != row.metrics["cll"]
            for row in self.rows
            for end in (USUAL, LEARNED)
        )
        if not changed:
            return None
        return replace(self, rows=tuple(row.with_learned_average for row in self.rows))

    @property
    def recommended(self) -> Row:
        """The row that the verdict recommends."""
        return recommended_row(self.rows, self.verdict)

    @property
    def labels(self) -> Iterator[tuple[str, str]]:
        """The method and the label of each row."""
        return ((row.method, row.label) for row in self.rows)

    def row(self, method: str, budget: int) -> Row | None:
        """Return the row of a method at a budget, if it was scored."""
        return next((row for row in self.rows if row.key == (method, budget)), None)

    def results(self) -> Results:
        """Return every number as rows of one tidy table; `asked` flags the budgets asked for."""
        return results_of(self)

    def meets(self, requirement: str) -> bool:
        """Return whether the recommended row is good enough: "helps", "cll>=0.01" …

        The syntax is in docs/howto/gate.md.

        "cll>=0.01" asks for an interval whose lower end is at least that.
        """
        from relook.evaluation.requirement import check, read_requirement

        return check(self, read_requirement(requirement)).met

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data, as `save` writes it."""
        return COMPARISON.to_json(self)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame: a row per method and budget, a column per number."""
        try:
            import pandas as pd  # type: ignore[import-untyped]
        except ImportError:
            raise RelookError("to_pandas needs pandas: run  pip install pandas") from None
        return pd.DataFrame([record_of(row) for row in self.rows])

    def plot(self, metric: str = "cll") -> Any:
        """Return a matplotlib figure: "cll", "accuracy", "frontier", "reliability" …"""
        return notebook.figure(self, metric)

    def __repr__(self) -> str:
        return notebook.text(self)

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def save(self, path: Path) -> None:
        """Write the comparison as JSON, whole or not at all."""
        COMPARISON.write(path, self)


def policy_row(rows: Sequence[Row], budget: int) -> Row | None:
    """Return the policy's row with the most views within a budget, if there is one."""
    own = [row for row in rows if row.method == POLICY_METHOD and row.budget <= budget]
    return max(own, key=lambda row: row.budget, default=None)


def recommended_row(rows: Sequence[Row], verdict: Verdict) -> Row:
    """Return the row that a verdict recommends, of the smallest budget that has its views."""
    wanted = verdict.recommended_method, verdict.recommended_views
    found = next((row for row in rows if (row.method, row.views) == wanted), None)
    if found is None:
        raise RelookError(
            f"expected a row of the recommended method, {wanted[0]} with {wanted[1]} views"
        )
    return found


COMPARISON = Kind(
    Comparison,
    "relook-comparison",
    version=3,
    what="a comparison",
    command="compare",
    forms={"policy": POLICY_FORM},
)


def load_comparison(path: Path) -> Comparison:
    """Read what `Comparison.save` wrote."""
    return COMPARISON.read(path)


def place_for(directory: Path, comparison: Comparison) -> Path:
    """Return where a comparison is saved: in `narrower` if the one in the directory is fuller."""
    try:
        kept = load_comparison(directory / "comparison.json")
    except RelookError:
        return directory
    return directory / "narrower" if is_narrower(comparison, kept) else directory


def is_narrower(comparison: Comparison, kept: Comparison) -> bool:
    """Return whether the comparison that is kept is fuller, so that this one does not replace it.

    A fuller one is of the same policy, model and images, and has all rows of this one and more, or
    the policy with more views.
    """
    new_rows, kept_rows = ({row.key for row in one.rows} for one in (comparison, kept))
    new_views, kept_views = (
        max((row.views for row in one.rows if row.method == POLICY_METHOD), default=0)
        for one in (comparison, kept)
    )
    loses_no_ood = bool(kept.ood or not comparison.ood)
    fuller = new_views < kept_views or (new_rows < kept_rows and loses_no_ood)
    return fuller and _subject(kept) == _subject(comparison)


def _subject(comparison: Comparison) -> tuple[object, ...]:
    """Return the policy, and the fingerprints of model and images."""
    records = (comparison.settings.get(name) for name in ("model", "data"))
    marks = (one.get("fingerprint") if isinstance(one, Mapping) else None for one in records)
    return comparison.policy, *marks


def class_names(dataset: Dataset, classes: int) -> tuple[str, ...]:
    """Return the data set's names, and numbers for classes that only the model knows."""
    return (*dataset.classes, *(str(i) for i in range(len(dataset.classes), classes)))


def gallery_of(indices: NDArray[np.int64], seed: int) -> tuple[int, ...]:
    """Return a few of the images, drawn by the seed, in rising order."""
    lots = uniforms(seed, image=indices, slot=_GALLERY_SLOT)
    return tuple(sorted(int(i) for i in indices[np.argsort(lots, kind="stable")[:GALLERY]]))


def save_comparison(
    directory: str | Path,
    comparison: Comparison,
    dataset: Dataset,
    indices: ArrayLike | None = None,
) -> None:
    """Write comparison.json, and examples.npz with the images that it names.

    The comparison's indices refer to `dataset`; if that is a part of a larger one, `indices` `[n]`
    are its images' places in that, as given to `compare`. examples.npz, with `indices` `[m]`, uint8
    `images` `[m, c, h, w]`, `labels` `[m]` and, if they are files, `names` `[m]`, is written first.
    """
    changed = (*comparison.gained, *comparison.lost)
    named = {*comparison.gallery, *(one.index for one in changed)}
    wanted = sorted(named | set(comparison.where.examples if comparison.where else ()))
    known = np.arange(len(dataset)) if indices is None else np.asarray(indices)
    places = {int(index): place for place, index in enumerate(known)}
    missing = [index for index in wanted if index not in places]
    if missing:
        raise RelookError(
            f"expected the data set that the comparison was made on, got {dataset.name} with "
            f"{len(dataset)} images and no image {missing[0]}: give the indices too, as to "
            "compare"
        )
    chosen = dataset.subset(np.array([places[index] for index in wanted], dtype=np.int64))
    labels = dict(zip(wanted, chosen.labels.tolist(), strict=True))
    for one in changed:
        if labels[one.index] != one.label:
            raise RelookError(
                f"expected the data set that the comparison was made on: image {one.index} has "
                f"the label {labels[one.index]}, not {one.label}"
            )
    kept: dict[str, Any] = {"indices": np.array(wanted, dtype=np.int64), "labels": chosen.labels}
    if "path" in chosen.columns:
        kept["names"] = chosen.columns["path"].astype(np.str_)
    file = io.BytesIO()
    np.savez(file, images=chosen.plain.cpu().numpy(), **kept)
    write_bytes_atomic(Path(directory) / "examples.npz", file.getvalue())
    comparison.save(Path(directory) / "comparison.json")
