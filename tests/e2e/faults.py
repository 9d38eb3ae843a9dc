"""Commands run in children that can be killed: at a moment, or at a change of a file."""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image

from relook.cli.app import main
from relook.data import load_data
from relook.models.small import new_small, save_small
from relook.policy import Policy
from relook.policy.pool import sample_pool

_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link")
_OWN = {"slowdown", "sentence", "finished", "seconds", "command"}
"""Keys of what a clock said, and of where a run is."""


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code, or minus the signal, and the lines that it wrote."""

    code: int
    lines: tuple[str, ...]

    @property
    def last(self) -> str:
        return self.lines[-1] if self.lines else ""


def start(log: Path, *arguments: object, before: Callable[[], object] | None = None) -> int:
    """Run `relook arguments` in a forked child and return its process id."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        file = log.open("w")
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout = sys.stderr = file
        os.environ["COLUMNS"] = "400"
        torch.set_num_threads(1)
        sys.argv = ["relook", *map(str, arguments)]
        if before is not None:
            before()
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(child: int, log: Path) -> Ended:
    """Wait for a child."""
    _, status = os.waitpid(child, 0)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    text = log.read_text() if log.exists() else ""
    return Ended(code, tuple(line for line in text.splitlines() if line.strip()))


def run(log: Path, *arguments: object, before: Callable[[], object] | None = None) -> Ended:
    """Run a command to its end."""
    return ended(start(log, *arguments, before=before), log)


def run_and_signal(log: Path, seconds: float, number: int, *arguments: object) -> Ended:
    """Send a signal after so many seconds."""
    child = start(log, *arguments)
    time.sleep(seconds)
    with suppress(ProcessLookupError):
        os.kill(child, number)
    return ended(child, log)


def die_at_change(
    change: int, root: Path, counted: Path | None = None, number: int = signal.SIGKILL
) -> Callable[[], None]:
    """Return what sends a signal to this process at its n-th change of a file below `root`.

    The count so far is kept in `counted`.
    """

    def install() -> None:
        seen = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal seen
            if event == "open":
                changes = isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            else:
                changes = event in _CHANGES
            if not changes or not str(arguments[0]).startswith(str(root)):
                return
            seen += 1
            if counted is not None and arguments[0] != str(counted):
                os.pwrite(count, b"%9d" % seen, 0)
            if seen == change:
                os.kill(os.getpid(), number)

        if counted is not None:
            count = os.open(counted, os.O_WRONLY | os.O_CREAT)
        sys.addaudithook(hook)

    return install


@dataclass(frozen=True)
class Workplace:
    """A model, data, pictures and a policy to run commands on."""

    root: Path

    @property
    def model(self) -> str:
        return f"small@{self.root / 'model.safetensors'}"

    @property
    def data(self) -> str:
        return f"npz:{self.root / 'digits.npz'}?layout=nchw"

    @property
    def pictures(self) -> Path:
        return self.root / "pictures"

    @property
    def policy(self) -> Path:
        return self.root / "policy.json"

    def search(self, out: Path) -> tuple[object, ...]:
        """Return the arguments of a small search."""
        small = ("--recipe", "small", "--pool-size", 20, "--length", 3, "--batch", 16)
        return ("search", "-m", self.model, "-d", self.data, *small, "--out", out)

    def compare(self, out: Path) -> tuple[object, ...]:
        """Return the arguments of a comparison with two baselines."""
        few = ("--recipe", "small", "--methods", "flip,cf", "--budgets", "1,2", "--batch", 16)
        return ("compare", "-m", self.model, "-d", self.data, "-p", self.policy, *few, "--out", out)

    def predict(self, out: Path) -> tuple[object, ...]:
        """Return the arguments of a prediction of pictures."""
        source = ("-p", self.policy, "-d", f"folder:{self.pictures}", "--out", out / "out.csv")
        return ("predict", "-m", self.model, *source)

    def train(self, out: Path) -> tuple[object, ...]:
        """Return the arguments of a short training, with a checkpoint at each epoch."""
        how = ("--epochs", 3, "--recipe", "small", "--keep-every", 0, "--threads", 1)
        return ("study", "train", "-n", "small", "-d", self.data, *how, "--batch", 40, "--out", out)

    def export(self, out: Path) -> tuple[object, ...]:
        """Return the arguments of an export."""
        shape = ("--size", 32, "--channels", 1)
        return ("export", "-m", self.model, "-p", self.policy, *shape, "--out", out / "model.onnx")


