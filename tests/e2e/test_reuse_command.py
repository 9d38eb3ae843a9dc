"""`relook search` next to earlier runs, and `--start-from` them, as a user runs it."""

import re
from pathlib import Path

import pytest
from tests.e2e.conftest import Relook, Words

import relook as package

FEW = ("--recipe", "small", "--batch", "64", "--accelerate", "torch", "--split", "150:90")


def known(text: str) -> int:
    """Return how many passes a search says that it did not make."""
    found = re.search(r"([0-9,]+) model passes were known from", text)
    return 0 if found is None else int(found[1].replace(",", ""))


@pytest.mark.parametrize(
    ("first", "then", "least"),
    [
        ("--pool-size 20 --length 4", "--pool-size 20 --length 6", 20 * 150),
        ("--pool-size 20 --strategy greedy", "--pool-size 20 --objective accuracy", 20 * 150),
        ("--pool-size 20", "--pool-size 30", 20 * 128),  # of 150 images two batches are full
        ("--pool-size 20", "--pool-size 20 --seed 1", 0),
        ("--pool-size 20 --race", "--pool-size 20", 0),
    ],
)
def test_no_pass_is_made_twice_and_nothing_changes(
    relook: Relook, sources: Words, tmp_path: Path, first: str, then: str, least: int
) -> None:
    base = ("search", *sources, *FEW)
    alone = relook.ok(*base, *first.split(), "--out", tmp_path / "runs/a")
    assert known(alone.err) == 0
    command = (*base, *then.split())
    found = relook.ok(*command, "--out", tmp_path / "runs/b")
    other = relook.ok(*command, "--out", tmp_path / "runs/c", "--no-reuse")
    assert known(other.err) == 0
    for name in ("policy.json", "search.json"):
        expected = (tmp_path / "runs/c" / name).read_bytes()
        assert (tmp_path / "runs/b" / name).read_bytes() == expected
    assert known(found.err) >= least
    if least:
        assert "known from a\n" in found.err


def test_a_policy_found_before_is_where_a_search_starts(
    relook: Relook, sources: Words, tmp_path: Path
) -> None:
    base = ("search", *sources, *FEW, "--length", "4")
    relook.ok(*base, "--pool-size", "40", "--out", tmp_path / "a")
    start = ("--start-from", tmp_path / "a", "--start-from", "preset:d4", "--pool-size", "24")
    assert known(relook.ok(*base, *start, "--out", tmp_path / "b").err) > 0
    policy = (tmp_path / "b/policy.json").read_bytes()
    assert known(relook.ok(*base, *start, "--out", tmp_path / "b").err) == 0
    assert (tmp_path / "b/policy.json").read_bytes() == policy
    before = package.Policy.load(tmp_path / "a/policy.json")
    pool = package.load(tmp_path / "b").pool
    assert set(before) | set(package.Policy.preset("d4")) <= set(pool)
    refused = relook.refused(*base, "--start-from", "preset:none", "--out", tmp_path / "c")
    assert "unknown preset" in refused.err
    assert not (tmp_path / "c").exists()
