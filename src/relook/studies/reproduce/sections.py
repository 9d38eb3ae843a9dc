"""A study's results as sections in the paper's order, each with its tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from relook.evaluation.baselines import POLICY_METHOD
from relook.report.figures import Drawing
from relook.studies.ensembles_figures import ensembles_drawings
from relook.studies.ensembles_tables import (
    ensembles_csv,
    ensembles_latex,
    ensembles_markdown,
)
from relook.studies.magnitudes_figures import magnitudes_drawing
from relook.studies.magnitudes_tables import (
    magnitudes_csv,
    magnitudes_latex,
    magnitudes_markdown,
)
from relook.studies.metric_tables import metrics_csv, metrics_latex, metrics_markdown
from relook.studies.objectives_tables import (
    objectives_csv,
    objectives_latex,
    objectives_markdown,
)
from relook.studies.paper_figures import methods_drawing, shift_drawing
from relook.studies.paper_tables import (
    PaperTable,
    corruption_table,
    in_domain_table,
    paper_csv,
    paper_latex,
    paper_markdown,
)
from relook.studies.policy_histogram import policy_histogram
from relook.studies.policy_histogram_figures import histogram_drawing
from relook.studies.policy_histogram_tables import (
    histogram_csv,
    histogram_latex,
    histogram_markdown,
)
from relook.studies.reproduce.checks import slug
from relook.studies.reproduce.plan import Entry
from relook.studies.reproduce.results import Results
from relook.studies.reproduce.settings import GIVEN, VANILLA
from relook.studies.temperature_figures import temperature_drawing
from relook.studies.transfer_figures import transfer_drawings
from relook.studies.transfer_tables import transfer_csv, transfer_latex, transfer_markdown

TRAININGS = {"randaugment": "RandAugment", VANILLA: "vanilla", "none": "no augmentation"}
"""What tables call the augmentations that networks are trained with."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class TableFiles:
    """One table in its three forms; `name` is the files'."""

    name: str
    markdown: str
    csv: str
    latex: str


@dataclass(frozen=True)
class Section:
    """One study: what it asks, what of the paper it is, its tables and figures."""

    name: str
    title: str
    paper: str
    words: str
    tables: tuple[TableFiles, ...] = ()
    drawings: tuple[Drawing, ...] = ()


def study_sections(results: Results) -> list[Section]:
    """Return what the results show, in the paper's order; a part without results is left out."""
    found = [section for make in _MAKERS for section in make(results)]
    return [section for section in found if section.tables or section.drawings]


def _in_domain(results: Results) -> Iterator[Section]:
    budgets = results.study.compare.table
    main = _main(results, results.comparisons)
    tables = []
    if main:
        table = in_domain_table({(e.data, e.model): one for e, one in main.items()}, budgets)
        tables.append(_paper_table("in-domain", table))
    yield Section(
        "in-domain",
        "Performance on clean images",
        "Figures in-domain-cifar100 and in-domain-cifar10; Tables acc-nll-cifars, acc-nll-ImageNet",
        "Calibrated log-likelihood and accuracy against the number of views, on images that no "
        "search has seen. The band of the learned policy is its deviation over runs or, for a "
        "single run, the 95 % interval of its difference to the plain image.",
        tuple(tables),
        tuple(
            methods_drawing(_name(results, "in-domain", data), f"Clean images, {data}", named)
            for data, named in _by_data(results, main)
        ),
    )


def _metrics(results: Results) -> Iterator[Section]:
    main = _main(results, results.comparisons)
    if not main:
        return
    named = {(e.data, e.model): one for e, one in main.items()}
    budgets = results.study.compare.table
    yield Section(
        "metrics",
        "Every metric on clean images",
        "Tables acc-nll-cifars, acc-nll-ImageNet, and what they leave out",
        "Log-likelihood (LL), Brier score and expected calibration error (ECE) as the averages "
        "are; cLL and what is marked cal. at the temperature (T) that half of the images give and "
        "the other half are scored with. Differences with 95 % intervals by paired bootstrap.",
        (
            TableFiles(
                "metrics",
                metrics_markdown(named, budgets),
                metrics_csv(named, budgets),
                metrics_latex(named, budgets),
            ),
        ),
    )


