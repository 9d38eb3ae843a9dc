"""The way of a search: short, and each value on it computed once."""

import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import refused
from torch import Tensor, nn

import relook
from relook.data import as_dataset, load_data
from relook.errors import RelookError, RunError
from relook.models import (
    CallablePredictor,
    EnsemblePredictor,
    Predictor,
    TorchPredictor,
    as_predictor,
    load_model,
)
from relook.models.small import new_small
from relook.numerics.calibration import fit_temperature
from relook.policy.recipes import get_recipe
from relook.policy_search.job import plan_search
from relook.policy_search.notes import search_notes
from relook.policy_search.search import PolicySearch, search_dataset
from relook.policy_search.settings import MODEL_KEYWORDS, SearchKeywords, SearchSettings
from relook.policy_search.time_plan import TIME_KEYWORDS
from relook.predictions.passes import View, predict_views

SETTINGS = SearchSettings(recipe=get_recipe("small"), length=2, pool_size=8, batch=64)
DIGITS = load_data("digits").subset(np.arange(60))


def searched(run: Path | None, **changes: Any) -> PolicySearch:
    settings = replace(SETTINGS, **changes)
    return search_dataset(TorchPredictor(new_small(seed=1)), DIGITS, settings, run=run)


def entered(work: Callable[[], object]) -> Counter[tuple[str, str]]:
    """Return relook's functions that the work enters, by module and name, with their calls."""
    found: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("relook."):
            found[module, frame.f_code.co_name] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("kept", [True, False])
def test_split_pool_plan_and_record_are_computed_once(tmp_path: Path, kept: bool) -> None:
    calls = entered(lambda: searched(tmp_path / "run" if kept else None))
    once = {
        "relook.numerics.splits": "search_split",
        "relook.policy.pool": "conservative_pool",
        "relook.selection.plan": "plan_selection",
        "relook.evaluation.compare": "compare",
    }
    assert {name: calls[module, name] for module, name in once.items()} == dict.fromkeys(
        once.values(), 1
    )


MOST_MODULES = 66
"""How many modules of relook a search enters today: a bound on growth."""


def test_the_way_of_a_search_does_not_grow(tmp_path: Path) -> None:
    model = TorchPredictor(new_small(seed=1))
    search_dataset(model, DIGITS, SETTINGS, run=tmp_path / "first")  # imports, and compiles
    calls = entered(lambda: search_dataset(model, DIGITS, SETTINGS, run=tmp_path / "run"))
    way = {module for module, _ in calls}
    assert len(way) <= MOST_MODULES, sorted(way)


def test_the_time_and_the_classes_that_the_images_have_are_said() -> None:
    model, few = TorchPredictor(new_small(seed=1)), np.flatnonzero(DIGITS.labels < 3)
    said: list[str] = []
    found = search_dataset(model, DIGITS.subset(few), SETTINGS, log=said.append)
    assert any(
        re.fullmatch(r"about \d+ s in all, at [\d,]+ views/s, measured now", line) for line in said
    )
    assert "(3 classes)" in found.notes[0]


def test_more_images_than_a_policy_can_name_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relook.policy_search.job.MAX_SEARCH_IMAGES", 10)
    model = TorchPredictor(new_small(seed=1))
    refused("expected at most 10 images to search with", plan_search, model, DIGITS, SETTINGS)


def test_every_setting_is_a_keyword_and_in_the_record() -> None:
    names = {field.name for field in fields(SearchSettings)}
    read_together = {"exclude", "split", "reuse", *TIME_KEYWORDS}
    assert set(SearchKeywords.__annotations__) == (
        names - {"left_out"} | read_together | set(MODEL_KEYWORDS)
    )
    assert set(SETTINGS.record()) == names - {"memory"}
    options = {f.name for f in fields(SearchSettings) if f.metadata.get("option") is not None}
    assert options == names - {"recipe", "holdout", "left_out"}


def test_a_misspelt_keyword_is_named() -> None:
    with pytest.raises(RelookError, match=r"keyword of relook.search 'pool_sise'.*'pool_size'"):
        relook.search(new_small(), DIGITS.plain, DIGITS.labels, pool_sise=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("settings", "size"),
    [({}, 80), ({"strategy": "greedy"}, 400), ({"strategy": "paper"}, 400), ({"pool_size": 9}, 9)],
)
def test_how_many_candidates_there_are_by_default(settings: dict[str, Any], size: int) -> None:
    asked = SearchSettings.of("small", **settings)
    assert len(asked.draw_pool().candidates) == size
    assert asked.record()["pool_size"] == (size if size < 400 else None)


