"""The jobs of a study: their settings, and the jobs that they depend on."""

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
"""Parts without jobs: the part from whose results they are drawn."""


@dataclass(frozen=True)
class Entry:
    """A model, its training and a data set; `member` numbers networks of different seeds."""

    data: str
    model: str
    augment: str
    member: int = 0

    @property
    def name(self) -> str:
        """The name of its files."""
        parts = [slug(self.data), slug(self.model)]
        parts += [] if self.augment == GIVEN else [slug(self.augment)]
        return "-".join([*parts, *([f"{self.member}"] if self.member else [])])


@dataclass(frozen=True, eq=False)
class Job:
    """One piece of work, with a directory named by everything that its result depends on.

    These are the `settings`, and the jobs that it `needs`.
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
        """The job's name in messages: `search cifar-10-vgg-randaugment`."""
        return f"{self.part} {self.name}"

    @cached_property
    def mark(self) -> str:
        """The fingerprint of everything that the result depends on."""
        needs = [need.mark for need in self.needs]
        return fingerprint(__version__, self.part, dict(self.settings), needs)

    def directory(self, jobs: Path) -> Path:
        """Return the job's directory, which is different for other settings."""
        return jobs / self.part / f"{self.name}-{self.mark[:8]}"

    def needs_of(self, part: str, entry: Entry | None = None) -> list[Job]:
        """Return the jobs of a part that this one depends on."""
        needs = [job for job in self.needs if job.part == part]
        return [job for job in needs if entry is None or entry in job.entries]

    def need(self, part: str, entry: Entry | None = None) -> Job:
        """Return the first job of a part that this one depends on."""
        return self.needs_of(part, entry)[0]


def make_plan(study: StudyFile, only: Iterable[str] | None = None) -> tuple[Job, ...]:
    """Return the jobs of a study, or of the parts `only`, each after those that it needs."""
    parts = set(study.parts if only is None else only)
    parts |= {SOURCE_PARTS[part] for part in parts if part in SOURCE_PARTS}
    ordered: dict[str, Job] = {}
    for job in _Planner(study).jobs():
        if job.part in parts:
            for one in _with_needs(job):
                ordered.setdefault(f"{one.title} {one.mark}", one)
    return tuple(ordered.values())


