"""The public names: each is there, loaded when it is used, and the command line starts at once."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import relook


@pytest.mark.parametrize("name", relook.__all__)
def test_every_public_name_can_be_used(name: str) -> None:
    value = getattr(relook, name)
    assert getattr(value, "__name__", name) == name


def test_nothing_else_pretends_to_be_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'serch'"):
        relook.serch  # noqa: B018


def test_help_does_not_wait_for_torch() -> None:
    program = (
        "import sys; import relook.cli.app as app; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numba', 'zarr')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_policy_needs_no_source_model_or_report() -> None:
    program = (
        "import sys; import relook.policy; "
        "print(*sorted({name.split('.')[1] for name in sys.modules if name[:7] == 'relook.'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert set(done.stdout.decode().split()) <= {
        *("errors", "version", "foundation", "io", "numerics", "transforms", "policy")
    }


@pytest.mark.parametrize(
    "package", ["data", "deploy/distil", "deploy/export.py", "models", "numerics", "policy_search"]
)
def test_errors_name_settings_as_python_does(package: str) -> None:
    """An option of the command line stands in brackets, after the keyword's name."""
    alone: dict[str, Path] = {}
    place = Path(relook.__file__).parent / package
    for file in [place] if place.is_file() else place.rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text()))
        raised = [node for node in nodes if isinstance(node, ast.Raise)]
        texts = [
            one.value
            for node in raised
            for one in ast.walk(node)
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
        alone.update({text: file for text in texts if re.search(r"(?<!\()--[a-z]", text)})
    assert not alone
