"""Files that are damaged, hostile or strange end in one line, never in anything else.

The fast tests read a corpus of files that once were, or could be, trouble, and a few hundred
changed ones; the slow tests 100,000 of each kind by hypothesis, and as many by atheris, whose
choices follow the code's branches.
"""

import importlib.util
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st
from tests.fuzz.edits import CODE_BYTES, decoded_case, edited, random_edits
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parents[1] / "corpus"
CASES = int(os.environ.get("RELOOK_FUZZ_CASES", 100_000))
SEED = int(os.environ.get("RELOOK_FUZZ_SEED", 0))
FEW = 100
MOST_GROWTH = 400e6  # bytes of memory, over all cases of one kind

AT_ONCE = 20  # files in one of hypothesis's examples, whose own cost is that of several files
CODES = st.binary(min_size=AT_ONCE * CODE_BYTES, max_size=AT_ONCE * CODE_BYTES)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: a case takes less than a disk's write."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


@pytest.mark.parametrize("name", TARGETS)
def test_sound_files_are_read(name: str, folder: Path) -> None:
    target = TARGETS[name]
    errors = [target.try_bytes(sound, folder) for sound in target.seeds()]
    assert None in errors, errors


@pytest.mark.parametrize(
    "path", sorted(CORPUS.glob("*/*")), ids=lambda p: f"{p.parent.name}/{p.name}"
)
def test_the_corpus_ends_in_a_result_or_one_line(path: Path, folder: Path) -> None:
    error = TARGETS[path.parent.name].try_bytes(path.read_bytes(), folder)
    assert (error is None) == path.name.startswith("sound"), error


@pytest.mark.parametrize("name", TARGETS)
def test_changed_files_end_in_a_result_or_one_line(name: str, folder: Path) -> None:
    fuzz(name, FEW, folder)


def fuzz(name: str, cases: int, folder: Path) -> None:
    """Read so many changed files."""
    target, draws = TARGETS[name], random.Random(name)  # noqa: S311
    seeds = target.seeds()
    for _ in range(cases):
        data = edited(draws.choice(seeds), random_edits(draws), draws.choice(seeds))
        target.try_bytes(data, folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_hypothesis_finds_nothing_but_one_line(name: str, folder: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fuzz_by_hypothesis(name, CASES, SEED, folder)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < MOST_GROWTH, f"{grown / 1e6:.0f} MB"


def fuzz_by_hypothesis(name: str, cases: int, number: int, folder: Path) -> None:
    """Read so many changed files; another number, other files."""
    target = TARGETS[name]
    seeds = target.seeds()

    @seed(number)
    @settings(
        max_examples=math.ceil(cases / AT_ONCE),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(CODES)
    def read(codes: bytes) -> None:
        for at in range(0, len(codes), CODE_BYTES):
            data = decoded_case(codes[at : at + CODE_BYTES], seeds)
            try:
                target.try_bytes(data, folder)
            except BaseException:
                note(f"the file: {data!r}")
                raise

    read()


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_atheris_finds_nothing_but_one_line(name: str, folder: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed: pip install atheris")
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, sound in enumerate(TARGETS[name].seeds()):
        (corpus / str(number)).write_bytes(sound)
    script = Path(__file__).with_name("with_atheris.py")
    options = (f"-atheris_runs={CASES}", "-max_len=20000", "-timeout=60", "-rss_limit_mb=4096")
    done = subprocess.run(
        [sys.executable, script, name, folder, corpus, *options],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path]), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
