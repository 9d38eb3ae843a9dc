"""The notebooks of the documentation run, and have their outputs stored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs relook[dev]")
nbclient = pytest.importorskip("nbclient", reason="needs relook[dev]")
pytest.importorskip("timm", reason="needs relook[timm]")
pytest.importorskip("ipykernel", reason="needs relook[dev]")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A kernel for all notebooks: to start one and import what they need takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONWARNINGS", "ignore:IProgress not found")  # tqdm, without ipywidgets
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        own = nbclient.NotebookClient(nbformat.v4.new_notebook(), timeout=None)
        with own.setup_kernel():
            yield own


@pytest.mark.filterwarnings("ignore::Warning:jupyter_client", "ignore::Warning:zmq")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored(path: Path, client: Any, tmp_path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    client.nb = run = nbformat.from_dict(stored)
    # No name of the notebook before is left: each must import what it uses.
    run.cells.insert(0, nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {tmp_path}"))
    client.execute(cleanup_kc=False)
    for cell, again in zip(stored.cells, run.cells[1:], strict=True):
        assert _kinds(cell) == _kinds(again), cell.source


def _kinds(cell: dict[str, object]) -> list[object]:
    """Return what a cell shows, by kind; all that it prints is one, and warnings are none."""
    outputs = cell.get("outputs", [])
    assert isinstance(outputs, list)
    shown = [one.get("name") or sorted(one["data"]) for one in outputs]
    assert "stderr" not in shown
    return [kind for place, kind in enumerate(shown) if shown[place - 1 : place] != [kind]]
