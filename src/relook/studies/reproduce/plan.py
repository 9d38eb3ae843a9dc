"""The jobs of a study: what is run, what decides its result, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from relook.io.fingerprint import fingerprint
from relook.policy_search.settings import SearchSettings
from relook.studies.reproduce.file import slug
from relook.studies.reproduce.settings import (
    GIVEN,
    ObjectivesPart,
    RobustnessPart,
    StudyData,
    StudyFile,
)
from relook.version import __version__

DRAWN_FROM: Mapping[str, str] = {"statistics": "search", "temperature": "compare"}
"""Parts that run nothing of their own: they are drawn from another part's results."""


@dataclass(frozen=True)
class Entry:
    """A model with its training, on a data set; `member` counts networks of other seeds."""

    data: str
    model: str
    augment: str
    member: int = 0

    @property
    def name(self) -> str:
        """What its files are called."""
        parts = [slug(self.data), slug(self.model)]
        parts += [] if self.augment == GIVEN else [slug(self.augment)]
        return "-".join([*parts, *([f"{self.member}"] if self.member else [])])


@dataclass(frozen=True, eq=False)
class Job:
    """One piece of work with a directory of its own, named by what decides its result.

    `settings` is all that decides it besides what the `needs` decide.
    """

    part: str
    name: str
    entries: tuple[Entry, ...]
    settings: Mapping[str, Any]
    needs: tuple[Job, ...] = ()

    @property
    def entry(self) -> Entry:
        """The first entry, for a job of one."""
        return self.entries[0]

    @property
    def title(self) -> str:
        """The job for people: `search cifar-10-vgg-randaugment`."""
        return f"{self.part} {self.name}"

    @cached_property
    def mark(self) -> str:
        """What stands for all that decides the result."""
        needs = [need.mark for need in self.needs]
        return fingerprint(__version__, self.part, dict(self.settings), needs)

    def directory(self, jobs: Path) -> Path:
        """Return where the job's files are; other settings have another place."""
        return jobs / self.part / f"{self.name}-{self.mark[:8]}"

    def need(self, part: str, entry: Entry | None = None) -> Job:
        """Return the job of a part that this one waits for."""
        return self._needs_of(part, entry)[0]

    def _needs_of(self, part: str, entry: Entry | None) -> list[Job]:
        return [
            job
            for job in self.needs
            if job.part == part and (entry is None or entry in job.entries)
        ]

    def waits_for(self, part: str, entry: Entry | None = None) -> bool:
        """Whether it needs a job of this part."""
        return bool(self._needs_of(part, entry))


def make_plan(study: StudyFile, only: Iterable[str] | None = None) -> tuple[Job, ...]:
    """Return the jobs of a study, or of the parts `only`, each after those that it needs."""
    wanted = set(study.parts if only is None else only)
    wanted |= {DRAWN_FROM[part] for part in wanted if part in DRAWN_FROM}
    ordered: dict[str, Job] = {}
    for job in _Planner(study).jobs():
        if job.part in wanted:
            for one in _with_needs(job):
                ordered.setdefault(f"{one.title} {one.mark}", one)
    return tuple(ordered.values())


def search_settings(study: StudyFile, objective: str | None = None) -> SearchSettings:
    """Return the settings of a study's searches; the split is the data set's."""
    part = study.search
    return SearchSettings(
        recipe=study.views,
        length=part.length,
        pool_size=part.pool_size,
        seed=study.seed,
        draws=part.draws,  # type: ignore[arg-type]  # checked with the file
        objective=objective or part.objective,
        plain=part.plain,
        race=part.race,
        cross_fit=part.cross_fit,
        strategy=part.strategy,
        batch=study.batch,
        accelerate="torch",  # a study is the same on every machine
    )