def test_a_search_whose_pool_is_whole_does_not_go_on_with_another_model(tmp_path: Path) -> None:
    """The weights are the same, the code is not: policy and proof would be two models'."""

    class Changed(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.network, self.factor = new_small(seed=1), factor

        def forward(self, images: Tensor) -> Tensor:
            scores: Tensor = self.network(images) * self.factor
            return scores

    run = tmp_path / "run"
    search_dataset(TorchPredictor(Changed(1.0)), DIGITS, SETTINGS, run=run)
    for file in ("policy.json", "run.json", "heldout.zarr"):  # as if killed after the pool
        shutil.rmtree(run / file) if (run / file).is_dir() else (run / file).unlink()
    with pytest.raises(RunError, match="no longer answers as it did"):
        search_dataset(TorchPredictor(Changed(3.0)), DIGITS, SETTINGS, run=run)
    assert not (run / "policy.json").exists()


def test_a_plan_writes_nothing(tmp_path: Path) -> None:
    model = TorchPredictor(new_small(seed=1))
    job = plan_search(model, DIGITS, SETTINGS, directory=tmp_path / "run")
    assert job.passes.pool == len(job.split.search) * 8
    assert not list(tmp_path.iterdir())


def test_a_balanced_search_is_proven_by_balanced_figures() -> None:
    found = searched(None, balanced=True)
    assert found.comparison.settings["balanced"] is True
    assert "held-out class-balanced cLL" in found.comparison.verdict.sentence


def test_the_temperatures_of_a_policy_are_shrunk() -> None:
    found = searched(None, strategy="greedy")
    images = DIGITS.images[found.search_indices]
    views = [View(sub, index) for index, sub in enumerate(found.policy)]
    log_probs = predict_views(TorchPredictor(new_small(seed=1)), images, views, seed=0)
    labels = DIGITS.labels[found.search_indices]
    temperatures = found.policy.temperatures
    assert temperatures == found.trace.temperatures
    assert temperatures is not None
    assert temperatures[0] == pytest.approx(fit_temperature(log_probs[0], labels), abs=1e-3)
    assert temperatures[0] != pytest.approx(fit_temperature(log_probs[0], labels, prior=0), abs=0.1)


@pytest.mark.parametrize(("side", "noted"), [(8, True), (16, False)])
def test_images_that_are_tiny_for_a_recipe_s_crops_give_a_note(side: int, noted: bool) -> None:
    pixels = torch.randint(256, (300, 1, side, side), generator=torch.manual_seed(0))
    model = CallablePredictor(lambda images: images[:, 0, 0, :3] / 99, outputs="logits", classes=3)
    dataset = as_dataset(pixels.byte(), np.arange(300) % 3)
    notes = search_notes(plan_search(model, dataset, SearchSettings.of("small")))
    told = f"these have {side}, and its crops move them by up to 3"
    assert any(told in note for note in notes) == noted


@pytest.mark.parametrize("outputs", [3, 10])
def test_folders_taken_for_the_model_s_first_classes_give_a_note(outputs: int) -> None:
    pixels = torch.randint(256, (300, 1, 32, 32), generator=torch.manual_seed(0)).byte()
    model = CallablePredictor(lambda images: images[:, 0, 0, :outputs] / 99, outputs="logits")
    dataset = replace(as_dataset(pixels, np.arange(300) % 3), name="folder:photos")
    notes = search_notes(plan_search(model, dataset, SearchSettings.of("small")))
    told = [note for note in notes if "folders" in note]
    assert told == (
        [
            "the folders' names, 0 to 2, are taken for the numbers of the model's classes; "
            "7 classes of the model have no image"
        ]
        if outputs == 10
        else []
    )


BARE = "torch:relook.models.small:new_small"
FORGOTTEN = "mean and std (--mean, --std) are not given: the network gets values 0…1"


@pytest.mark.parametrize(
    ("make", "note"),
    [
        (lambda: load_model(BARE), FORGOTTEN),
        (lambda: load_model(BARE, mean=0.3), "mean is given without std (--std), taken as 1"),
        (lambda: load_model(BARE, std=0.3), "std is given without mean (--mean), taken as 0"),
        (lambda: load_model(BARE, mean=0, std=1), None),
        (lambda: TorchPredictor(new_small(seed=1)), None),
        (lambda: as_predictor(new_small(seed=1), mean=0.3), "mean is given without std (--std)"),
        (lambda: as_predictor([new_small(seed=1), BARE]), FORGOTTEN),
        (lambda: CallablePredictor(lambda x: x[:, 0, 0, :10] / 99, outputs="logits"), None),
    ],
)  # fmt: skip
def test_a_mean_and_std_that_nobody_gave_are_noted(
    make: Callable[[], Predictor], note: str | None
) -> None:
    settings = replace(SETTINGS, accelerate="channels-last")
    if isinstance(make(), CallablePredictor | EnsemblePredictor):
        settings = SETTINGS
    said: list[str] = []
    found = search_dataset(make(), DIGITS.subset(np.arange(40)), settings, warn=said.append)
    told = [one for one in said if "mean" in one]
    assert [one for one in found.notes if "mean" in one] == told
    assert len(told) == (note is not None)
    assert note is None or told[0].startswith(note)
