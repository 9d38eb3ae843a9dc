"""A search that fits the time there is: planned by a given speed, repeated by its record."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import refused

import relook
from relook.data import load_data
from relook.errors import RunError
from relook.models import TorchPredictor
from relook.models.small import new_small
from relook.policy_search import rounds
from relook.policy_search.job import SearchJob, Size, plan_search
from relook.policy_search.rounds import Rounds, what_more_time_buys
from relook.policy_search.search import PolicySearch, fit_to_time, search_dataset
from relook.policy_search.settings import SearchSettings
from relook.policy_search.time_plan import (
    EFFORTS,
    LARGER_POOL,
    PLANS,
    TimePlan,
    TimeRequest,
    largest_within,
    parse_duration,
    smaller_sizes,
)
from relook.predictions.store import BatchPlan

DIGITS = load_data("digits").subset(np.arange(700))
FEW = DIGITS.subset(np.arange(300))
MODEL = TorchPredictor(new_small(seed=1))
SETTINGS = SearchSettings.of("small", length=3, batch=64, accelerate="torch")
Speed = Callable[[float], None]
SIGNS = str.maketrans("−±", "-+")


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> Speed:
    """Say how many seconds a pass takes, instead of measuring it."""
    return lambda pace: monkeypatch.setattr(SearchJob, "seconds_a_pass", lambda job: pace)


def request(split: str | None = None, **keywords: Any) -> TimeRequest:
    return TimeRequest.from_keywords(keywords, split)


def searched(run: Path | None, own: TimeRequest, **how: Any) -> PolicySearch:
    return search_dataset(MODEL, DIGITS, SETTINGS, run=run, time_request=own, **how)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("15 min", 900),
        ("1h30m", 5400),
        ("1H 30M 5s", 5405),
        ("0.5h", 1800),
        ("45", 45),
        (45, 45),
        (0.5, 0.5),
    ],
)
def test_times_are_read(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "0", "-5m", "5m3h", "1.2.3s", "nan", "inf", True, -1, "m"]
)
def test_other_times_are_refused(text: Any) -> None:
    refused("expected a time like 90s, 15m or 1h30m", parse_duration, text)


WHOLE = st.builds(Size, st.integers(2, 2000), st.integers(2, 50_000), st.integers(4, 50_000))
FREE = st.tuples(st.booleans(), st.booleans(), st.booleans())


@given(WHOLE, FREE, st.floats(1e-6, 10), st.floats(0.1, 1e6), st.floats(1, 10))
def test_a_plan_keeps_to_its_time_grows_with_it_and_leaves_alone_what_was_asked_for(
    whole: Size, free: tuple[bool, bool, bool], pace: float, limit: float, more: float
) -> None:
    def seconds(size: Size) -> float:
        return pace * (size.candidates * size.search + 41 * size.proof)

    ways = smaller_sizes(whole, 1000, free=free)
    found = largest_within(ways, seconds, limit)
    assert seconds(found) <= limit or found == ways[-1]
    for kept, own, asked in zip(free, found, whole, strict=True):
        assert own <= asked
        assert kept or own == asked
    longer = largest_within(ways, seconds, limit * more)
    assert all(one >= other for one, other in zip(longer, found, strict=True))
    assert largest_within(ways, seconds, seconds(whole)) == whole
    assert ways[-1] == Size(
        *(
            min(own, least) if may else own
            for own, least, may in zip(whole, (16, 150, 150), free, strict=True)
        )
    )


def test_images_of_every_class_are_searched_while_the_proof_takes_half_as_many() -> None:
    ways = smaller_sizes(Size(80, 2000, 1000), 1000, free=(True, True, True))
    few = [size for size in ways if size.candidates == 16]
    assert few[0].search == 1000
    assert all(size.proof <= max(200, size.search // 2) for size in ways)


def test_what_is_asked_about_time() -> None:
    assert (request().seconds, request().explicit) == (EFFORTS["normal"], False)
    assert request(time="2m").seconds == request(effort="quick").seconds == 120
    assert request(strategy="paper").seconds is None
    for sized in (request(pool_size=80), request(holdout=0.5), request("0.5:0.5")):
        assert sized.seconds is None
    assert request(pool_size=80, time=60).seconds == 60
    assert not request("0.5:0.5", time=60).images_free
    assert not request(cross_fit=True).images_free
    refused("expected one of time, effort and plan", request, time="2m", effort="quick")
    refused("unknown effort 'quik'", request, effort="quik")


def test_what_fits_stays_as_it_is_and_what_does_not_is_cut(speed: Speed) -> None:
    speed(0.001)
    job = plan_search(MODEL, DIGITS, SETTINGS)
    same, _, plan = fit_to_time(job, request())
    assert same is job
    assert plan is not None
    assert plan.overrun_note(can_split=True) is None
    speed(0.03)
    cut, _, plan = fit_to_time(job, request())
    assert plan is not None
    assert plan.estimate is not None
    assert plan.estimate < EFFORTS["normal"]
    assert len(cut.pool.candidates) == plan.size.candidates == plan.pool_size
    assert plan.size.candidates < 80
    assert len(cut.split.search) == pytest.approx(plan.size.search, abs=2)
    assert len(cut.split.held_out) == pytest.approx(plan.size.proof, abs=2)
    assert str(plan).startswith(f"Plan for 15 min: {plan.size.candidates} candidates × ")
    rest = plan.estimate - 0.03 * cut.passes.all
    assert str(plan).endswith(f" at 33 passes/s, with {rest:.0f} s for the rest")


def test_images_left_out_are_told_with_the_reason(speed: Speed, tmp_path: Path) -> None:
    speed(0.03)
    said: list[str] = []
    searched(tmp_path / "run", request(time="2m"), log=said.append)
    job = fit_to_time(plan_search(MODEL, DIGITS, SETTINGS), request(time="2m"))[0]
    assert len(job.split.search) + len(job.split.held_out) + job.left_out == 700
    told = f"{job.left_out} of 700 images are left out: 2 min is too short for them (time, --time)"
    assert told in said
    searched(tmp_path / "again", request(plan=tmp_path / "run"), log=said.append)
    assert said.count(told) == 2
    speed(1e-6)
    searched(None, request(), log=said.append)
    assert sum("are left out" in line for line in said) == 2
    split = replace(SETTINGS, pool_size=4).with_split("100:50", len(DIGITS))
    own = request("100:50", time="2m")
    search_dataset(MODEL, DIGITS, split, time_request=own, log=said.append)
    assert "550 of 700 images are left out: split (--split) takes only the others" in said


def test_copies_of_searched_images_are_not_left_out() -> None:
    twice = DIGITS.subset(np.concatenate([np.arange(300), np.arange(300)]))
    job = plan_search(MODEL, twice, SETTINGS.with_split("100:50", 600))
    known = twice.identities
    left = ~np.isin(known, known[job.split.search])
    left[job.split.held_out] = False
    assert job.left_out == left.sum() < 450


def test_more_than_the_normal_time_has_a_larger_pool(speed: Speed) -> None:
    speed(0.001)
    for effort, size in {"quick": 80, "normal": 80, "thorough": LARGER_POOL}.items():
        own = request(effort=effort)
        assert own.initial_settings(SETTINGS, None).pool_size == size
    assert request(time="2h", pool_size=30).initial_settings(SETTINGS, None) == SETTINGS


def test_not_even_the_least_fits(speed: Speed) -> None:
    speed(60)
    job = plan_search(MODEL, DIGITS, SETTINGS)
    cut, _, plan = fit_to_time(job, request(time="1m"))
    assert plan is not None
    assert plan.size.candidates == len(cut.pool.candidates) == 16
    said = plan.overrun_note(can_split=cut.can_split)
    assert said is not None
    split = f"{plan.size.search // 2}:{plan.size.proof // 2}"
    assert said.startswith("60 s is too short: the smallest plan takes about ")
    assert said.endswith(
        f"; for less: pool_size=8, split='{split}' (--pool-size 8 --split {split})"
    )
    said = plan.overrun_note(can_split=False)
    assert said is not None
    assert said.endswith("; for less: pool_size=8 (--pool-size 8)")
    near = replace(plan, seconds=300.0, estimate=301.0).overrun_note(can_split=False)
    assert near is not None
    assert near.startswith("5 min may be too short: the smallest plan takes about 5 min at ")


def test_images_are_left_out_beside_a_separate_test(speed: Speed) -> None:
    speed(0.01)
    test = load_data("digits").subset(np.arange(700, 900))
    job = plan_search(MODEL, DIGITS, SETTINGS, test=test)
    cut, _, plan = fit_to_time(job, request(time="2m"))
    assert plan is not None
    assert len(cut.split.search) == pytest.approx(plan.size.search, abs=2)
    assert plan.size.search < 700
    assert len(cut.split.held_out) == plan.size.proof == 200


def test_a_run_that_goes_on_and_one_that_repeats_its_plan_give_the_same_bytes(
    tmp_path: Path, speed: Speed
) -> None:
    speed(0.05)
    first = tmp_path / "first"

    def stop(stage: str, done: int, total: int, score: float | None = None, /) -> None:
        if stage == "predict" and done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        searched(first, request(), progress=stop)
    plan = (first / "plan.json").read_bytes()
    speed(1e-6)
    found = searched(first, request(), warn=lambda note: None)
    assert (first / "plan.json").read_bytes() == plan
    assert found.time_plan == PLANS.read(first / "plan.json")
    assert json.loads((first / "run.json").read_text())["plan"]["size"] == {
        "candidates": len(found.pool),
        "search": len(found.search_indices),
        "proof": len(found.held_out_indices),
    }
    for plan_file in (first, first / "plan.json"):
        second = tmp_path / f"second-{plan_file.name}"
        searched(second, request(plan=plan_file))
        for name in ("policy.json", "search.json", "plan.json"):
            assert (second / name).read_bytes() == (first / name).read_bytes()
        assert searched(second, request()).policy == found.policy  # which goes on with its plan


def test_a_run_keeps_its_time(tmp_path: Path, speed: Speed) -> None:
    speed(0.003)
    run = tmp_path / "run"
    searched(run, request(time="1m"))
    with pytest.raises(RunError, match=r"begun for 60 s, got 2 min: leave the time out"):
        searched(run, request(time="2m"))
    search_dataset(MODEL, FEW, replace(SETTINGS, pool_size=8), run=tmp_path / "other")
    with pytest.raises(RunError, match="begun with no time, got 60 s"):
        searched(tmp_path / "other", request(time="1m"))
    refused("plan: expected a run with a plan.json", searched, None, request(plan=tmp_path / "no"))


def test_rounds_change_no_byte(tmp_path: Path) -> None:
    settings, said = replace(SETTINGS, pool_size=40), list[str]()
    search_dataset(MODEL, FEW, settings, run=tmp_path / "one")
    how: dict[str, Any] = {"time_request": request(pool_size=40), "log": said.append}
    search_dataset(MODEL, FEW, settings, run=tmp_path / "rounds", **how)
    for name in ("policy.json", "search.json", "settings.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "rounds" / name).read_bytes()
    assert not (tmp_path / "rounds" / "plan.json").exists()
    (answer,) = [line for line in said if line.startswith("so far, from 16 of 40 candidates: ")]
    assert answer.endswith(" on the search images")


def test_an_interrupted_run_finishes_with_its_complete_rounds(tmp_path: Path) -> None:
    settings, run = replace(SETTINGS, pool_size=80), tmp_path / "run"
    said: list[str] = []

    def found(run: Path, own: TimeRequest, **how: Any) -> PolicySearch:
        return search_dataset(MODEL, FEW, settings, run=run, time_request=own, **how)

    def stop_at(share: float) -> Any:
        def stop(stage: str, done: int, total: int, score: float | None = None, /) -> None:
            if stage == "predict" and done > share * total:
                raise KeyboardInterrupt

        return stop

    with pytest.raises(KeyboardInterrupt):
        found(run, request(pool_size=80), progress=stop_at(0.1))
    refused("finish: expected a complete round", found, run, request(pool_size=80, finish=True))
    with pytest.raises(KeyboardInterrupt):
        found(run, request(pool_size=80), progress=stop_at(0.5))
    first = found(run, request(pool_size=80, finish=True), log=said.append)
    assert "finishing with 32 of 80 candidates, as asked" in said
    (more,) = [line for line in said if line.startswith("what more time would buy: the last 16 of")]
    gains = re.findall(r"by ([+−±]\d\.\d{4}) ± 0\.0", more)
    assert "have changed nothing" in more or float(gains[0].translate(SIGNS)) >= 0
    assert first.time_plan is not None
    assert first.time_plan.kept == 32
    assert max(first.trace.picks) < 32
    policy = (run / "policy.json").read_bytes()
    assert found(run, request(pool_size=80)).policy == first.policy
    assert (run / "policy.json").read_bytes() == policy
    found(tmp_path / "again", request(plan=run, pool_size=80))
    assert (tmp_path / "again" / "policy.json").read_bytes() == policy


def test_candidates_that_change_nothing_are_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    log_probs = np.zeros((4, 10, 2))
    monkeypatch.setattr(rounds, "_select", lambda job, part: None)
    monkeypatch.setattr(rounds, "_log_likelihoods", lambda job, found: np.full(10, -0.5))
    job = SimpleNamespace(groups=None)
    own: Any = job, SimpleNamespace(candidates=np.arange(4)), SimpleNamespace(log_probs=log_probs)
    assert what_more_time_buys(*own) == (
        "what more time would buy: the last 2 of 4 candidates have changed nothing; as many again "
        "probably change nothing either"
    )


@pytest.mark.parametrize(
    ("now", "again"), [(-0.4, "probably gain less"), (-0.6, "probably gain nothing")]
)
def test_what_more_time_would_buy_is_never_said_to_be_less_than_a_loss(
    monkeypatch: pytest.MonkeyPatch, now: float, again: str
) -> None:
    monkeypatch.setattr(rounds, "_select", lambda job, part: None)
    monkeypatch.setattr(
        rounds, "_log_likelihoods", lambda job, found: np.full(10, now if found else -0.5)
    )
    log_probs = np.zeros((4, 10, 2))
    job: Any = SimpleNamespace(groups=None)
    predicted: Any = SimpleNamespace(candidates=np.arange(4))
    selected: Any = SimpleNamespace(log_probs=log_probs)
    gain = {-0.4: "+0.1000", -0.6: "−0.1000"}[now]
    changed = f"changed the cLL by {gain} ± 0.0000 on the search images; as many again {again}"
    assert what_more_time_buys(job, predicted, selected).endswith(changed)
    images = ", but the 1,200 images left out would narrow the intervals"
    assert what_more_time_buys(job, predicted, selected, 1200).endswith(f"{changed}{images}")


def test_more_time_adds_only_images_that_the_plan_left_out(speed: Speed, tmp_path: Path) -> None:
    speed(0.03)
    job = plan_search(MODEL, DIGITS, SETTINGS, directory=tmp_path)
    cut, _, plan = fit_to_time(job, request())
    assert Rounds(job, request(), plan, "torch", timed=False).images_left_out == 0
    left = len(DIGITS) - len(cut.split.search) - len(cut.split.held_out)
    assert left > 0
    assert Rounds(cut, request(), plan, "torch", timed=False).images_left_out == left
    assert Rounds(cut, request("0.5:0.3"), plan, "torch", timed=False).images_left_out == 0


def test_there_is_nothing_to_finish_without_a_directory() -> None:
    refused("expected a run's directory", searched, None, request(finish=True))


@pytest.mark.parametrize(
    ("paces", "kept"), [((0.001, 0.001, 0.05), 48), ((0.001,), None), ((0.1,), 16)]
)
def test_a_machine_that_slows_down_ends_the_rounds(
    tmp_path: Path, paces: tuple[float, ...], kept: int | None
) -> None:
    job = plan_search(MODEL, DIGITS, replace(SETTINGS, pool_size=64), directory=tmp_path)
    images, clock = len(job.split.search), [0.0]
    own = replace(request(time="10m"), started=0.0)
    rounds = Rounds(job, own, None, "torch", timed=True, now=lambda: clock[0])
    assert rounds.has_next(None, False)
    for number, pace in enumerate(paces, 1):
        clock[0] += pace * 16 * images
        so_far: Any = SimpleNamespace(plan=BatchPlan(16 * number, images, 10, 64, 16))
        assert rounds.has_next(so_far, False) == (kept != 16 * number)
    assert (None if rounds.plan is None else rounds.plan.kept) == kept
    assert (tmp_path / "plan.json").exists() == (kept is not None)
    again = Rounds(job, own, rounds.plan, "torch", timed=False)
    assert again.has_next(so_far, False) == (kept is None)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = TimePlan(20, 0.25, 0.5, "torch", Size(20, 300, 100), 60.0, 0.01, 50.5, 16)
    PLANS.write(tmp_path / "plan.json", plan)
    assert PLANS.read(tmp_path / "plan.json") == plan


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_python_takes_a_time(speed: Speed) -> None:
    speed(0.02)
    images, labels = DIGITS.plain, DIGITS.labels
    found = relook.search(
        new_small(seed=1), images, labels, time=120, length=3, recipe="small", accelerate="torch"
    )
    assert found.time_plan is not None
    assert found.time_plan.seconds == 120
    assert len(found.pool) == found.time_plan.size.candidates < 80
