"""A search whose selection is stopped, whose predictions do not fit, whose classes are many."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import refused
from torch import Tensor

from relook.data import Dataset, load_data
from relook.errors import RelookError, RunError
from relook.models import TorchPredictor
from relook.models.small import new_small
from relook.policy import DrawKind
from relook.policy.pool import Pool, conservative_pool
from relook.policy.recipes import get_recipe
from relook.policy_search.job import plan_pool, plan_search
from relook.policy_search.pool_predictions import choose_variant
from relook.policy_search.search import PolicySearch, search_dataset
from relook.policy_search.settings import SearchSettings
from relook.selection import greedy

SETTINGS = SearchSettings(recipe=get_recipe("small"), length=5, pool_size=30, seed=3, batch=64)
TRIALS = 80  # steps: four folds of twenty
FILES = ("policy.json", "search.json", "selection.json")


class ManyClasses(torch.nn.Module):
    """A small network whose ten classes are followed by hundreds of unlikely ones."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.network = new_small(seed=1)
        self.more = classes - 10

    def forward(self, images: Tensor) -> Tensor:
        logits = self.network(images)
        others = -5 - torch.cos(torch.arange(self.more) * (1 + logits[:, :1].abs()))
        return torch.cat([logits, others], dim=1)


def digits(classes: int = 10) -> Dataset:
    some = load_data("digits").subset(np.arange(240))
    return replace(some, classes=tuple(str(c) for c in range(classes)))


def model(classes: int = 10) -> TorchPredictor:
    return TorchPredictor(new_small(seed=1) if classes == 10 else ManyClasses(classes))


def searched(run: Path | None, classes: int = 10, **changes: Any) -> PolicySearch:
    own = {key: changes.pop(key) for key in ("progress", "log") if key in changes}
    settings = replace(SETTINGS, **changes)
    return search_dataset(model(classes), digits(classes), settings, run=run, **own)


class StopError(Exception):
    pass


def stop_in(wanted: str, after: int) -> Any:
    def progress(stage: str, done: int, total: int, score: float | None = None) -> None:
        if stage == wanted and after <= done < total:
            raise StopError

    return progress


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PolicySearch]:
    """A search that was not stopped, and its directory."""
    run = tmp_path_factory.mktemp("whole") / "run"
    return run, searched(run, memory=10**9)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_stopped_selection_goes_on_to_the_same_files(
    whole: tuple[Path, PolicySearch], tmp_path: Path, steps: int
) -> None:
    with pytest.raises(StopError):
        searched(tmp_path / "cut", memory=10**9, progress=stop_in("select", TRIALS + steps))
    assert len(json.loads((tmp_path / "cut/selection.json").read_text())["picks"]) == steps
    assert not (tmp_path / "cut/policy.json").exists()
    told: list[str] = []
    searched(tmp_path / "cut", memory=10**9, log=told.append)
    assert any(f"going on after {steps} steps" in line for line in told)
    for name in FILES:
        assert (tmp_path / "cut" / name).read_bytes() == (whole[0] / name).read_bytes()


def test_a_cut_trace_is_computed_again(whole: tuple[Path, PolicySearch], tmp_path: Path) -> None:
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    before = [(tmp_path / name).read_bytes() for name in FILES[:2]]
    trace = (tmp_path / "selection.json").read_text()
    (tmp_path / "selection.json").write_text(trace[:80])
    told: list[str] = []
    searched(tmp_path, log=told.append)
    assert any("it is damaged" in line for line in told)
    assert [(tmp_path / name).read_bytes() for name in FILES[:2]] == before


def test_the_score_of_each_step_is_told() -> None:
    seen: list[tuple[int, int, float | None]] = []

    def progress(stage: str, done: int, total: int, score: float | None = None) -> None:
        assert (score is not None) == (stage == "select")
        if stage == "select":
            seen.append((done, total, score))

    trace = searched(None, progress=progress).trace
    assert [done for done, _, _ in seen] == list(range(1, TRIALS + 6))
    assert seen[TRIALS:] == [
        (step, TRIALS + 5, score) for step, score in enumerate(trace.scores, start=TRIALS + 1)
    ]