def _among(models: Sequence[str], entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of these models, or all of them."""
    return [entry for entry in entries if not models or entry.model in models]


def _without_models(part: RobustnessPart | ObjectivesPart) -> dict[str, Any]:
    """Return what decides one model's result, whichever others are in the part."""
    own = asdict(part)
    del own["models"]
    return own


def _with_needs(job: Job) -> Iterator[Job]:
    for need in job.needs:
        yield from _with_needs(need)
    yield job


class _Planner:
    """Makes each job once, and hands it to all that need it."""

    def __init__(self, study: StudyFile) -> None:
        self.study = study
        self.made: dict[tuple[str, Entry], Job] = {}

    def jobs(self) -> Iterator[Job]:
        """Yield every job of every part, part by part."""
        study = self.study
        every = list(self.entries())
        main = [one for one in every if one.augment == study.augments(one.model)[0]]
        searched = [one for one in every if study.models[one.model].searched]
        own = [one for one in main if study.models[one.model].searched]
        for entry in every:
            if study.models[entry.model].network is not None:
                yield from (self.train(replace(entry, member=m)) for m in self.members(entry))
        yield from (self.search(entry) for entry in searched)
        yield from (self.magnitudes(entry) for entry in every)
        yield from (self.compare(entry) for entry in searched)
        yield from (self.robustness(one) for one in _among(study.robustness.models, own))
        yield from (self.objectives(one) for one in _among(study.objectives.models, own))
        if len(main) > 1:
            yield self.transfer(main)
        for entry in main:
            if len(self.members(entry)) > 1:
                members = tuple(replace(entry, member=one) for one in self.members(entry))
                yield self.ensembles(entry.name, members)
        for data in study.data if study.ensembles.models else ():
            together = tuple(Entry(data, name, GIVEN) for name in study.ensembles.models)
            yield self.ensembles(f"{slug(data)}-together", together)

    def entries(self) -> Iterator[Entry]:
        """Yield every model with each of its trainings, on each data set."""
        for data in self.study.data:
            for model in self.study.models:
                yield from (Entry(data, model, one) for one in self.study.augments(model))

    def members(self, entry: Entry) -> range:
        """Return the numbers of the networks; vanilla ones are not made ensembles of."""
        first = entry.augment == self.study.augments(entry.model)[0]
        return range(self.study.models[entry.model].members if first else 1)

    def train(self, entry: Entry) -> Job:
        study = self.study
        model, data, part = study.models[entry.model], study.data[entry.data], study.train
        settings = {
            "network": model.network,
            "weight_decay": model.weight_decay,
            "train": resolved(study, data, "train"),
            "validation": data.validation,
            "split_seed": study.seed,
            "seed": study.seed + entry.member,
            "augment": entry.augment,
            "length": part.length,
            "magnitude": part.magnitude,
            "recipe": study.views.to_json(),
            "epochs": part.epochs,
            "batch": part.batch,
            "learning_rate": part.learning_rate,
        }
        return self.once("train", entry, settings, ())

    def search(self, entry: Entry) -> Job:
        own = asdict(self.study.search)
        return self.once("search", entry, self.common(entry, own), self.network(entry))

    def magnitudes(self, entry: Entry) -> Job:
        study = self.study
        own = {
            **asdict(study.magnitudes),
            "length": study.randaugment(entry.model)[0],
            "draws": search_settings(study).draws,
        }
        return self.once("magnitudes", entry, self.common(entry, own), self.network(entry))

    def compare(self, entry: Entry) -> Job:
        own = asdict(self.study.compare)
        del own["table"]  # what is shown changes nothing that is measured
        own["randaugment"] = list(self.study.randaugment(entry.model))
        needs = self.judged(entry, self.study.compare.methods)
        return self.once("compare", entry, self.common(entry, own), needs)

    def robustness(self, entry: Entry) -> Job:
        study = self.study
        own = {
            **_without_models(study.robustness),
            "randaugment": list(study.randaugment(entry.model)),
            "corrupted": resolved(study, study.data[entry.data], "corrupted"),
        }
        needs = self.judged(entry, study.robustness.methods)
        return self.once("robustness", entry, self.common(entry, own), needs)

    def objectives(self, entry: Entry) -> Job:
        study = self.study
        search = asdict(study.search)
        del search["objective"]
        own = {**_without_models(study.objectives), "search": search}
        return self.once("objectives", entry, self.common(entry, own), self.network(entry))

    def transfer(self, entries: Sequence[Entry]) -> Job:
        study = self.study
        own = asdict(study.transfer)
        settings = {
            "targets": [{"name": [one.data, one.model], **self.common(one, own)} for one in entries]
        }
        searched = [one for one in entries if study.models[one.model].searched]
        needs = [need for one in entries for need in self.network(one)]
        needs += [self.search(one) for one in searched]
        return Job("transfer", "all", tuple(entries), settings, tuple(needs))

    def ensembles(self, name: str, members: tuple[Entry, ...]) -> Job:
        study, entry = self.study, members[0]
        own = {
            **asdict(study.ensembles),
            "models": [[one.model, self.model(one)] for one in members],
            "search": asdict(study.search),
            "randaugment": list(study.randaugment(entry.model)),
            "grid_views": study.magnitudes.views,
        }
        needs = [need for one in members for need in self.network(one)]
        needs += [self.search(one) for one in members if self.is_searched(one)]
        needs.append(self.magnitudes(entry))
        return Job("ensembles", name, members, self.common(entry, own), tuple(needs))

    def is_searched(self, entry: Entry) -> bool:
        """Whether a search for the entry is part of the study."""
        return entry.member == 0 and self.study.models[entry.model].searched

    def judged(self, entry: Entry, methods: Sequence[str]) -> tuple[Job, ...]:
        """Return what a comparison needs: the network, the policy and MGrid's magnitude."""
        grid = (self.magnitudes(entry),) if "mgrid" in methods else ()
        return (*self.network(entry), self.search(entry), *grid)

    def network(self, entry: Entry) -> tuple[Job, ...]:
        return () if entry.augment == GIVEN else (self.train(entry),)

    def model(self, entry: Entry) -> dict[str, Any]:
        """Return what a given model is; a trained one is what its training makes it."""
        model = self.study.models[entry.model]
        if model.network is not None:
            return {"trained": True}
        said = asdict(model)
        for key in ("network", "weight_decay", "members", "searched", "batch"):
            del said[key]
        return {**said, "spec": model_spec(self.study, entry.model)}

    def common(self, entry: Entry, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return what all judging jobs depend on, with the job's own settings."""
        data = self.study.data[entry.data]
        return {
            "model": self.model(entry),
            "batch": self.study.models[entry.model].batch or self.study.batch,
            "test": resolved(self.study, data, "test"),
            "validation": data.validation,
            "split": None if data.validation is not None else data.split,
            "seed": self.study.seed,
            "recipe": self.study.views.to_json(),
            "own": dict(own),
        }

    def once(
        self, part: str, entry: Entry, settings: Mapping[str, Any], needs: tuple[Job, ...]
    ) -> Job:
        job = Job(part, entry.name, (entry,), settings, needs)
        return self.made.setdefault((part, entry), job)


def resolved(study: StudyFile, data: StudyData, key: str) -> str | None:
    """Return a spec or folder of a data set with its path filled in, absolute."""
    text: str | None = getattr(data, key)
    if text is None:
        return None
    if data.path is not None:
        text = text.replace("{path}", data.path)
    if key == "corrupted":
        return str(_absolute(study.base, text))
    prefix, colon, rest = text.partition(":")
    folder, mark, options = rest.partition("?")
    if not folder or prefix == "digits":
        return text
    return f"{prefix}{colon}{_absolute(study.base, folder)}{mark}{options}"


def model_spec(study: StudyFile, name: str) -> str:
    """Return a given model's spec; the file of its weights is relative to the study's."""
    spec = study.models[name].spec or ""
    for data in study.data.values():
        spec = spec.replace("{path}", data.path or "")
    head, at, file = spec.rpartition("@")
    if at:
        return f"{head}@{_absolute(study.base, file)}"
    prefix, _, file = spec.partition(":")
    return f"{prefix}:{_absolute(study.base, file)}" if prefix in ("onnx", "hf") else spec


def _absolute(base: Path, text: str) -> Path:
    path = Path(text).expanduser()
    return path if path.is_absolute() else (base / path).resolve()
