"""The cluster files of docs/howto/cluster.md: Ray takes the one, and the other hangs together."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml

from relook.cli.search import search_command

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "cluster.md"


def file_on_page(number: int) -> Any:
    text = PAGE.read_text(encoding="utf-8")
    return yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[number])


def options_of(command: str) -> set[str]:
    return {word for word in shlex.split(command) if word.startswith("--")}


def known_options() -> set[str]:
    app = typer.Typer()
    app.command()(search_command)
    return {name for p in typer.main.get_command(app).params for name in p.opts}


def test_ray_takes_the_cluster_file() -> None:
    ray = pytest.importorskip("ray")
    schema = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    config = file_on_page(0)
    jsonschema.validate(config, json.loads(schema.read_text()))
    assert config["head_node_type"] in config["available_node_types"]
    assert sum(kind.get("max_workers", 0) for kind in config["available_node_types"].values()) == 8


def test_the_jobs_command_is_one_of_ours() -> None:
    job = file_on_page(1)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[:2] == ["relook", "search"]
    assert options_of(job["spec"]["entrypoint"]) <= known_options()
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    images = {g["template"]["spec"]["containers"][0]["image"] for g in groups}
    assert len(images) == 1


def test_every_option_on_the_page_is_known() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = set(re.findall(r"(--[a-z][a-z-]+)", text))
    others = {"--tmux", "--working-dir"}
    assert shown - others <= known_options()
