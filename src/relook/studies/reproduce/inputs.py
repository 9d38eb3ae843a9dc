"""The inputs of a study's jobs: networks and images, loaded once for all jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relook.data import DATA_SOURCES, Dataset, Preparation, check_class_count, load_data
from relook.errors import RelookError
from relook.foundation.progress import Progress, StageProgress
from relook.io.files import read_json
from relook.models import Predictor, load_model
from relook.numerics.splits import parse_split, search_split
from relook.policy_search.settings import SearchSettings
from relook.studies.reproduce.plan import Entry, Job, search_settings
from relook.studies.reproduce.settings import GIVEN, StudyData, StudyFile, StudyModel
from relook.studies.training import validation_spec

DONE, TRAINED = "done.json", "trained.json"
NETWORKS, RUN = "networks", "run"
STORE = "predictions"
"""The directory of a job's predictions while it runs."""

Use = Literal["search", "score"]
"""The use of a network; there is one network for each if it is retrained on all images."""

Report = Callable[[int, int, str], None]
"""Called with the units done, their total and the current stage."""


def ignore_progress(done: int, total: int, note: str) -> None:
    """Report nothing."""


@dataclass
class Loaded:
    """Networks and images that jobs share."""

    models: dict[tuple[str, str], Predictor] = field(default_factory=dict)
    data: dict[tuple[Any, ...], Dataset] = field(default_factory=dict)


@dataclass(frozen=True)
class JobInputs:
    """Loads the inputs of a job; `jobs` is the parent of the jobs' directories.

    `used` collects the fingerprints of the inputs that the job has loaded.
    """

    job: Job
    study: StudyFile
    jobs: Path
    device: str = "cpu"
    log: Callable[[str], None] | None = None
    report: Report = ignore_progress
    loaded: Loaded = field(default_factory=Loaded)
    used: dict[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """The job's directory."""
        return self.job.directory(self.jobs)

    @property
    def passes(self) -> Progress:
        """A callback for the progress of passes."""
        return lambda done, total: self.report(done, total, "")

    @property
    def stages(self) -> StageProgress:
        """A callback for the progress of stages."""
        return lambda stage, done, total, score=None: self.report(done, total, stage)

    def data(self, entry: Entry) -> StudyData:
        """Return the settings of an entry's images."""
        return self.study.data[entry.data]

    def needed(self, part: str, entry: Entry | None = None) -> Path:
        """Return the directory of a job that this one depends on."""
        return self.job.need(part, entry).directory(self.jobs)

    def run_of(self, entry: Entry) -> Path:
        """Return the directory of the search for an entry."""
        return self.needed("search", entry) / RUN

    def model_spec(self, entry: Entry, use: Use) -> str:
        """Return the spec of an entry's network."""
        if entry.augment == GIVEN:
            return self.study.models[entry.model].spec or ""
        directory = self.needed("train", entry)
        content: Any = read_json(directory / TRAINED, what="the record of a training")
        return f"{content['source']}@{directory / content[use]}"

    def model(self, entry: Entry, use: Use) -> Predictor:
        """Return an entry's network."""
        key, models = (entry.model, self.model_spec(entry, use)), self.loaded.models
        if key not in models:
            models[key] = load_study_model(self.study.models[entry.model], key[1], self.device)
        self._check_same(f"{entry.model} ({key[1]})", models[key].fingerprint)
        return models[key]

    def label(self, entry: Entry) -> str:
        """Return the name of an entry's model in tables, with its data set if there are several."""
        return entry.model if len(self.study.data) == 1 else f"{entry.data} {entry.model}"

    def batch(self, entry: Entry) -> int | None:
        """Return the number of images per model call."""
        return self.study.batch_of(entry.model)

    def search_settings(self, entry: Entry, images: int) -> SearchSettings:
        """Return the settings of a search, with the split of `images` images."""
        settings = replace(search_settings(self.study), batch=self.batch(entry))
        data = self.data(entry)
        whole = data.validation is not None or settings.cross_fit
        return settings.with_split(None if whole else data.split, images)

    def data_spec(self, entry: Entry, use: Use) -> str:
        """Return the spec of the images to search on or to score on."""
        data = self.data(entry)
        if use == "search" and data.validation is not None:
            return validation_spec(self.needed("train", entry) / NETWORKS)
        return data.test

    def images(self, entry: Entry, predictor: Predictor, use: Use) -> Dataset:
        """Return the whole data set for a use, prepared for the model."""
        spec, data = self.data_spec(entry, use), self.data(entry)
        plan = self._preparation(spec).for_model(predictor)
        key = (spec, plan.size, plan.usual_crop, plan.channels, plan.interpolation)
        dataset = self.loaded.data.get(key)
        if dataset is None:
            dataset = self.loaded.data[key] = load_data(spec, plan)
            if spec == data.test:
                _check_count(f"data.{entry.data}.test_images", data.test_images, dataset)
        if predictor.classes is not None:
            check_class_count(dataset, predictor.classes)
        self._check_same(f"{spec} for {entry.model}", dataset.fingerprint)
        return dataset

    def test_images(self, entry: Entry, predictor: Predictor) -> Dataset | None:
        """Return the separate images to score on; None if the search splits its own images."""
        separate = self.data(entry).validation is not None
        return self.images(entry, predictor, "score") if separate else None

    def training_images(self, entry: Entry) -> Dataset:
        """Return all images that networks are trained on."""
        data = self.data(entry)
        dataset = load_data(data.train or "")
        _check_count(f"data.{entry.data}.train_images", data.train_images, dataset)
        return dataset

    def part(self, entry: Entry, use: Use) -> tuple[Predictor, Dataset, NDArray[np.int64]]:
        """Return an entry's network, its images for a use, and their places.

        No search has seen the images to score on.
        """
        predictor, data = self.model(entry, use), self.data(entry)
        dataset = self.images(entry, predictor, use)
        if data.validation is not None or self.study.search.cross_fit:
            return predictor, dataset, np.arange(len(dataset))
        shares = parse_split(data.split, len(dataset))
        parts = search_split(
            dataset.labels, shares.holdout, shares.left_out, self.study.seed, dataset.groups
        )
        places = parts[0 if use == "search" else 1]
        return predictor, dataset.subset(places), places

    def _check_same(self, name: str, fingerprint: str) -> None:
        """Record an input; raise if it has changed since a job that this one depends on."""
        self.used[name] = fingerprint
        for need in self.job.needs:
            directory = need.directory(self.jobs)
            done: Any = read_json(directory / DONE, what="the record of a finished job")
            if done.get("used", {}).get(name, fingerprint) != fingerprint:
                raise RelookError(
                    f"{name} has changed since {need.title} was done: remove {directory}, or give "
                    "other --jobs, to do it again"
                )

    def _preparation(self, spec: str) -> Preparation:
        source = DATA_SOURCES.get(spec.partition(":")[0])
        files = source is not None and source.prepares
        return Preparation(
            full_size=files and self.study.views.start is not None,
            cache=self.jobs / "images" if files else None,
            log=self.log,
            progress=lambda stage, done, total: self.report(done, total, stage),
        )


def load_study_model(model: StudyModel, spec: str, device: str) -> Predictor:
    """Load a model with the study's settings."""
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