COMMANDS: dict[str, tuple[str, ...]] = {
    "search": ("policy.json", "search.json", "comparison.json"),
    "compare": ("comparison.json",),
    "train": ("small-all-0.safetensors",),
    "predict": ("out.csv",),
    "export": ("model.onnx",),
}
"""What each command leaves as its result."""


def new_workplace(root: Path, images: int = 120) -> Workplace:
    """Make what the commands need."""
    digits = load_data("digits").subset(np.arange(images))
    np.savez(root / "digits.npz", images=digits.plain.numpy(), labels=digits.labels)
    save_small(new_small(seed=1), root / "model.safetensors")
    (root / "pictures").mkdir()
    for i, pixels in enumerate(digits.plain[:40].numpy()):
        Image.fromarray(pixels[0]).save(root / f"pictures/{i:02d}.png")
    pool = sample_pool("small", 5, 0)[:3]
    Policy(pool, temperatures=(1.0, 1.1, 1.2), recipe="small").save(root / "policy.json")
    return Workplace(root)


@cache
def warm_up() -> None:
    """Run the commands once, lest each child import and compile for itself."""
    import onnxruntime  # type: ignore[import-untyped,unused-ignore]  # noqa: F401  # a session would start threads, which no child has

    before = sys.argv
    with TemporaryDirectory() as directory, open(os.devnull, "w") as nothing:  # noqa: PTH123
        root = Path(directory)
        place = new_workplace(root)
        with redirect_stdout(nothing), redirect_stderr(nothing):
            for command in ("search", "compare", "train", "predict"):
                sys.argv = ["relook", *map(str, getattr(place, command)(root / command))]
                with suppress(SystemExit):
                    main()
    sys.argv = before


def results(command: str, out: Path) -> dict[str, object]:
    """Return what a command has written so far, without what a clock decided."""
    found = {}
    for name in COMMANDS[command]:
        path = out / name
        if path.exists():
            timed = path.name == "comparison.json"
            content = path.read_bytes()
            found[name] = _untimed(json.loads(content)) if timed else content
    return found


def _untimed(content: Any) -> Any:
    if isinstance(content, dict):
        return {k: _untimed(v) for k, v in content.items() if k not in _OWN}
    return [_untimed(one) for one in content] if isinstance(content, list) else content


def leftovers(root: Path) -> Iterator[Path]:
    """Yield what a finished command must not leave behind."""
    for path in root.rglob("*"):
        # A store removes young leftovers only later: they may be another process's.
        in_store = any(part.endswith(".zarr") for part in path.parts)
        if path.name.endswith((".tmp", ".unfinished", ".removed")) and not in_store:
            yield path


def check_one_line(done: Ended, *words: str) -> None:
    """The command ended with exit code 2 and one line, which holds the words."""
    assert done.code == 2, done.lines
    assert [line for line in done.lines if line.startswith("error:")] == [done.last], done.lines
    assert not [line for line in done.lines if "Traceback" in line]
    for word in words:
        assert word in done.last


ODD_MODEL = """
import sys
import time
import torch
from pathlib import Path
from torch import nn

# Others measure the model before they predict, a comparison most of all.
AFTER = 4 if "predict" in sys.argv else 24 if "compare" in sys.argv else 12

class Odd(nn.Module):
    def __init__(self, fault):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(1024, 10)
        self.fault, self.calls = fault, 0
    def forward(self, images):
        self.calls += 1
        logits = self.layer(images.flatten(1))
        return self.fault(logits) if self.calls > AFTER else logits

def raising():
    def fault(logits):
        raise RuntimeError("out of luck\\nand of memory")
    return Odd(fault)

def hanging():
    def fault(logits):
        if not Path("awake").exists():
            time.sleep(60)
        return logits
    return Odd(fault)

def nan():
    return Odd(lambda logits: logits * float("nan"))

def one_row_less():
    return Odd(lambda logits: logits[1:])

def another_class():
    return Odd(lambda logits: torch.cat([logits, logits[:, :1]], 1))

def not_a_tensor():
    return Odd(lambda logits: {"logits": logits})

def sound():
    return Odd(lambda logits: logits)

class Scaled(Odd):
    def forward(self, images):
        return super().forward(images) * float(Path("scale").read_text())

def changing():
    return Scaled(lambda logits: logits)

def ended_by_a_signal():
    import os, signal
    def fault(logits):
        os.kill(os.getpid(), signal.SIGTERM)
        return logits
    return Odd(fault)
"""