def _train_vs_clean(results: Results) -> Iterator[Section]:
    if "mtrain" not in results.study.compare.methods or not results.comparisons:
        return
    yield Section(
        "train-vs-clean",
        "The training's augmentation at test time",
        "Figure train_vs_clean",
        "Random crops (CF) against RandAugment with the magnitude of the training (MTrain): what "
        "is best for training need not be best for testing.",
        drawings=tuple(
            methods_drawing(
                _name(results, "train-vs-clean", data),
                f"Crops against the training's augmentation, {data}",
                named,
                methods=("plain", "cf", "mtrain"),
                metrics=("accuracy",),
            )
            for data, named in _by_data(results, _main(results, results.comparisons))
        ),
    )


def _objectives(results: Results) -> Iterator[Section]:
    for data, named in _by_data(results, results.objectives):
        yield Section(
            _name(results, "objectives", data),
            _titled(results, "What the search maximises", data),
            "Table gps_metrics",
            "The same pools searched by accuracy, log-likelihood (LL) and calibrated "
            "log-likelihood (cLL).",
            (
                TableFiles(
                    _name(results, "objectives", data),
                    objectives_markdown(named),
                    objectives_csv(named),
                    objectives_latex(named, dataset=data),
                ),
            ),
        )


def _robustness(results: Results) -> Iterator[Section]:
    if not results.shifts:
        return
    table = corruption_table({(e.data, e.model): one for e, one in results.shifts.items()})
    made = all(one.made for one in results.shifts.values())
    yield Section(
        "robustness",
        "Robustness to domain shift",
        "Figures ood-cifar, ood-imagenet; Tables ce-cifarsC, ce-ImageNetC",
        "The mean error under common corruptions, with policies found on clean images"
        + ("; the corruptions were made here." if made else "."),
        (_paper_table("robustness", table),),
        tuple(
            shift_drawing(_name(results, "ood", data), f"Errors under corruption, {data}", named)
            for data, named in _by_data(results, results.shifts)
        ),
    )


def _transfer(results: Results) -> Iterator[Section]:
    study = results.transfer
    if study is None:
        return
    files = TableFiles(
        "transfer", transfer_markdown(study), transfer_csv(study), transfer_latex(study)
    )
    yield Section(
        "transfer",
        "Policies on other models",
        "Figures transfer-cifar, transfer-imagenet",
        "The change in calibrated log-likelihood when a model's own policy is replaced by that of "
        "another.",
        (files,),
        tuple(transfer_drawings(study)),
    )


def _ensembles(results: Results) -> Iterator[Section]:
    for entry, study in results.ensembles.items():
        name = f"ensembles-{entry.name}"
        models = [entry.model] if entry.augment != GIVEN else results.study.ensembles.models
        yield Section(
            name,
            f"Ensembles of {', '.join(models)}",
            "Figure ens",
            "A policy found on one member and used for all, one found on the whole ensemble, and "
            "one for each member.",
            (
                TableFiles(
                    name, ensembles_markdown(study), ensembles_csv(study), ensembles_latex(study)
                ),
            ),
            tuple(
                replace(drawing, name=f"{drawing.name}-{entry.name}")
                for drawing in ensembles_drawings(study)
                if drawing.name.startswith("ensembles")  # the others are drawn for all models
            ),
        )


def _vanilla(results: Results) -> Iterator[Section]:
    vanilla = {e: one for e, one in results.comparisons.items() if e.augment == VANILLA}
    if not vanilla or results.study.train.augments[0] == VANILLA:
        return
    table = in_domain_table(
        {(e.data, e.model): one for e, one in vanilla.items()}, results.study.compare.table
    )
    yield Section(
        "vanilla",
        "Networks of vanilla training",
        "Figure clean-cifar100",
        "Networks that were trained with crops and flips alone: the learned policy (GPS) against "
        "random crops (CF).",
        (_paper_table("vanilla", table),),
        tuple(
            methods_drawing(
                _name(results, "clean", data),
                f"Networks of vanilla training, {data}",
                named,
                methods=("plain", "cf", POLICY_METHOD),
            )
            for data, named in _by_data(results, vanilla)
        ),
    )