def search_settings(study: StudyFile) -> SearchSettings:
    """Return the settings of a study's searches, without the split, which is the data set's."""
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
    """Makes each job once, for all jobs that need it."""

    def __init__(self, study: StudyFile) -> None:
        self.study = study
        self.made: dict[tuple[str, Entry], Job] = {}

    def jobs(self) -> Iterator[Job]:
        """Yield every job of every part, part by part."""
        study = self.study
        entries = [
            Entry(data, model, augment)
            for data in study.data
            for model in study.models
            for augment in study.augments(model)
        ]
        main = [one for one in entries if self.is_main(one)]
        searched = [one for one in entries if one.model in study.searched]
        for entry in entries:
            if entry.augment != GIVEN:
                yield from (self.train(one) for one in self.members(entry))
        yield from (self.search(entry) for entry in searched)
        yield from (self.magnitudes(entry) for entry in entries)
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
        """Whether an entry has the augmentation of the main tables."""
        return entry.augment == self.study.augments(entry.model)[0]

    def members(self, entry: Entry) -> tuple[Entry, ...]:
        """Return the networks of an entry: several only for the main augmentation."""
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
        return self.of_part("search", entry, self.network(entry))

    def magnitudes(self, entry: Entry) -> Job:
        length, _ = self.study.randaugment(entry.model)
        draws = search_settings(self.study).draws
        return self.of_part("magnitudes", entry, self.network(entry), length=length, draws=draws)

    def compare(self, entry: Entry) -> Job:
        needs = self.needs(entry, self.study.compare.methods)
        trained = list(self.study.randaugment(entry.model))
        return self.of_part("compare", entry, needs, randaugment=trained)

    def robustness(self, entry: Entry) -> Job:
        needs = self.needs(entry, self.study.robustness.methods)
        trained = list(self.study.randaugment(entry.model))
        corrupted = self.study.data[entry.data].corrupted
        return self.of_part("robustness", entry, needs, randaugment=trained, corrupted=corrupted)

    def objectives(self, entry: Entry) -> Job:
        search = asdict(self.study.search)
        del search["objective"]
        return self.of_part("objectives", entry, self.network(entry), search=search)

    def transfer(self, entries: Sequence[Entry]) -> Job:
        own = asdict(self.study.transfer)
        targets = [{"name": [one.data, one.model], **self.common(one, own)} for one in entries]
        settings = {"targets": targets}
        return Job("transfer", "all", tuple(entries), settings, self.trained_and_searched(entries))

    def ensembles(self, name: str, members: tuple[Entry, ...]) -> Job:
        study, entry = self.study, members[0]
        own = {
            **asdict(study.ensembles),
            "models": [[one.model, self.model(one)] for one in members],
            "search": asdict(study.search),
            "randaugment": list(study.randaugment(entry.model)),
            "grid_views": study.magnitudes.views,
        }
        needs = (
            *self.trained_and_searched(members),
            *self.grid_search(entry, study.ensembles.methods),
        )
        return Job("ensembles", name, members, self.common(entry, own), needs)

    def needs(self, entry: Entry, methods: Sequence[str]) -> tuple[Job, ...]:
        """Return the needs of a comparison: the network, the policy and MGrid's magnitude."""
        return (*self.network(entry), self.search(entry), *self.grid_search(entry, methods))

    def grid_search(self, entry: Entry, methods: Sequence[str]) -> tuple[Job, ...]:
        """Return the search for MGrid's magnitude if that is among the methods."""
        return (self.magnitudes(entry),) if "mgrid" in methods else ()

    def network(self, entry: Entry) -> tuple[Job, ...]:
        """Return the training of an entry's network, if the study trains it."""
        return () if entry.augment == GIVEN else (self.train(entry),)

    def trained_and_searched(self, entries: Sequence[Entry]) -> tuple[Job, ...]:
        """Return the trainings of all networks, and the searches, which are for first members."""
        trained = (job for one in entries for job in self.network(one))
        first = [one for one in entries if not one.member and one.model in self.study.searched]
        return (*trained, *map(self.search, first))

    def model(self, entry: Entry) -> dict[str, Any]:
        """Return the settings of a given model; those of a trained one are its training's."""
        model = self.study.models[entry.model]
        if model.network is not None:
            return {"trained": True}
        irrelevant = ("network", "weight_decay", "members", "searched", "batch")
        return {key: value for key, value in asdict(model).items() if key not in irrelevant}

    def common(self, entry: Entry, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of every job that is not a training, with the job's `own`."""
        data = self.study.data[entry.data]
        return {
            "model": self.model(entry),
            "batch": self.study.batch_of(entry.model),
            "test": data.test,
            "validation": data.validation,
            "split": None if data.validation is not None else data.split,
            "seed": self.study.seed,
            "recipe": self.study.views.to_json(),
            "own": dict(own),
        }

    def of_part(self, part: str, entry: Entry, needs: tuple[Job, ...], **more: Any) -> Job:
        """Return a job of one entry with the settings of its part in the file, and `more`."""
        irrelevant = ("models", "table")  # other models, and tables, do not change the result
        own = {k: v for k, v in asdict(getattr(self.study, part)).items() if k not in irrelevant}
        return self.once(part, entry, self.common(entry, {**own, **more}), needs)

    def once(
        self, part: str, entry: Entry, settings: Mapping[str, Any], needs: tuple[Job, ...]
    ) -> Job:
        """Return the job of a part and an entry, made at the first call."""
        job = Job(part, entry.name, (entry,), settings, needs)
        return self.made.setdefault((part, entry), job)
