"""`relook policy select` and the selection of `relook search`, as a user's shell runs them."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.e2e.conftest import Finished, Relook
from tests.oracles.plain_search import random_pool

from relook.foundation import memory
from relook.policy import Policy
from relook.selection import greedy, greedy_search
from relook.selection import record as selection_record
from relook.selection.greedy import Pick
from relook.selection.plan import plan_selection

LOG_PROBS, LABELS = random_pool(4, 12, 60, 5)
QUICK = ("--recipe", "small", "--pool-size", "12", "--length", "4", "--batch", "64")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.save(tmp_path / "p.npy", LOG_PROBS)
    np.save(tmp_path / "labels.npy", LABELS)
    return tmp_path


def command(files: Path, *more: object, predictions: str = "p.npy") -> tuple[object, ...]:
    sources = ("--predictions", files / predictions, "--labels", files / "labels.npy")
    return ("policy", "select", *sources, "--kind", "log_probs", "--length", "5", *more)


def interrupt_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C once that many steps are picked."""
    search = greedy_search

    def interrupted(*arguments: Any, picked: Any, **options: Any) -> Any:
        def pick(each: Pick) -> None:
            picked(each)
            nonlocal steps
            steps -= 1
            if steps == 0:
                raise KeyboardInterrupt

        return search(*arguments, picked=pick, **options)

    monkeypatch.setattr(selection_record, "greedy_search", interrupted)


def assert_one_line(done: Finished, message: str) -> None:
    assert done.code == 2, done.out
    assert message in done.err
    assert "Traceback" not in done.err
    assert len([line for line in done.err.splitlines() if line.startswith("error:")]) == 1