def _temperature(results: Results) -> Iterator[Section]:
    if "temperature" not in results.study.parts:
        return
    for data, named in _by_data(results, _main(results, results.comparisons)):
        drawing = temperature_drawing(named)
        yield Section(
            _name(results, "temperature", data),
            _titled(results, "The optimal temperature", data),
            "Figure temp",
            "The temperature that calibrates the average of so many views.",
            drawings=(replace(drawing, name=_name(results, "temperature", data)),),
        )


def _magnitudes(results: Results) -> Iterator[Section]:
    if "magnitudes" not in results.study.parts:
        return
    for data in results.study.data:
        own = {e: one for e, one in results.magnitudes.items() if e.data == data}
        if own:
            named = {_with_training(entry): one for entry, one in own.items()}
            name = _name(results, "magnitudes", data)
            files = TableFiles(
                name, magnitudes_markdown(named), magnitudes_csv(named), magnitudes_latex(named)
            )
            yield Section(
                name,
                _titled(results, "RandAugment at every magnitude", data),
                "Figure mgrid",
                "Accuracy, log-likelihood and calibrated log-likelihood of RandAugment at one "
                "magnitude M for all transforms, and the best M by each.",
                (files,),
                (replace(magnitudes_drawing(named), name=name),),
            )


def _statistics(results: Results) -> Iterator[Section]:
    if "statistics" not in results.study.parts:
        return
    for data in results.study.data:
        groups: dict[str, list[object]] = {}
        for entry, policy in results.policies.items():
            if entry.data == data:
                groups.setdefault(_training(entry), []).append(policy)
        if groups:
            histogram = policy_histogram(groups)  # type: ignore[arg-type]
            name = _name(results, "transforms", data)
            files = TableFiles(
                name,
                histogram_markdown(histogram),
                histogram_csv(histogram),
                histogram_latex(histogram),
            )
            yield Section(
                name,
                _titled(results, "What the policies are made of", data),
                "Figure transform_hist",
                "How often the learned policies use each transform, and its mean magnitude, by "
                "how the networks were trained.",
                (files,),
                (replace(histogram_drawing(histogram), name=name),),
            )


_MAKERS: Sequence[Callable[[Results], Iterator[Section]]] = (
    _train_vs_clean,
    _in_domain,
    _objectives,
    _robustness,
    _transfer,
    _ensembles,
    _vanilla,
    _temperature,
    _magnitudes,
    _statistics,
    _metrics,
)


def _main(results: Results, found: Mapping[Entry, Result]) -> dict[Entry, Result]:
    """Return the results of networks of the main training."""
    study = results.study
    return {e: one for e, one in found.items() if e.augment == study.augments(e.model)[0]}


def _by_data(
    results: Results, found: Mapping[Entry, Result]
) -> Iterator[tuple[str, dict[str, Result]]]:
    """Yield each data set's results, by model."""
    for data in results.study.data:
        named = {entry.model: one for entry, one in found.items() if entry.data == data}
        if named:
            yield data, named


def _name(results: Results, name: str, data: str) -> str:
    return name if len(results.study.data) == 1 else f"{name}-{slug(data)}"


def _titled(results: Results, title: str, data: str) -> str:
    return title if len(results.study.data) == 1 else f"{title}: {data}"


def _training(entry: Entry) -> str:
    return "all" if entry.augment == GIVEN else TRAININGS.get(entry.augment, entry.augment)


def _with_training(entry: Entry) -> str:
    return entry.model if entry.augment == GIVEN else f"{entry.model}, {_training(entry)}"


def _paper_table(name: str, table: PaperTable) -> TableFiles:
    return TableFiles(name, paper_markdown(table), paper_csv(table), paper_latex(table))
