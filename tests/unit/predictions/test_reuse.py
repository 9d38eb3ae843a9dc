"""What is taken over from the stores of other runs: the bytes that a run of its own would make."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.predictions.passes_cases import FIXED, FLIP, FRESH, Toy, contents
from torch import Tensor

from relook.errors import RelookError
from relook.policy import Step, SubPolicy
from relook.predictions.passes import View, fill_store
from relook.predictions.reuse import Reused, reusing

pytestmark = pytest.mark.usefixtures("small_groups")

SUBS = [SubPolicy(), FLIP, FIXED, *(SubPolicy((Step("invert", m),)) for m in (0, 1, 2, 3))]


class Mixing(Toy):
    """Its outputs depend on what else is in a call, as those of fast kernels do."""

    def __call__(self, images: Tensor) -> Tensor:
        return (super().__call__(images) * (1 + images.float().mean() / 1e4)).log_softmax(1)


class Moody(Mixing):
    """The same network by its fingerprint, in other digits."""

    def __call__(self, images: Tensor) -> Tensor:
        scores = super().__call__(images)
        scores[:, 0] += 1e-5
        return scores.log_softmax(1)


@pytest.fixture
def images() -> Tensor:
    generator = np.random.default_rng(1)
    return torch.from_numpy(generator.integers(0, 256, (7, 1, 9, 8), dtype=np.uint8))


def views(*which: int) -> list[View]:
    return [View(SUBS[number], place) for place, number in enumerate(which)]


def filled(
    path: Path,
    images: Tensor,
    which: list[View],
    model: Toy | None = None,
    *,
    seed: int = 1,
    batch: int = 3,
) -> tuple[Toy, Reused]:
    model = Mixing() if model is None else model
    path.mkdir(parents=True, exist_ok=True)
    with reusing(path) as reused:
        fill_store(model, images, which, path / "predictions.zarr", seed=seed, batch=batch)
    return model, reused


def same_as_alone(
    path: Path, alone: Path, images: Tensor, which: list[View], seed: int = 1
) -> Reused:
    """Fill a store next to others and one alone, compare their bytes; return what it took."""
    made, reused = filled(path, images, which, seed=seed)
    reference, _ = filled(alone / path.name, images, which, seed=seed)
    assert contents(path) == contents(alone / path.name)
    shutil.rmtree(alone)
    checks = len(reused.stores)
    assert sum(made.sizes) <= sum(reference.sizes) - reused.passes + 3 * checks
    return reused


def test_views_that_others_have_predicted_are_not_predicted_again(
    images: Tensor, tmp_path: Path
) -> None:
    alone, runs = tmp_path / "alone", tmp_path / "runs"
    assert filled(runs / "a", images, views(0, 1, 2, 3))[1].passes == 0
    # Six of seven images fill two batches; the seventh shares its call with other views.
    larger = same_as_alone(runs / "b", alone, images, views(5, 1, 0, 4, 2, 3, 6))
    assert (larger.passes, list(larger.runs)) == (4 * 6, ["a"])
    assert "24 model passes were known from a" in str(larger)
    # Its first block is b's first and its last a's last, so their last images are the same, too.
    both = same_as_alone(runs / "c", alone, images, views(5, 1, 0, 3))
    assert (both.passes, list(both.runs)) == (4 * 7, ["a", "b"])
    assert same_as_alone(runs / "d", alone, images, views(4)).passes == 6


def test_nothing_is_taken_from_other_models_images_batches_or_draws(
    images: Tensor, tmp_path: Path
) -> None:
    fresh = [View(FRESH[0], 0), View(FLIP, 1), View(FRESH[1], 2)]
    filled(tmp_path / "a", images, fresh)
    assert filled(tmp_path / "b", images, fresh, batch=2)[1].passes == 0
    assert filled(tmp_path / "c", images[1:], fresh)[1].passes == 0
    assert filled(tmp_path / "d", images, fresh, Moody())[1].passes == 0
    other = Mixing()
    other.fingerprint = "other"
    assert filled(tmp_path / "e", images, fresh, other)[1].passes == 0
    # Another seed draws fresh views anew, and a fixed one is what it was.
    shutil.rmtree(tmp_path / "d")
    assert (
        same_as_alone(tmp_path / "f", tmp_path / "alone" / "1", images, fresh, seed=2).passes == 6
    )
    moved = [View(FRESH[0], 3), View(FRESH[1], 2)]
    assert same_as_alone(tmp_path / "g", tmp_path / "alone" / "2", images, moved).passes == 6


def test_unfinished_damaged_and_strange_stores_give_what_they_have(
    images: Tensor, tmp_path: Path
) -> None:
    runs, alone = tmp_path / "runs", tmp_path / "alone"
    filled(runs / "a", images, views(0, 1, 2))
    chunks = sorted((runs / "a" / "predictions.zarr" / "c").rglob("*"))
    files = [chunk for chunk in chunks if chunk.is_file()]
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:-1] + b"?")
    for name, text in (("x", "{"), ("y", '{"views": 3}'), ("z", "[]")):
        (runs / name / "predictions.zarr").mkdir(parents=True)
        (runs / name / "predictions.zarr" / "manifest.json").write_text(text)
        (runs / name / "predictions.zarr" / "zarr.json").write_text("{}")
    assert same_as_alone(runs / "b", alone, images, views(0, 1, 2)).passes == 3


def test_what_is_taken_is_decided_once_though_other_runs_go_on(
    images: Tensor, tmp_path: Path
) -> None:
    filled(tmp_path / "runs/a", images, views(0, 1, 2))
    chunk = next(path for path in (tmp_path / "runs/a").rglob("c/0/1/*") if path.is_file())
    late = chunk.read_bytes()
    chunk.unlink()

    class Meanwhile(Mixing):
        def __call__(self, images: Tensor) -> Tensor:
            if self.calls > 1:  # the first is the comparison with a
                chunk.write_bytes(late)
            return super().__call__(images)

    _, reused = filled(tmp_path / "runs/b", images, views(3, 0, 1), Meanwhile())
    filled(tmp_path / "alone/b", images, views(3, 0, 1))
    assert reused.passes == 2 * 3
    assert contents(tmp_path / "runs/b") == contents(tmp_path / "alone/b")


@pytest.mark.parametrize("calls", range(1, 6))
def test_an_interrupted_run_that_takes_over_goes_on(
    images: Tensor, tmp_path: Path, calls: int
) -> None:
    filled(tmp_path / "runs/a", images, views(0, 1, 2))
    wanted = views(3, 0, 4, 1, 5, 2)
    with pytest.raises(RelookError, match="the model failed"):
        filled(tmp_path / "runs/b", images, wanted, Mixing(fail_after=calls))
    filled(tmp_path / "runs/b", images, wanted)
    filled(tmp_path / "alone/b", images, wanted)
    assert contents(tmp_path / "runs/b") == contents(tmp_path / "alone/b")
