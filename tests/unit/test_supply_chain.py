import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
READ = {"contents": "read"}
ALLOWED = {
    ("release.yml", "attest"): {**READ, "id-token": "write", "attestations": "write"},
    ("release.yml", "publish"): {"id-token": "write"},
    ("release.yml", "attach"): {"contents": "write"},
    ("docs.yml", "deploy"): {"pages": "write", "id-token": "write"},
}
"""Jobs that may do more than read, and what exactly; they run none of the project's code."""


def pins(text: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_every_locked_package_has_hashes_and_the_versions_that_are_tested() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) > 50
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry.splitlines()[0]
    locked, tested = pins(text), pins((ROOT / "constraints.txt").read_text())
    different = {n: (v, tested[n]) for n, v in locked.items() if tested.get(n, v) != v}
    assert not different
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[^A-Za-z0-9._-]", one)[0] for one in wanted}
    assert {re.sub(r"[-_.]+", "-", name).lower() for name in names - {"relook"}} <= set(locked)


def test_the_audit_fails_on_packages_that_it_cannot_look_up() -> None:
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    scripts = [step.get("run", "") for step in release["jobs"]["build"]["steps"]]
    (audit,) = re.findall(r"^pip-audit .*", "\n".join(scripts), re.MULTILINE)
    assert {"--strict", "--require-hashes"} <= set(audit.split())


def test_the_lock_names_no_server_and_no_path() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"://|--(extra-)?index-url|--find-links|@ file", text)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_read_and_no_more(path: Path) -> None:
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == READ
    events = workflow[True]  # YAML takes `on` for a truth value
    assert "pull_request_target" not in events
    for name, job in workflow["jobs"].items():
        allowed = ALLOWED.get((path.name, name), READ)
        assert job.get("permissions", READ) == allowed
        used = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
        assert allowed == READ or "actions/checkout" not in used
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w.-]+/[\w./-]+@(v[0-9.]+|[0-9a-f]{40})", step["uses"])
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            # What others write must not become a part of a script.
            assert "${{ github.event" not in step.get("run", "")