def test_a_greedy_search_has_no_trials() -> None:
    steps: list[int] = []

    def progress(stage: str, done: int, total: int, score: float | None = None) -> None:
        if stage == "select":
            steps.append(done)

    searched(None, progress=progress, strategy="greedy")
    assert steps == [1, 2, 3, 4, 5]


def test_predictions_beyond_the_limit_are_mapped_and_nothing_else_changes(
    whole: tuple[Path, PolicySearch], tmp_path: Path
) -> None:
    run, roomy = whole
    assert roomy.selection is not None
    assert not roomy.selection.mapped
    tight = searched(tmp_path / "tight", memory=roomy.selection.memory - 1)
    assert tight.selection is not None
    assert tight.selection.mapped
    assert not (run / "predictions.zarr/mapped.npy").exists()
    assert (tmp_path / "tight/predictions.zarr/mapped.npy").exists()
    assert tight.policy == roomy.policy
    assert tight.trace == roomy.trace
    assert json.loads((tmp_path / "tight/run.json").read_text())["selection"]["mapped"]
    refused("keep predictions on disk", searched, None, memory=roomy.selection.memory - 1)
    with pytest.raises(RelookError, match="take fewer images or candidates"):
        searched(tmp_path / "none", memory=tight.selection.working - 1)
    assert not (tmp_path / "none").exists()


def test_many_classes_are_kept_in_half_precision_and_can_be_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greedy, "COMPILED_FROM", 1)
    found = searched(tmp_path / "run", 300, memory=10**9)
    assert found.selection is not None
    assert found.selection.compact
    manifest = json.loads((tmp_path / "run/predictions.zarr/manifest.json").read_text())
    assert manifest["precision"] == "float16"
    assert searched(None, 300, memory=10**9).policy == found.policy
    with pytest.raises(StopError):
        searched(tmp_path / "cut", 300, memory=10**9, progress=stop_in("select", 2))
    with pytest.raises(RunError, match="leave memory out to go on"):
        searched(tmp_path / "cut", 300, memory=2 * 10**9)
    assert searched(tmp_path / "cut", 300).trace == found.trace
    single = searched(tmp_path / "single", 300, store_precision="float32")
    assert single.trace.scores == pytest.approx(found.trace.scores, abs=2e-3)
    with pytest.raises(RunError, match='store_precision: "float32" there, "auto" here'):
        searched(tmp_path / "single", 300)


