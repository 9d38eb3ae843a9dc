"""Distillation: the policy's predictions as targets, a student that learns them, its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relook.data.base import Dataset
from relook.deploy.distil.student import (
    Epoch,
    Lesson,
    Student,
    Training,
    copy_of,
    is_mirrored,
    own_network,
    save_weights,
    train_student,
    trainable,
)
from relook.deploy.distil.verdict import Verdict, judge
from relook.deploy.tta.view_plan import ViewPlan, plan_views
from relook.errors import RelookError
from relook.evaluation.unseen import doubt_of, part_not_in
from relook.foundation.progress import StageProgress, stage_of
from relook.foundation.wording import count
from relook.io.files import write_bytes_atomic
from relook.io.identities import is_in, set_of, union
from relook.io.records import Kind
from relook.io.run_directory import RunDirectory
from relook.models import Predictor
from relook.models.accelerate import Accelerated, accelerate, accelerate_run
from relook.models.describe import network_mark
from relook.models.predictors import TorchPredictor
from relook.models.weights import load_checkpoint
from relook.numerics.arrays import FloatArray
from relook.numerics.calibration import temper
from relook.policy import Policy, SubPolicy

WEIGHTS, POLICY, RECORD, STATE = "weights.safetensors", "policy.json", "distil.json", "state"
_ENOUGH = 5000  # images: docs/howto/distil.md
_MEASURED = f"where it was measured, {_ENOUGH:,} helped and 1,500 did not (docs/howto/distil.md)"


@dataclass(frozen=True)
class Record:
    """The record of a distillation: settings, the loss of each epoch, and the verdict, if any.

    The weights of `kept_epoch` come nearest to the targets of images held back; 0 is the original
    network. `written`: there are new weights. `temperature` is that of the network to use.
    """

    training: Training
    images: int
    left_out: int
    views: int
    temperature: float
    before: float
    epochs: tuple[Epoch, ...]
    kept_epoch: int
    verdict: Verdict | None
    written: bool
    settings: Mapping[str, Any]

    @property
    def sentence(self) -> str:
        """The result and the advice that follows from it."""
        if self.verdict is not None:
            few = not self.verdict.helps and self.images < _ENOUGH
            return f"{self.verdict.sentence} {self._few}" if few else self.verdict.sentence
        if not self.written:
            text = "No epoch came nearer to the policy's predictions: keep the old weights."
            return f"{text} {self._few}" if self.images < _ENOUGH else text
        return (
            "There are new weights, but no labelled images to evaluate them on: compare them "
            "before you use them."
        )

    @property
    def _few(self) -> str:
        """A note that more images may be needed."""
        return f"It learned from {count(self.images, 'image')}; {_MEASURED}."


DISTIL = Kind(Record, "relook-distil", 1, "the record of a distillation", "distil", partly=True)


@dataclass(frozen=True)
class Distilled:
    """The distilled network, or the original one if that does not help, with one plain view."""

    predictor: TorchPredictor
    policy: Policy
    record: Record
    path: Path | None = None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on labelled images; None without any."""
        return self.record.verdict

    def __str__(self) -> str:
        return self.record.sentence


def few_images_note(images: int) -> str | None:
    """Return a note, before any work is done, if there may be too few images to learn from."""
    if images >= _ENOUGH:
        return None
    return f"{count(images, 'image')} may be too few to learn from: {_MEASURED}"


def distil_policy(
    predictor: Predictor,
    dataset: Dataset,
    policy: Policy,
    proof: Dataset | None = None,
    *,
    out: Path | None = None,
    training: Training | None = None,
    engine: Mapping[str, Any] | None = None,
    batch: int | None = None,
    progress: StageProgress | None = None,
    record: Mapping[str, Any] | None = None,
) -> Distilled:
    """Train a network to predict the average of the policy's views; compare it on `proof`.

    The labels of `dataset` are not used. Images that are also in `proof` are left out. With `out`,
    everything is kept in that directory: the same call resumes after an interruption, with the same
    bytes in the end. `engine` has keywords of `accelerate_run`, for passes without a gradient. The
    stages of `progress` are "targets", "teach", "evaluate" and "evaluate distilled".
    """
    network, wanted = trainable(predictor), training or Training()
    plan = plan_views(policy, draws="fixed" if policy.is_fixed else "fresh")
    left_out, doubt = 0, ""
    if proof is not None:
        unseen = part_not_in(proof, policy.seen)
        if unseen is None:
            raise RelookError(
                f"{proof.name}: expected labelled images that the policy was not found on, got "
                "none: give others (a cross-fit has none)"
            )
        proof = unseen
        dataset, left_out, doubt = without_proof(dataset, proof)
        doubt = " ".join(filter(None, (doubt_of(proof.identities, policy.seen), doubt)))
    with nullcontext() if out is None else RunDirectory(out) as directory:
        passes = (len(plan.views) + 1) * (len(dataset) + 2 * (0 if proof is None else len(proof)))
        teacher = accelerate_run(
            network, dataset.images, passes=passes, **(engine or {"mode": "torch"})
        )
        job = _Job(network, teacher, dataset, plan, proof, wanted, batch, progress, out)
        if directory is not None:
            directory.check_settings(job.settings())
            if (directory.path / RECORD).is_file():
                return job.finished(directory.path)
        return job.run(left_out, doubt, record or {})