def test_an_interrupted_selection_goes_on(
    relook: Relook, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = files / "whole.json", files / "cut.json"
    done = relook.ok(*command(files, "--out", whole))
    assert "selection: about" in done.err
    assert "cLL −" in done.err
    with monkeypatch.context() as patched:
        interrupt_after(3, patched)
        done = relook(*command(files, "--out", cut))
    assert done.code == 130
    assert "nothing is lost. Run the same command again" in done.err
    assert not cut.exists()
    assert "going on after 3 steps" in relook.ok(*command(files, "--out", cut)).err
    assert cut.read_bytes() == whole.read_bytes()
    assert not list(files.glob("*.partial"))


def test_other_predictions_or_settings_start_anew(
    relook: Relook, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = files / "out.json"
    with monkeypatch.context() as patched:
        interrupt_after(2, patched)
        assert relook(*command(files, "--out", out)).code == 130
    done = relook.ok(*command(files, "--out", out, "--objective", "accuracy"))
    assert "belongs to other predictions or settings): selecting from the start" in done.err
    assert json.loads(out.read_text())["objective"] == "accuracy"


def test_a_view_temperature_goes_into_the_result_and_the_policy(
    relook: Relook, files: Path, model: str, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = relook.ok(*command(files, "--json"))
    assert "view_temperature" not in usual.out
    learned = partial(replace, view_temperature=4.0)
    search = greedy_search
    monkeypatch.setattr(
        selection_record, "greedy_search", lambda *given, **how: learned(search(*given, **how))
    )
    told = json.loads(relook.ok(*command(files, "--json")).out)
    assert told == {**json.loads(usual.out), "view_temperature": 4.0}
    assert "view temperature 4" in relook.ok(*command(files)).out.splitlines()
    run = files / "run"
    relook.ok("search", "--model", model, "--data", data, "--out", run, *QUICK)
    assert Policy.load(run / "policy.json").view_temperature == 4
    assert json.loads((run / "search.json").read_text())["view_temperature"] == 4
    shown = relook.ok("show", run)
    assert "seed 0, view temperature 4" in shown.out
    assert json.loads(relook.ok("show", run, "--json").out)["policy"]["view_temperature"] == 4


def test_without_a_file_ctrl_c_tells_how_it_could_go_on(
    relook: Relook, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after(1, monkeypatch)
    done = relook(*command(files))
    assert done.code == 130
    assert "Use --out FILE to be able to resume" in done.err


def test_files_beyond_the_memory_are_mapped(
    relook: Relook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_probs, labels = random_pool(5, 30, 1000, 8)
    np.save(tmp_path / "p.npy", log_probs)
    np.save(tmp_path / "half.npy", log_probs.astype(np.float16))
    np.savez(tmp_path / "p.npz", log_probs=log_probs)
    np.save(tmp_path / "labels.npy", labels)
    roomy = relook(*command(tmp_path, "--json", "--memory", "1G"))
    tight = relook(*command(tmp_path, "--json", "--memory", "10M"))
    assert (roomy.code, tight.code) == (0, 0), tight.err
    assert "1.0 MB of predictions, in memory" not in tight.err
    assert "mapped from disk" in tight.err
    assert tight.out == roomy.out
    half = relook.ok(*command(tmp_path, "--json", "--memory", "9.9M", predictions="half.npy"))
    assert "480 kB of predictions, mapped from disk" in half.err
    assert json.loads(half.out)["scores"] == pytest.approx(
        json.loads(roomy.out)["scores"], abs=2e-3
    )
    packed = relook(*command(tmp_path, "--memory", "10M", predictions="p.npz"))
    assert_one_line(packed, "keep predictions on disk")


def test_dry_run_tells_the_needs(relook: Relook, files: Path) -> None:
    done = relook.ok(*command(files, "--dry-run", "--memory", "2G"))
    assert "12 candidates × 60 images × 5 classes: about" in done.out
    assert "of 2.0 GB allowed" in done.out
    done = relook(*command(files, "--dry-run", "--json"))
    assert json.loads(done.out)["predictions"] == LOG_PROBS.nbytes


def changed(value: float, dtype: type = np.float32) -> NDArray[Any]:
    values: NDArray[Any] = LOG_PROBS.astype(dtype)
    values[7, 31, 2] = value
    return values


BAD: dict[str, tuple[NDArray[Any], NDArray[Any], str]] = {
    "NaN": (changed(np.nan), LABELS, "got nan at candidate 7, image 31"),
    "NaN, float16": (changed(np.nan, np.float16), LABELS, "got nan at candidate 7, image 31"),
    "above 0": (changed(0.5), LABELS, "at most 0, got 0.5 at candidate 7, image 31"),
    "a row that is off": (changed(-0.01), LABELS, "sum to 1"),
    "off in float16": (changed(-0.01, np.float16), LABELS, "sum to 1"),
    "logits": (LOG_PROBS + 3, LABELS, "expected log-probabilities"),
    "whole numbers": (LOG_PROBS.astype(np.int64), LABELS, "expected floats [candidate, image,"),
    "two axes": (LOG_PROBS[0], LABELS, "got float32 [60, 5]"),
    "no candidate": (LOG_PROBS[:0], LABELS, "at least 1 candidate"),
    "no image": (LOG_PROBS[:, :0], LABELS[:0], "1 image"),
    "one class": (LOG_PROBS[..., :1], LABELS, "2 classes"),
    "few labels": (LOG_PROBS, LABELS[:-1], "expected 60 whole numbers"),
    "a label too high": (LOG_PROBS, LABELS + 1, "expected 0 to 4"),
    "a label below 0": (LOG_PROBS, LABELS - 1, "got -1 at image"),
    "labels that are floats": (LOG_PROBS, LABELS / 2, "expected whole numbers [image]"),
}


@pytest.mark.parametrize(("log_probs", "labels", "message"), BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("compiled_from", [1, 1 << 62])
@pytest.mark.parametrize("mapped", [False, True])
def test_bad_input_is_found_before_the_first_step(
    relook: Relook,
    files: Path,
    log_probs: NDArray[Any],
    labels: NDArray[Any],
    message: str,
    compiled_from: int,
    mapped: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(greedy, "COMPILED_FROM", compiled_from)
    monkeypatch.setattr(memory, "_SMALLEST_LIMIT", 1)
    limit = 10**9
    if mapped and log_probs.ndim == 3 and log_probs.size:
        whole = plan_selection(log_probs.shape, log_probs.dtype, "cll", limit, on_disk=True)
        limit = whole.memory - 1
    np.save(files / "p.npy", log_probs)
    np.save(files / "labels.npy", labels)
    done = relook(*command(files, "--out", files / "out.json", "--memory", limit))
    assert_one_line(done, message)
    assert not list(files.glob("out.json*"))


def test_bad_probabilities_are_found_too(relook: Relook, files: Path) -> None:
    for value, message in ((-0.1, "a negative number or NaN at candidate 7"), (0.9, "sum to 1")):
        probabilities = np.exp(LOG_PROBS)
        probabilities[7, 31, 2] = value
        np.save(files / "p.npy", probabilities)
        done = relook(*command(files), "--kind", "probabilities")
        assert_one_line(done, message)


def damaged(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: (path.write_bytes(change(path.read_bytes())), None)[1]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damaged(lambda data: data[:-4]), "damaged or cut off"),
        (damaged(lambda data: data[:20]), "expected an npy file"),
        (damaged(lambda data: b""), "expected an npy file"),
        (lambda path: np.save(path, np.array([{}], dtype=object)), "expected an npy file"),
        (lambda path: path.unlink(), "no such file"),
    ],
)
def test_a_damaged_file_is_one_line(
    relook: Relook, files: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(files / "p.npy")
    assert_one_line(relook(*command(files)), message)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--memory", "lots", "--memory: expected a size like 500M, 8G or 8GiB, got 'lots'"),
        ("--memory", "8", "write 500M for megabytes"),
        ("--store-precision", "float64", "unknown precision of stored predictions 'float64'"),
        ("--split", "half:half", "split: expected SEARCH:TEST"),
        ("--split", "rest:rest", "split: expected SEARCH:TEST"),
        ("--split", "0.5", "split: expected SEARCH:TEST"),
        ("--split", "200:200", "at most 240 in both, got 200 to search with and 200"),
        ("--split", "240:rest", "got 240 to search with and 0"),
        ("--split", "230:2", "hold out a larger share"),
    ],
)
def test_bad_options_of_a_search_are_one_line(
    relook: Relook, model: str, data: str, tmp_path: Path, option: str, value: str, message: str
) -> None:
    sources = ("search", "--model", model, "--data", data, "--out", tmp_path / "run")
    assert_one_line(relook(*sources, *QUICK, option, value), message)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("split", "search", "held_out"),
    [("0.5:0.5", 120, 120), ("100:140", 100, 140), ("90:rest", 90, 150), ("60:0.25", 60, 60)],
)
def test_a_split_in_shares_or_numbers(
    relook: Relook, model: str, data: str, tmp_path: Path, split: str, search: int, held_out: int
) -> None:
    out = tmp_path / "run"
    sources = ("search", "--model", model, "--data", data, "--out", out)
    relook.ok(*sources, *QUICK, "--split", split)
    record = json.loads((out / "run.json").read_text())
    assert (record["split"]["search"], record["split"]["held_out"]) == (search, held_out)
    relook.ok("compare", "--run", out, "--methods", "flip", "--budgets", "1")
    assert_one_line(relook(*sources, *QUICK), "holdout" if split != "60:0.25" else "left_out")


def test_one_way_to_split_is_enough(relook: Relook, model: str, data: str, tmp_path: Path) -> None:
    sources = ("search", "--model", model, "--data", data, "--out", tmp_path / "run", *QUICK)
    done = relook(*sources, "--split", "0.5:0.5", "--holdout", "0.5")
    assert_one_line(done, "expected one of --split, --holdout, --test and --cross-fit")
    assert_one_line(relook(*sources, "--split", "0.5:0.5", "--test", data), "expected one of")


def test_a_search_tells_needs_and_shows_the_score(
    relook: Relook, model: str, data: str, tmp_path: Path
) -> None:
    sources = ("search", "--model", model, "--data", data, "--out", tmp_path / "run", *QUICK)
    dry = relook(*sources, "--dry-run", "--memory", "3GB")
    assert "selection: about" in dry.out
    assert "of 3.0 GB allowed" in dry.out
    told = json.loads(relook(*sources, "--dry-run", "--json").out)
    assert told["selection"]["predictions"] == 4 * 12 * 160 * 10
    assert told["disk_bytes"] == 4 * 10 * (12 * 160 + 9 * 80)
    large = (*sources, "--pool-size", "40", "--memory", "11.4M", "--dry-run", "--json")
    told = json.loads(relook(*large).out)
    assert told["selection"]["mapped"]
    assert told["disk_bytes"] == 4 * 10 * (2 * 40 * 160 + 9 * 80)
    done = relook.ok(*sources)
    assert "selection: about" in done.err
    assert "cLL −" in done.err


def test_ctrl_c_while_selecting_says_how_to_go_on(
    relook: Relook, model: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = ("search", "--model", model, "--data", data, *QUICK, "--out")
    relook.ok(*sources, tmp_path / "whole")
    longer = relook(*sources, tmp_path / "whole", "--length", "6")
    assert_one_line(longer, "length: 4 there, 6 here")
    with monkeypatch.context() as patched:
        interrupt_after(2, patched)
        done = relook(*sources, tmp_path / "cut")
    assert done.code == 130
    assert "nothing is lost. Run the same command again to resume." in done.err
    assert "going on after 2 steps" in relook.ok(*sources, tmp_path / "cut").err
    for name in ("policy.json", "search.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_help_states_the_default_limit(relook: Relook) -> None:
    for verb in (("search",), ("policy", "select")):
        assert "70 % of what is free" in relook(*verb, "--help-all").out
