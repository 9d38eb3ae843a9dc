"""`relook study train` as a user runs it: to a good network, through kill -9, and past mistakes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.e2e.conftest import Relook

QUICK = ("--recipe", "small", "--batch", 16, "--threads", 1)


def test_digits_are_learned_and_the_model_is_found_again(relook: Relook, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = relook.ok(
        "study", "train", "-n", "small", "-d", "digits", "--augment", "crop_flip", "--epochs", 5,
        "--validation", 300, "--out", out, "--json", *QUICK,
    )  # fmt: skip
    result = json.loads(done.out)
    (model,) = result["models"]
    assert model["validation"]["accuracy"] > 0.93
    assert model["losses"][-1] < model["losses"][0] / 3
    magnitudes = relook.ok(
        "study", "magnitudes", "-m", model["spec"], "-d", result["validation"], "--recipe", "small",
        "--views", 2, "--magnitudes", "0,45", "--out", tmp_path / "m", "--json",
    )  # fmt: skip
    rows = [row for row in json.loads(magnitudes.out)["rows"] if row["metric"] == "cll"]
    assert max(rows, key=lambda row: row["value"])["magnitude"] == 0


def long_training(out: Path) -> list[str]:
    options = ("-n", "small:8", "-d", "digits:train", "--augment", "crop_flip", "--epochs", 30)
    return [
        str(one) for one in ("study", "train", *options, "--keep-every", 0, "--out", out, *QUICK)
    ]


def ended_after_a_checkpoint(out: Path, number: signal.Signals) -> tuple[int, str]:
    """Start a training, end it by a signal once it has kept something; how that went."""
    state = out / "small8-all-0.state"
    before = state.stat().st_mtime_ns if state.exists() else 0
    start = [sys.executable, "-c", "from relook.cli.app import main; main()"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*start, *long_training(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        while process.poll() is None:
            if state.exists() and state.stat().st_mtime_ns > before:
                process.send_signal(number)
                break
            time.sleep(0.01)
        _, messages = process.communicate()
    return process.returncode, messages.decode()


@pytest.mark.slow
def test_killed_terminated_and_continued_gives_the_same_bytes(
    relook: Relook, tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    relook.ok(*long_training(whole))
    code, _ = ended_after_a_checkpoint(parts, signal.SIGKILL)
    assert code == -signal.SIGKILL
    code, messages = ended_after_a_checkpoint(parts, signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert "Run the same command again to resume" in messages
    assert "Traceback" not in messages
    relook.ok(*long_training(parts))
    names = sorted(path.name for path in whole.glob("[!.]*"))
    assert names == ["settings.json", "small8-all-0.json", "small8-all-0.safetensors"]
    for name in names:
        assert (parts / name).read_bytes() == (whole / name).read_bytes(), name


def test_ctrl_c_says_how_to_go_on(
    relook: Relook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("relook.studies.training.models.run_training", interrupted)
    stopped = relook(*long_training(tmp_path / "run"))
    assert stopped.code == 130
    assert (
        "interrupted; all up to the last checkpoint is kept. Run the same command again to resume "
        "from there." in stopped.err
    )


def test_mistakes_are_one_line(relook: Relook, tmp_path: Path) -> None:
    base = ("study", "train", "-d", "digits:train", "--epochs", 1, "--out", tmp_path / "run")
    for options, message in (
        (("-n", "small", "--all"), "--all goes with --validation"),
        (("-n", "small", "--seeds", "a"), "--seeds: expected whole numbers like 0,1,2"),
        (("-n", "small", "--validation", "none"), "--validation: expected a number of images"),
        (("-n", "vgg16"), "unknown kind of network 'vgg16'"),
        (("-n", "small", "--augment", "flip"), "unknown augmentation 'flip'"),
    ):
        failed = relook.refused(*base, *options)
        assert message in failed.err
        assert len(failed.err.strip().splitlines()) <= 2
