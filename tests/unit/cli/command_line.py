"""The command line in this process."""

from typer.testing import CliRunner, Result

from relook.cli.app import app
from relook.cli.shared.console import NOT_MET


def relook(*words: object) -> Result:
    """Run a command; its errors come through, as `relook` itself turns them into lines."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    not_met = isinstance(result.exception, SystemExit) and result.exit_code == NOT_MET
    if result.exception is not None and not not_met:
        raise result.exception
    return result
