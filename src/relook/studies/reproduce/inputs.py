"""What the jobs of a study work with: networks and images, loaded once and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relook.data import DATA_SOURCES, Dataset, Preparation, check_class_count, load_data
from relook.errors import RelookError
from relook.io.files import read_json
from relook.models import Predictor, load_model
from relook.numerics.splits import parse_split, search_split
from relook.studies.reproduce.plan import Entry, Job, model_spec, resolved
from relook.studies.reproduce.settings import GIVEN, StudyFile, StudyModel
from relook.studies.training import validation_spec

DONE, TRAINED = "done.json", "trained.json"
NETWORKS = "networks"
Use = Literal["search", "score"]
"""Whether a network is searched with, or scored: two networks where one is trained again."""

Report = Callable[[int, int, str], None]
"""Called with the units done, their total and what is being done."""


@dataclass
class JobInputs:
    """Loads what a job asks for; `jobs` is where the jobs' directories are.

    `used` has the fingerprints of what the job has been given.
    """

    study: StudyFile
    jobs: Path
    device: str = "cpu"
    log: Callable[[str], None] | None = None
    report: Report = field(default=lambda done, total, note: None)
    used: dict[str, str] = field(default_factory=dict)
    _models: dict[tuple[str, str], Predictor] = field(default_factory=dict)
    _data: dict[tuple[Any, ...], Dataset] = field(default_factory=dict)

    def model_spec(self, job: Job, entry: Entry, use: Use) -> str:
        """Return the spec of an entry's network."""
        if entry.augment == GIVEN:
            return model_spec(self.study, entry.model)
        directory = job.need("train", entry).directory(self.jobs)
        content: Any = read_json(directory / TRAINED, what="the record of a training")
        return f"{content['source']}@{directory / content[use]}"

    def model(self, job: Job, entry: Entry, use: Use) -> Predictor:
        """Return an entry's network."""
        key = entry.model, self.model_spec(job, entry, use)
        if key not in self._models:
            known = self.study.models[entry.model]
            self._models[key] = load_study_model(known, key[1], self.device)
        self._check_same(job, f"{entry.model} ({key[1]})", self._models[key].fingerprint)
        return self._models[key]

    def label(self, entry: Entry) -> str:
        """Return what tables call an entry's model, with its data where there are several."""
        return entry.model if len(self.study.data) == 1 else f"{entry.data} {entry.model}"

    def batch(self, entry: Entry) -> int | None:
        """Return how many images a model call has."""
        return self.study.models[entry.model].batch or self.study.batch

    def data_spec(self, job: Job, entry: Entry, use: Use) -> str:
        """Return the spec of the images to search with or to score on."""
        data = self.study.data[entry.data]
        if use == "search" and data.validation is not None:
            return validation_spec(job.need("train", entry).directory(self.jobs) / NETWORKS)
        return resolved(self.study, data, "test") or ""

    def images(self, job: Job, entry: Entry, predictor: Predictor, use: Use) -> Dataset:
        """Return the whole set that the images of a use come from, as the model takes them."""
        spec = self.data_spec(job, entry, use)
        found = self._loaded(entry, spec, self._preparation(spec).for_model(predictor), predictor)
        self._check_same(job, f"{spec} for {entry.model}", found.fingerprint)
        return found

    def training_images(self, entry: Entry) -> Dataset:
        """Return all images that networks are trained on."""
        data = self.study.data[entry.data]
        dataset = load_data(resolved(self.study, data, "train") or "")
        _check_count(f"data.{entry.data}.train_images", data.train_images, dataset)
        return dataset

    def corrupted(self, entry: Entry) -> str | None:
        """Return where the corrupted images are; None: they are made."""
        return resolved(self.study, self.study.data[entry.data], "corrupted")

    def _check_same(self, job: Job, what: str, fingerprint: str) -> None:
        """Note what a job uses; raise where one that it needs has used another of that name."""
        self.used[what] = fingerprint
        for need in job.needs:
            directory = need.directory(self.jobs)
            done: Any = read_json(directory / DONE, what="the record of a finished job")
            if done.get("used", {}).get(what, fingerprint) != fingerprint:
                raise RelookError(
                    f"{what} has changed since {need.title} was done: remove {directory}, or give "
                    "other --jobs, to do it again"
                )

    def part(
        self, job: Job, entry: Entry, predictor: Predictor, use: Use
    ) -> tuple[Dataset, NDArray[np.int64]]:
        """Return the images to search with, or those that no search has seen, and their places."""
        dataset, data = self.images(job, entry, predictor, use), self.study.data[entry.data]
        if data.validation is not None or self.study.search.cross_fit:
            return dataset, np.arange(len(dataset))
        shares = parse_split(data.split, len(dataset))
        parts = search_split(
            dataset.labels, shares.holdout, shares.left_out, self.study.seed, dataset.groups
        )
        places = parts[0 if use == "search" else 1]
        return dataset.subset(places), places

    def _preparation(self, spec: str) -> Preparation:
        source = DATA_SOURCES.get(spec.partition(":")[0])
        files = source is not None and source.prepares
        return Preparation(
            full_size=files and self.study.views.start is not None,
            cache=self.jobs / "images" if files else None,
            log=self.log,
            progress=lambda stage, done, total: self.report(done, total, stage),
        )

    def _loaded(
        self, entry: Entry, spec: str, wanted: Preparation, predictor: Predictor
    ) -> Dataset:
        key = (spec, wanted.size, wanted.usual_crop, wanted.channels, wanted.interpolation)
        if key not in self._data:
            dataset, data = load_data(spec, wanted), self.study.data[entry.data]
            if spec == resolved(self.study, data, "test"):
                _check_count(f"data.{entry.data}.test_images", data.test_images, dataset)
            self._data[key] = dataset
        if predictor.classes is not None:
            check_class_count(self._data[key], predictor.classes)
        return self._data[key]


def load_study_model(model: StudyModel, spec: str, device: str) -> Predictor:
    """Return a model with what the study says of it."""
    return load_model(
        spec,
        outputs=model.outputs,  # type: ignore[arg-type]  # checked with the file
        mean=model.mean,
        std=model.std,
        size=model.size,
        device=device,
        pretrained=model.pretrained,
    )


def _check_count(key: str, expected: int | None, dataset: Dataset) -> None:
    if expected is not None and expected != len(dataset):
        raise RelookError(
            f"{dataset.name}: expected {expected:,} images, as {key} says, got {len(dataset):,}"
        )