def test_equal_candidates_are_predicted_once_and_the_first_is_picked(
    whole: tuple[Path, PolicySearch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, single = whole
    three_times = tuple(sub for sub in single.pool for _ in range(3))
    pool = Pool(three_times, 3 * SETTINGS.draw_pool().defaults)
    monkeypatch.setattr(SearchSettings, "draw_pool", lambda _: pool)
    found = searched(tmp_path / "run")
    assert found.trace.picks == tuple(3 * pick for pick in single.trace.picks)
    assert found.trace.scores == single.trace.scores
    assert found.policy == single.policy
    manifest = json.loads((tmp_path / "run/predictions.zarr/manifest.json").read_text())
    assert manifest["plan"]["views"] == 30


def test_a_race_works_in_single_precision_within_the_limit(tmp_path: Path) -> None:
    racing, pool = replace(SETTINGS, race=True), conservative_pool("small", 30)
    assert racing.stored_type(1000) == "float32"
    refused("a race works in float32", replace(racing, store_precision="float16").stored_type, 10)
    with pytest.raises(RelookError, match=r"a race holds its predictions in memory, up to .* GB"):
        plan_pool(replace(racing, memory=10**9), pool, (900, 25_000, 1_000), tmp_path)
    assert not plan_pool(replace(racing, memory=10**9), pool, (100, 2000, 10), tmp_path).mapped


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": 8}, "memory: expected at least"),
        ({"memory": 2.5e9}, "whole number of bytes"),
        ({"store_precision": "half"}, "unknown precision of stored predictions 'half'"),
    ],
)
def test_bad_limits_are_found_before_anything_is_predicted(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    refused(message, searched, tmp_path / "run", progress=stop_in("predict", 0), **changes)
    assert not (tmp_path / "run").exists()


class Sides(torch.nn.Module):
    """Says which side of an image is bright, and left where a border is black."""

    def forward(self, images: Tensor) -> Tensor:
        left, right = (half.mean((1, 2, 3)) for half in images.chunk(2, 3))
        brighter = torch.where(images.amin((1, 2, 3)) > 0, left - right, 0.1)
        return 40 * torch.stack([brighter, -brighter], 1)


def of_sides(images: int = 360) -> Dataset:
    """Return images whose class is their bright side, or for one in ten the other."""
    noise = np.random.default_rng(0)
    labels = noise.integers(0, 2, images)
    bright = np.where(noise.random(images) < 0.1, 1 - labels, labels)
    pixels = noise.integers(60, 100, (images, 1, 32, 32))
    pixels += 30 * ((np.arange(32) >= 16) == bright[:, None, None, None])
    return Dataset(torch.from_numpy(pixels.astype(np.uint8)), labels, ("left", "right"), "sides")


def chosen(run: Path | None = None, recipe: str = "cifar", **changes: Any) -> PolicySearch:
    own = {key: changes.pop(key) for key in ("progress", "log") if key in changes}
    settings = SearchSettings.of(recipe, length=4, pool_size=12, batch=64, **changes)
    return search_dataset(TorchPredictor(Sides()), of_sides(), settings, run=run, **own)


def test_mirror_images_and_black_borders_that_do_harm_are_left_out(tmp_path: Path) -> None:
    told: list[str] = []
    found = chosen(tmp_path / "whole", log=told.append)
    steps = [step for sub in found.pool for step in sub.all_steps]
    text = " ".join(f"{step.transform} {step.magnitude:g}" for step in steps)
    assert "reflect_crop 4" in text
    assert "flip" not in text
    assert "crop 4" not in text.replace("reflect_crop 4", "")
    assert found.probe is not None
    assert found.probe.gain > 3 * found.probe.error > 0
    assert str(found.probe) in told
    assert str(found.probe).startswith("no mirror images, crops with mirrored borders: better by")
    record = json.loads((tmp_path / "whole/run.json").read_text())
    assert [one["taken"] for one in record["probe"]["tried"]] == [True, True]
    assert record["settings"]["recipe"]["finish"]["transform"] == "crop_flip"  # the baselines'
    for stage in ("probe", "predict"):
        with pytest.raises(StopError):
            chosen(tmp_path / stage, progress=stop_in(stage, 1))
        chosen(tmp_path / stage)
        for file in ("policy.json", "search.json"):
            assert (tmp_path / stage / file).read_bytes() == (
                tmp_path / "whole" / file
            ).read_bytes()


def test_what_was_said_is_not_probed(tmp_path: Path) -> None:
    unflipped = chosen(exclude=["flip"]).probe
    assert unflipped is not None
    assert [one["change"] for one in unflipped.tried] == ["crops with mirrored borders"]
    (tmp_path / "own.toml").write_text('base = "cifar"')
    for found in (chosen(strategy="greedy"), chosen(recipe=str(tmp_path / "own.toml"))):
        assert found.probe is None
        assert {sub.finish.transform for sub in found.pool if sub.finish} == {"crop_flip"}


def test_the_passes_of_a_probe_are_counted() -> None:
    done: list[tuple[int, int]] = []
    settings = SearchSettings.of("cifar", length=4, pool_size=12)
    job = plan_search(TorchPredictor(Sides()), of_sides(), settings)
    choose_variant(job, lambda stage, *count: done.append((count[0], count[1])), None)
    assert done[-1] == 2 * (job.passes.probe,) == (16 * 240, 16 * 240)


def test_a_policy_of_fixed_views_has_no_more_of_them_than_candidates() -> None:
    cases: tuple[tuple[DrawKind, int], ...] = (("fixed", 12), ("fresh", 20))
    for draws, views in cases:
        settings = SearchSettings.of("cifar", strategy="greedy", length=20, pool_size=12)
        job = plan_search(TorchPredictor(Sides()), of_sides(), replace(settings, draws=draws))
        assert len(job.pool.candidates) == 12
        assert job.passes.proof == (2 * views + 1) * len(job.split.held_out)
