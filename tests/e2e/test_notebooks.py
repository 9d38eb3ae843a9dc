"""The notebooks of the documentation run, and have their outputs stored."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs relook[dev]")
nbclient = pytest.importorskip("nbclient", reason="needs relook[dev]")
pytest.importorskip("timm", reason="needs relook[timm]")
pytest.importorskip("ipykernel", reason="needs relook[dev]")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.filterwarnings("ignore::Warning:jupyter_client", "ignore::Warning:zmq")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "ignore:IProgress not found")  # tqdm, without ipywidgets
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    stored = nbformat.read(path, as_version=4)
    run = nbformat.from_dict(stored)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(run, timeout=None, resources=place).execute()
    for cell, again in zip(stored.cells, run.cells, strict=True):
        assert _kinds(cell) == _kinds(again), cell.source


def _kinds(cell: dict[str, object]) -> list[object]:
    """Return what a cell shows, by kind; all that it prints is one, and warnings are none."""
    outputs = cell.get("outputs", [])
    assert isinstance(outputs, list)
    shown = [one.get("name") or sorted(one["data"]) for one in outputs]
    assert "stderr" not in shown
    return [kind for place, kind in enumerate(shown) if shown[place - 1 : place] != [kind]]
