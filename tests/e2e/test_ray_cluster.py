"""A cluster of several nodes on this machine that loses workers, nodes and its driver."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster_driver import (
    _LOOPBACK,
    BLOCKS,
    CALLS,
    PATIENCE,
    calls_file,
    calls_of,
    driver,
    ended,
)
from tests.unit.predictions.passes_cases import contents

pytestmark = pytest.mark.slow


class Nodes:
    """A head without cores, and nodes with one each, all on 127.0.0.1."""

    def __init__(self) -> None:
        utils = pytest.importorskip("ray.cluster_utils")
        self.cluster: Any = utils.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, **_NODE}
        )
        self.nodes: list[Any] = []

    def have(self, count: int) -> str:
        """Have so many nodes for workers; return the cluster's address."""
        while len(self.nodes) < count:
            self.nodes.append(self.cluster.add_node(num_cpus=1, **_NODE))
        return str(self.cluster.address)

    def lose_one(self) -> None:
        self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)


_NODE = {
    "node_ip_address": "127.0.0.1",
    "object_store_memory": 200_000_000,
    "include_dashboard": False,
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    os.environ.update(_LOOPBACK)
    made = Nodes()
    yield made
    made.cluster.shutdown()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that the local engine makes."""
    out = tmp_path_factory.mktemp("local") / "run"
    with driver(out, "Slow", "--engine", "local") as child:
        assert ended(child)[0] == 0
    assert len(calls_of(out)) > CALLS
    return out


def on(address: str, *options: str) -> tuple[str, ...]:
    return ("--engine", "ray", "--address", address, *options)


def stored(out: Path) -> int:
    return len(list((out / "predictions.zarr").glob("c/*/*/0")))


def wait_until(reached: Callable[[], bool], child: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + PATIENCE
    while not reached():
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < limit
        time.sleep(0.02)


def check_same(out: Path, local: Path) -> None:
    for name in ("policy.json", "search.json", "selection.json"):
        assert (out / name).read_bytes() == (local / name).read_bytes()
    for name in ("predictions.zarr", "heldout.zarr"):
        assert contents(out / name) == contents(local / name)


def test_a_whole_cluster_makes_the_local_run(nodes: Nodes, local: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with driver(out, "Slow", *on(nodes.have(2))) as child:
        code, said = ended(child)
    assert code == 0, said
    assert "Ray: 2 workers, each with 1 CPU" in said
    check_same(out, local)
    found = calls_of(out)
    assert len(set(found)) == 3  # two workers, and the driver that measures what a view costs
    workers = [found.count(process) for process in set(found)]
    assert sum(workers) == len(calls_of(local))  # no block is computed twice


def test_a_killed_worker_process_changes_nothing(nodes: Nodes, local: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with driver(out, "Slow", *on(nodes.have(2))) as child:
        wait_until(lambda: stored(out) >= 3, child)
        os.kill(calls_of(out)[-1], signal.SIGKILL)
        code, said = ended(child)
    assert code == 0, said
    assert said.count("Ray: a worker was lost; its blocks go to others") == 1
    check_same(out, local)


def test_a_lost_node_changes_nothing(nodes: Nodes, local: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with driver(out, "Slow", *on(nodes.have(2))) as child:
        wait_until(lambda: stored(out) >= 3, child)
        nodes.lose_one()
        code, said = ended(child)
    assert code == 0, said
    assert "Ray: a worker was lost; its blocks go to others" in said
    check_same(out, local)


def test_a_node_that_joins_takes_part(nodes: Nodes, local: Path, tmp_path: Path) -> None:
    while len(nodes.nodes) > 1:
        nodes.lose_one()
    out = tmp_path / "run"
    with driver(out, "Slow", *on(nodes.have(1), "--workers", "2")) as child:
        wait_until(lambda: stored(out) >= 1, child)
        before = set(calls_of(out))
        nodes.have(2)
        wait_until(lambda: len(set(calls_of(out))) > len(before), child)
        assert stored(out) < BLOCKS
        code, said = ended(child)
    assert code == 0, said
    check_same(out, local)


def test_a_killed_driver_goes_on_where_it_was(nodes: Nodes, local: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    address = nodes.have(2)
    for least in (2, 6):
        with driver(out, "Slow", *on(address)) as child:
            wait_until(lambda least=least: stored(out) >= least, child)  # type: ignore[misc]
            child.send_signal(signal.SIGKILL)
        done = stored(out)
    calls_file(out).unlink()
    with driver(out, "Slow", *on(address)) as child:
        code, said = ended(child)
    assert code == 0, said
    check_same(out, local)
    held_out = len(calls_of(local)) - CALLS
    compared = 2  # one call of what is done, to see that the model still answers the same
    most = (BLOCKS - done) * 16 + held_out + compared
    assert len(calls_of(out)) <= most


def test_ctrl_c_leaves_no_worker_behind(nodes: Nodes, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with driver(out, "Slow", *on(nodes.have(2))) as child:
        wait_until(lambda: stored(out) >= 1, child)
        workers = set(calls_of(out))
        child.send_signal(signal.SIGINT)
        code, said = ended(child)
    assert code == 130, said
    assert "interrupted; nothing is lost. Run the same command again to resume." in said
    wait_gone(workers)


def test_sigterm_ends_a_ray_that_was_started_here(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with driver(out, "Slow", "--engine", "ray", "--workers", "1") as child:
        wait_until(lambda: stored(out) >= 1, child)
        workers = set(calls_of(out))
        child.send_signal(signal.SIGTERM)
        code, said = ended(child)
    assert code == 143, said
    assert "terminated; nothing is lost." in said
    wait_gone(workers)


def wait_gone(processes: set[int]) -> None:
    limit = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < limit
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("network", "options", "message", "most_calls"),
    [
        ("Failing", (), "the model failed on image", 4),
        ("Deadly", (), "3 workers were lost one after another on the same block", 10),
        ("Hanging", ("--timeout", "2"), "the model has not answered for 2 s (--timeout) on", 4),
    ],
)
def test_a_model_that_cannot_go_on_is_one_line(
    nodes: Nodes,
    tmp_path: Path,
    network: str,
    options: tuple[str, ...],
    message: str,
    most_calls: int,
) -> None:
    out = tmp_path / "run"
    with driver(out, network, *on(nodes.have(2)), *options) as child:
        code, said = ended(child)
    assert code == 2, said
    (line,) = [line for line in said.splitlines() if line.startswith("error:")]
    assert message in line
    assert len(calls_of(out)) <= most_calls


def test_an_address_where_nobody_answers_is_one_line(tmp_path: Path) -> None:
    with driver(tmp_path / "run", "Slow", *on("127.0.0.1:1")) as child:
        code, said = ended(child)
    assert code == 2, said
    assert "error: cannot reach Ray at 127.0.0.1:1: " in said
