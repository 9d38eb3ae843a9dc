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
from relook.studies.reproduce.settings import GIVEN, StudyFile
from relook.version import __version__

SOURCE_PARTS: Mapping[str, str] = {"statistics": "search", "temperature": "compare"}
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

    def needs_of(self, part: str, entry: Entry | None = None) -> list[Job]:
        """Return the jobs of a part that this one waits for."""
        own = [job for job in self.needs if job.part == part]
        return [job for job in own if entry is None or entry in job.entries]

    def need(self, part: str, entry: Entry | None = None) -> Job:
        """Return the job of a part that this one waits for."""
        return self.needs_of(part, entry)[0]


def make_plan(study: StudyFile, only: Iterable[str] | None = None) -> tuple[Job, ...]:
    """Return the jobs of a study, or of the parts `only`, each after those that it needs."""
    wanted = set(study.parts if only is None else only)
    wanted |= {SOURCE_PARTS[part] for part in wanted if part in SOURCE_PARTS}
    ordered: dict[str, Job] = {}
    for job in _Planner(study).jobs():
        if job.part in wanted:
            for one in _with_needs(job):
                ordered.setdefault(f"{one.title} {one.mark}", one)
    return tuple(ordered.values())


def search_settings(study: StudyFile) -> SearchSettings:
    """Return the settings of a study's searches; the split is the data set's."""
    return SearchSettings(
        recipe=study.views,
        seed=study.seed,
        batch=study.batch,
        accelerate="torch",  # a study is the same on every machine
        **asdict(study.search),
    )


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
        every = [
            Entry(data, model, augment)
            for data in study.data
            for model in study.models
            for augment in study.augments(model)
        ]
        main = [one for one in every if self.is_main(one)]
        searched = [one for one in every if one.model in study.searched]
        for entry in every:
            if entry.augment != GIVEN:
                yield from (self.train(one) for one in self.members(entry))
        yield from (self.search(entry) for entry in searched)
        yield from (self.magnitudes(entry) for entry in every)
        yield from (self.compare(entry) for entry in searched)
        own = [one for one in searched if self.is_main(one)]
        for part, make in (
            (study.robustness, self.robustness),
            (study.objectives, self.objectives),
        ):
            yield from (make(one) for one in own if not part.models or one.model in part.models)
        if len(main) > 1:
            yield self.transfer(main)
        for entry in main:
            members = self.members(entry)
            if len(members) > 1:
                yield self.ensembles(entry.name, members)
        for data in study.data if study.ensembles.models else ():
            together = tuple(Entry(data, name, GIVEN) for name in study.ensembles.models)
            yield self.ensembles(f"{slug(data)}-together", together)

    def is_main(self, entry: Entry) -> bool:
        """Whether it is of the augmentation of the main tables."""
        return entry.augment == self.study.augments(entry.model)[0]

    def members(self, entry: Entry) -> tuple[Entry, ...]:
        """Return the networks of an entry; vanilla ones are not made ensembles of."""
        count = self.study.models[entry.model].members if self.is_main(entry) else 1
        return tuple(replace(entry, member=one) for one in range(count))

    def train(self, entry: Entry) -> Job:
        study = self.study
        model, data, part = study.models[entry.model], study.data[entry.data], study.train
        settings = {
            "network": model.network,
            "weight_decay": model.weight_decay,
            "train": data.train,
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
        return self.judging("search", entry, self.network(entry))

    def magnitudes(self, entry: Entry) -> Job:
        length, _ = self.study.randaugment(entry.model)
        draws = search_settings(self.study).draws
        return self.judging("magnitudes", entry, self.network(entry), length=length, draws=draws)

    def compare(self, entry: Entry) -> Job:
        needs = self.compared(entry, self.study.compare.methods)
        trained = list(self.study.randaugment(entry.model))
        return self.judging("compare", entry, needs, randaugment=trained)

    def robustness(self, entry: Entry) -> Job:
        needs = self.compared(entry, self.study.robustness.methods)
        trained = list(self.study.randaugment(entry.model))
        corrupted = self.study.data[entry.data].corrupted
        return self.judging("robustness", entry, needs, randaugment=trained, corrupted=corrupted)

    def objectives(self, entry: Entry) -> Job:
        search = asdict(self.study.search)
        del search["objective"]
        return self.judging("objectives", entry, self.network(entry), search=search)

    def transfer(self, entries: Sequence[Entry]) -> Job:
        own = asdict(self.study.transfer)
        targets = [{"name": [one.data, one.model], **self.common(one, own)} for one in entries]
        return Job("transfer", "all", tuple(entries), {"targets": targets}, self.found(entries))

    def ensembles(self, name: str, members: tuple[Entry, ...]) -> Job:
        study, entry = self.study, members[0]
        own = {
            **asdict(study.ensembles),
            "models": [[one.model, self.model(one)] for one in members],
            "search": asdict(study.search),
            "randaugment": list(study.randaugment(entry.model)),
            "grid_views": study.magnitudes.views,
        }
        needs = (*self.found(members), *self.grid_search(entry, study.ensembles.methods))
        return Job("ensembles", name, members, self.common(entry, own), needs)

    def compared(self, entry: Entry, methods: Sequence[str]) -> tuple[Job, ...]:
        """Return what a comparison needs: the network, the policy and MGrid's magnitude."""
        return (*self.network(entry), self.search(entry), *self.grid_search(entry, methods))

    def grid_search(self, entry: Entry, methods: Sequence[str]) -> tuple[Job, ...]:
        """Return the search for MGrid's magnitude, where it is compared with."""
        return (self.magnitudes(entry),) if "mgrid" in methods else ()

    def network(self, entry: Entry) -> tuple[Job, ...]:
        return () if entry.augment == GIVEN else (self.train(entry),)

    def found(self, entries: Sequence[Entry]) -> tuple[Job, ...]:
        """Return the trainings of networks, and the searches: those for first members."""
        trained = (job for one in entries for job in self.network(one))
        first = [one for one in entries if not one.member and one.model in self.study.searched]
        return (*trained, *map(self.search, first))

    def model(self, entry: Entry) -> dict[str, Any]:
        """Return what a given model is; a trained one is what its training makes it."""
        model = self.study.models[entry.model]
        if model.network is not None:
            return {"trained": True}
        elsewhere = ("network", "weight_decay", "members", "searched", "batch")
        return {key: value for key, value in asdict(model).items() if key not in elsewhere}

    def common(self, entry: Entry, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return what all judging jobs depend on, with the job's own settings."""
        data = self.study.data[entry.data]
        return {
            "model": self.model(entry),
            "batch": self.study.models[entry.model].batch or self.study.batch,
            "test": data.test,
            "validation": data.validation,
            "split": None if data.validation is not None else data.split,
            "seed": self.study.seed,
            "recipe": self.study.views.to_json(),
            "own": dict(own),
        }

    def judging(self, part: str, entry: Entry, needs: tuple[Job, ...], **more: Any) -> Job:
        """Return a job of one entry that follows from its part of the file, and from `more`."""
        shown = ("models", "table")  # other models, and tables, change nothing that is measured
        own = {k: v for k, v in asdict(getattr(self.study, part)).items() if k not in shown}
        return self.once(part, entry, self.common(entry, {**own, **more}), needs)

    def once(
        self, part: str, entry: Entry, settings: Mapping[str, Any], needs: tuple[Job, ...]
    ) -> Job:
        job = Job(part, entry.name, (entry,), settings, needs)
        return self.made.setdefault((part, entry), job)
