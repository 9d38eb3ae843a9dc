"""The result of a search, with methods for what comes next; each calls a lower layer."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from numpy.typing import ArrayLike
from torch import Tensor

from relook.api.judging import calibrated, compared, distilled, images_for
from relook.api.progress_bars import ProgressChoice, chosen_bars, is_shown, say
from relook.data.base import Dataset, names_of
from relook.errors import RelookError, warn
from relook.evaluation.baselines import check_methods
from relook.evaluation.compare import LEFT_OUT
from relook.evaluation.comparison import Comparison, is_narrower, place_for, save_comparison
from relook.evaluation.latency import LATENCY, Limit
from relook.evaluation.setup import ComparisonKeywords
from relook.evaluation.unseen import check_unused, part_not_in, unused_part
from relook.foundation.progress import stage_of
from relook.io.files import write_text_atomic
from relook.io.identities import set_of, union
from relook.io.run_directory import RunDirectory
from relook.models import Predictor
from relook.policy import Policy
from relook.policy.recipes import Recipe
from relook.policy_search.job import SearchJob
from relook.policy_search.run_record import engine_of, load_run, record_search, used_images
from relook.policy_search.search import PolicySearch

if TYPE_CHECKING:
    from relook.deploy import TTA
    from relook.deploy.conformal import SetKeywords
    from relook.deploy.distil.distil import Distilled
    from relook.deploy.export import Export
    from relook.deploy.recommended import Deployed
    from relook.evaluation.suspects import Suspects

_FILES = (
    *("search.json", "comparison.json", "examples.npz", "run.json", "settings.json"),
    *("latency.json", "sets.json"),
)
_HOW_TO_LEAVE = (
    'search with  split="0.4:0.3"  (the other 30 % are left for this), or give other images'
)


@dataclass(frozen=True, repr=False, eq=False)
class FoundPolicy(PolicySearch):
    """What `relook.search` found, with the model and the images that it was found on.

    `comparison` is the one that counts: `tta` and `export` deploy what its verdict recommends, and
    `compare` replaces it. After `relook.load`, model and images are loaded when needed, and
    `search_indices` and `held_out_indices` are empty. `path` is the run's directory, if it has one.
    """

    recipe: Recipe | None = None
    shape: tuple[int, ...] = ()
    """Channels, height and width of the images."""
    classes: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    model_of_run: Callable[[], Predictor] | None = None
    job_of_run: Callable[[Predictor], SearchJob] | None = None
    compared_on: Dataset | None = None
    """The images of the comparison, if they are not the search's."""

    @cached_property
    def predictor(self) -> Predictor:
        """The model, as relook calls it."""
        if self.job is not None:
            return self.job.predictor
        if self.model_of_run is None:
            raise RelookError("this search does not hold its model: use relook.TTA(model, policy)")
        return self.model_of_run()

    def tta(self, *, method: str | None = None, views: int | None = None, **options: Any) -> TTA:
        """Return the searched model as one module that predicts as the verdict recommends.

        `method` ("policy", "plain", "cf" …) and `views` override the verdict; `views` alone, or an
        early exit, means the policy. The other `options` are TTA's.
        """
        from relook.deploy import TTA

        method = "policy" if method is None and options.get("early_exit") is not None else method
        chosen = self._deployed(method, views)
        own = {"temperature": chosen.temperature, "size": self.shape[1:], "classes": self._names}
        return TTA(self.predictor, chosen.policy, **{**own, **options})

    def model(self, **options: Any) -> TTA:
        """Return `tta(…)`, whose older name this is."""
        warnings.warn("PolicySearch.model() is called .tta() now", DeprecationWarning, stacklevel=2)
        return self.tta(**options)

    def export(
        self,
        path: str | Path,
        *,
        method: str | None = None,
        views: int | None = None,
        latency: str | None = None,
        latency_batch: int = 1,
        **how: Any,
    ) -> Export:
        """Write the model as one file that predicts as the verdict recommends.

        `method` and `views` are as for `tta`, and `how` is as for `relook.export`. With a
        `latency` such as "40ms", the file has the best number of views for which a call with
        `latency_batch` images takes no longer on this machine; the run keeps the measurements.
        """
        from relook.deploy.export import export
        from relook.deploy.latency import fit_latency

        channels, *size = self.shape
        own: dict[str, Any] = {
            "size": tuple(size),
            "channels": channels,
            "classes": self.classes,
        }
        images = None if self.job is None else self.job.dataset.images
        if isinstance(images, Tensor) and "resize_from" not in how:
            own["images"] = images
        own |= how
        if latency is None:
            chosen = self._deployed(method, views)
            own = {"temperature": chosen.temperature, **own}
            return export(self.predictor, chosen.policy, path, **own)
        if views is not None:
            raise RelookError("expected views or latency, which finds how many, got both: give one")
        limit = Limit.read(latency, latency_batch)
        fitting = fit_latency(self.predictor, *self._compared, limit, method=method, **own)
        if self.path is not None:
            LATENCY.write(self.path / "latency.json", fitting.latency)
        own = {"temperature": fitting.deployed.temperature, **own}
        return fitting.verified(export(self.predictor, fitting.deployed.policy, path, **own))

    def compare(
        self,
        images: Any = None,
        labels: ArrayLike | None = None,
        *,
        validation: Any = None,
        ood: Any = None,
        progress: ProgressChoice = None,
        accelerate: str = "auto",
        **keywords: Unpack[ComparisonKeywords],
    ) -> Comparison:
        """Compare the policy with every baseline: on the search's held-out images, or on others.

        Of the search's own images, given again, those are used that it did not search on: held out
        or left out. Images and labels are as for `relook.search`, the keywords as for
        `relook.compare`. All baselines together can take more model passes than the search:
        `methods` selects some.
        `ood` are foreign images of the same size, to measure how well the model detects them.
        "auto" means the search's engine.

        The result becomes `comparison`, on other images too, and a run keeps it, like `relook
        compare`: from now on its verdict is the one that counts. A narrower one (fewer views of the
        policy, or only part of the methods) replaces nothing, and goes to the run's `narrower`.
        `relook.compare(model, images, labels, policy=found.policy)` never changes what counts.
        """
        check_methods(keywords.get("methods"))
        indices = None
        record = {k: v for k, v in self.comparison.settings.items() if k == "set_up"}
        if images is None:
            job = self._job
            record |= {LEFT_OUT: job.left_out} if job.left_out else {}
            images, indices = job.proof, job.split.held_out
            keywords.setdefault("balanced", job.settings.balanced)
            if validation is None and not job.settings.cross_fit:
                validation = job.dataset.subset(job.split.search)
        found, dataset = compared(
            self.predictor,
            images,
            labels,
            self.policy,
            recipe=self.recipe,
            indices=indices,
            validation=validation,
            record=record,
            ood=ood,
            progress=progress,
            keywords=keywords,
            engine=self._engine(accelerate),
        )
        self._keep(found, dataset, indices, told=is_shown(progress))
        return found

    def _keep(
        self, found: Comparison, dataset: Dataset, indices: ArrayLike | None, *, told: bool
    ) -> None:
        """Let a comparison count from now on, here and in the run, unless a fuller one does."""
        if self.path is None:
            narrower = is_narrower(found, self.comparison)
        else:
            with RunDirectory(self.path):
                place = place_for(self.path, found)
                save_comparison(place, found, dataset, indices)
            narrower = place != self.path
        if not narrower:  # frozen for everyone else
            object.__setattr__(self, "comparison", found)
            object.__setattr__(self, "compared_on", dataset if indices is None else None)
        elif told:
            say("found.comparison has more views or methods and is kept: its verdict counts")

    def calibrate(
        self,
        images: Any,
        labels: ArrayLike | None = None,
        *,
        reuse_images: bool = False,
        **options: Any,
    ) -> FoundPolicy:
        """Return a copy whose policy has its average and temperatures fitted on other images.

        Images that the search used are refused unless `reuse_images`. `options` are those of
        `relook.calibrate`. A baseline that the verdict recommends keeps its temperature.
        """
        used = self._used()
        policy = calibrated(
            self.predictor, images, labels, self.policy, None if reuse_images else used, **options
        )
        return replace(self, policy=policy)

    def conformal(
        self,
        images: Any = None,
        labels: ArrayLike | None = None,
        *,
        method: str | None = None,
        views: int | None = None,
        progress: ProgressChoice = None,
        batch: int | None = None,
        **wanted: Unpack[SetKeywords],
    ) -> FoundPolicy:
        """Return a copy with prediction sets, for `tta().predict_set` and exported files.

        Their threshold needs images that the search has neither used nor held out, by default those
        that its `split` left out. `coverage` (0.9), `score` ("lac", "aps" or "raps"), `per_class`,
        `penalty` and `free` define the sets; `method` and `views` are as for `tta`. A run keeps
        the sets' results on the held-out images for its report.
        """
        from relook.deploy.conformal import policy_sets
        from relook.numerics.conformal import check_sets

        check_sets(**wanted)
        chosen, used = self._deployed(method, views), self._used()
        searched = self._job.dataset if images is None else None
        others = self._others()
        found = images if searched is None else searched
        dataset = images_for(self.predictor, found, labels, chosen.policy)
        if searched is not None:
            dataset = unused_part(dataset, used, _HOW_TO_LEAVE)
        check_unused(dataset, used, _HOW_TO_LEAVE)
        if is_shown(progress):
            say(f"prediction sets of {chosen.text}: {len(dataset):,} images set the threshold")
        with chosen_bars(progress) as bars:
            made = policy_sets(
                self.predictor,
                dataset,
                chosen.policy,
                others,
                temperature=chosen.temperature,
                batch=batch,
                progress=stage_of(bars, "calibrate"),
                **wanted,
            )
        made.keep(self.path, self.policy, chosen.text)
        if is_shown(progress) and made.note is not None:
            say(made.note)
        return replace(self, policy=made.policy)

    def distil(
        self,
        images: Any,
        *,
        out: str | Path | None = None,
        progress: ProgressChoice = None,
        accelerate: str = "torch",
        **training: Any,
    ) -> Distilled:
        """Return the network fine-tuned on unlabelled images; see `relook.distil`.

        The result is compared on the search's held-out images. `training` is `epochs`,
        `learning_rate` and `seed`.
        """
        from relook.deploy.distil.student import Training

        how = Training(**training)
        proof, model = self._job.proof, self.predictor
        return distilled(model, images, self.policy, proof, how, out, accelerate, progress)

    def suspects(
        self,
        images: Any = None,
        labels: ArrayLike | None = None,
        *,
        csv: str | Path | None = None,
        gallery: str | Path | None = None,
        **how: Any,
    ) -> Suspects:
        """Return images whose labels the policy's views contradict, the most suspect first.

        By default it checks the search's test set, or else all of its images; others are given as
        for `relook.search`. `csv` and `gallery` are files to write; `how` is as for
        `relook.predictions.passes.predict_views`. The model must not have been trained on them.
        """
        from relook.evaluation.suspects import find_suspects
        from relook.report.gallery import save_suspects

        if images is None:
            job = self._job
            images = job.dataset if job.test is None else job.test
        dataset = images_for(self.predictor, images, labels, self.policy)
        found = find_suspects(self.predictor, dataset, self.policy, **how)
        save_suspects(found, csv, gallery)
        return found

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report as one HTML page and return its path (default: into the run)."""
        from relook.report.page import render_report, write_report
        from relook.report.run_files import read_run

        if self.path is not None:
            return write_report(self.path, None if path is None else Path(path), figures=False)
        if path is None:
            raise RelookError("expected the path of a page, as report.html, got none")
        with tempfile.TemporaryDirectory() as directory:
            self.save(directory)
            run = replace(read_run(Path(directory)), path=Path(path).with_suffix(""))
            write_text_atomic(Path(path), render_report(run))
        return Path(path)

    def plot(self, metric: str = "cll") -> Any:
        """Return a matplotlib figure of the comparison; see `Comparison.plot`."""
        return self.comparison.plot(metric)

    def to_pandas(self) -> Any:
        """Return the comparison as a pandas DataFrame, one row per method and budget."""
        return self.comparison.to_pandas()

    def save(self, directory: str | Path) -> None:
        """Write a run's directory, for `relook.load` and every command."""
        target = Path(directory)
        if self.job is None and self.path is not None:
            with RunDirectory(target) as place:
                if target.resolve() != self.path.resolve():
                    for name in _FILES:
                        if (self.path / name).exists():
                            shutil.copyfile(self.path / name, target / name)
                self.policy.save(place.policy)
            return
        job = self._job
        with RunDirectory(target) as place:
            record = job.record()
            place.check_settings(record)
            record_search(place, self, job, record, self.origin, self.compared_on)

    @property
    def _names(self) -> tuple[str, ...] | None:
        return names_of(self.classes, self.predictor.classes)

    @property
    def _compared(self) -> tuple[Policy, Comparison, Recipe]:
        if self.recipe is None:
            raise RelookError("this search does not hold its model: use relook.TTA(model, policy)")
        return self.policy, self.comparison, self.recipe

    @cached_property
    def _job(self) -> SearchJob:
        if self.job is not None:
            return self.job
        if self.job_of_run is None:
            raise RelookError("this search does not hold its images: use relook.compare")
        return self.job_of_run(self.predictor)

    def _engine(self, asked: str) -> dict[str, Any]:
        if self.path is not None:
            return engine_of(load_run(self.path), asked, self.path)
        searched = self.comparison.settings["model"].get("engine", asked)
        return {"mode": searched if asked == "auto" else asked}

    def _used(self) -> bytes:
        if self.job is not None:
            return union(self.policy.seen, set_of(self.job.proof.identities))
        where = Path("policy.json") if self.path is None else self.path / "policy.json"
        return used_images(where, self.policy)

    def _others(self) -> Dataset | None:
        """Return the held-out images that nothing was learned on, to report on a run's sets."""
        if self.path is None:
            return None
        try:
            return part_not_in(self._job.proof, self.policy.seen)
        except RelookError as error:
            warn(f"the report has no section on these sets: {error}")
            return None

    def _deployed(self, method: str | None, views: int | None) -> Deployed:
        from relook.deploy.recommended import deployed

        found = deployed(*self._compared, method, views)
        if found.by_verdict and not found.whole:
            warn(
                f"the model takes {found.text}, as the verdict recommends: method='policy' takes "
                "the whole policy"
            )
        return found