def without_proof(dataset: Dataset, proof: Dataset) -> tuple[Dataset, int, str]:
    """Leave out images that are in `proof`; return the others, how many are out, and any doubt."""
    used = set_of(proof.identities)
    again = is_in(dataset.identities, used)
    left = np.flatnonzero(~again)
    if not len(left):
        raise RelookError(
            f"{dataset.name}: expected images besides those that the gain is shown on, got only "
            "these: give others"
        )
    doubt = doubt_of(dataset.identities, used)
    if doubt:
        doubt = "Whether the student has learned from some of these images cannot be known."
    return dataset if len(left) == len(dataset) else dataset.subset(left), int(again.sum()), doubt


@dataclass(frozen=True)
class _Job:
    """The checked arguments of a distillation."""

    network: TorchPredictor
    teacher: Accelerated
    dataset: Dataset
    plan: ViewPlan
    proof: Dataset | None
    training: Training
    batch: int | None
    progress: StageProgress | None
    out: Path | None

    def settings(self) -> dict[str, Any]:
        """Return everything that the result depends on."""
        return {
            "training": asdict(self.training),
            "policy": self.plan.record(),
            "model": self.network.fingerprint,
            "images": self.dataset.fingerprint,
            "proof": None if self.proof is None else self.proof.fingerprint,
            "engine": self.teacher.engine,
            "batch": self.batch,
        }

    def run(self, left_out: int, doubt: str, record: Mapping[str, Any]) -> Distilled:
        """Make the targets, train and judge the student, and write the results."""
        average, _ = self._predicted(self.teacher.predictor, self.dataset, "targets", "targets")
        targets = np.exp(temper(average, self.plan.temperature))
        lesson = Lesson(self.dataset.plain, targets, is_mirrored(self.plan.policy))
        student = train_student(
            self.network,
            lesson,
            self.training,
            checkpoint=None if self.out is None else self.out / STATE,
            progress=stage_of(self.progress, "teach"),
        )
        verdict = None
        if self.proof is not None and student.kept_epoch:
            verdict = self._judged(student, self.proof, doubt)
        written = student.kept_epoch > 0 and (verdict is None or verdict.helps)
        found = Record(
            training=self.training,
            images=len(self.dataset),
            left_out=left_out,
            views=len(self.plan.views),
            temperature=student.temperatures[written],
            before=student.before,
            epochs=student.epochs,
            kept_epoch=student.kept_epoch,
            verdict=verdict,
            written=written,
            settings=dict(record),
        )
        done = self._result(found, student.predictor)
        if self.out is not None:
            if written:
                save_weights(student.predictor, self.out / WEIGHTS)
                done.policy.save(self.out / POLICY)
            DISTIL.write(self.out / RECORD, found)
            (self.out / STATE).unlink(missing_ok=True)
        return done

    def finished(self, out: Path) -> Distilled:
        """Return the result in a directory."""
        found = DISTIL.read(out / RECORD)
        student = copy_of(self.network)
        if found.written:
            load_checkpoint(own_network(student), out / WEIGHTS)
        return self._result(found, student)

    def _predicted(
        self, predictor: Predictor, images: Dataset, stage: str, store: str
    ) -> tuple[FloatArray, FloatArray]:
        """Return log-probabilities `[image, class]` by the policy, and of the plain image."""
        return self.plan.predict(
            predictor,
            images.images,
            store_path=None if self.out is None else self.out / f"{store}.zarr",
            batch=self.batch,
            progress=stage_of(self.progress, stage),
        )

    def _judged(self, student: Student, proof: Dataset, doubt: str) -> Verdict:
        taught = accelerate(student.predictor, proof.images, mode=self.teacher.engine).predictor
        averages: dict[str, tuple[FloatArray, float]] = {}
        for predictor, name, stage in (
            (self.teacher.predictor, "original", "evaluate"),
            (taught, "distilled", "evaluate distilled"),
        ):
            average, plain = self._predicted(predictor, proof, stage, name)
            averages[f"{name}, plain"] = plain, 1.0
            averages[f"{name}, policy"] = average, self.plan.policy.view_temperature
        return judge(averages, len(self.plan.views), proof, doubt)

    def _result(self, found: Record, student: TorchPredictor) -> Distilled:
        """Return the network to use, with a policy of one plain view."""
        network = student if found.written else self.network
        old = self.plan.policy
        plain = Policy(
            (SubPolicy(),),
            temperatures=(found.temperature,),
            recipe=old.recipe,
            preparation=old.preparation,
            seen=union(old.seen, set_of(self.dataset.identities)),
            fitted_on=network_mark(network),
        )
        return Distilled(network, plain, found, self.out)


def new_spec(spec: str, out: Path) -> str | None:
    """Return the spec of a network with the weights in `out`; None where it can have none."""
    prefix, _, rest = spec.partition(":")
    named = spec.partition("@")[0]
    if named.partition(":")[0] in ("timm", "torch", "cifar", "small"):
        return f"{named}@{out / WEIGHTS}"
    source = Path(rest).expanduser()
    if prefix != "hf" or not source.is_dir():
        return None
    target = out / "hf"
    target.mkdir(exist_ok=True)
    for file in sorted(source.glob("*.json")):
        if not file.name.endswith(".index.json"):
            write_bytes_atomic(target / file.name, file.read_bytes())
    write_bytes_atomic(target / "model.safetensors", (out / WEIGHTS).read_bytes())
    return f"hf:{target}"
