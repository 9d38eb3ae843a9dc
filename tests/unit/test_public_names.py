"""The public names: each is there, loaded when it is used, and the command line starts at once."""

import subprocess
import sys

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
