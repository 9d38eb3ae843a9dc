import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray
from tests.oracles.plain_search import random_pool
from tests.support import refused

from relook.errors import FileFormatError
from relook.predictions.external import file_identity, load_labels, open_predictions

LOG_PROBS, LABELS = random_pool(1, 4, 9, 3)


def saved(path: Path, values: NDArray[np.floating]) -> Path:
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez_compressed(path, predictions=values, other=np.arange(3))
    else:
        zarr.create_array(path, data=values)
    return path


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *product(("p.npy", "p.npz", "p.zarr"), ("float16", "float32", "float64")),
        ("p.npy", ">f4"),
        ("p.npz", ">f4"),
    ],
)
def test_each_format_holds_log_probabilities(tmp_path: Path, name: str, dtype: str) -> None:
    source = open_predictions(saved(tmp_path / name, LOG_PROBS.astype(dtype)), "log_probs")
    assert source.shape == LOG_PROBS.shape
    assert source.dtype == np.dtype(dtype)
    loaded = source.load()
    assert type(loaded) is np.ndarray
    np.testing.assert_array_equal(loaded, LOG_PROBS.astype(dtype))
    assert (source.map is not None) == (name == "p.npy")
    if source.map is not None:
        assert isinstance(source.map(), np.memmap)
        np.testing.assert_array_equal(source.map(), loaded)


@pytest.mark.parametrize("name", ["p.npy", "p.npz", "p.zarr"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("f2", 2e-3), ("f4", 1e-6), ("f8", 1e-12)])
def test_probabilities_become_floored_logarithms(
    tmp_path: Path, name: str, dtype: str, tolerance: float
) -> None:
    probabilities = np.exp(LOG_PROBS.astype(np.float64))
    probabilities[1, 2] = (1, 0, 0)
    path = saved(tmp_path / name, probabilities.astype(dtype))
    source = open_predictions(path, "probabilities")
    assert source.map is None
    loaded = source.load()
    assert loaded.dtype == source.dtype == np.dtype("f8" if dtype == "f8" else "f4")
    with np.errstate(divide="ignore"):
        expected = np.maximum(np.log(probabilities), -80)
    np.testing.assert_allclose(loaded, expected, atol=tolerance)
    again = open_predictions(path, "probabilities").load()
    np.testing.assert_array_equal(again, loaded)


@pytest.mark.parametrize("value", [-0.01, np.nan, -np.inf])
def test_what_is_no_probability_is_named(tmp_path: Path, value: float) -> None:
    probabilities = np.exp(LOG_PROBS)
    probabilities[3, 1, 2] = value
    source = open_predictions(saved(tmp_path / "p.npy", probabilities), "probabilities")
    refused("a negative number or NaN at candidate 3", source.load, error=FileFormatError)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (LOG_PROBS[0], r"got float32 \[9, 3\]"),
        (LOG_PROBS.astype(int), r"got int64 \[4, 9, 3\]"),
        (LOG_PROBS.astype(complex), "got complex128"),
    ],
)
@pytest.mark.parametrize("name", ["p.npy", "p.npz", "p.zarr"])
def test_other_arrays_are_refused(
    tmp_path: Path, name: str, values: NDArray[np.float32], message: str
) -> None:
    path = saved(tmp_path / name, values)
    refused(message, open_predictions, path, "log_probs", error=FileFormatError)


def test_other_files_and_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("0.1 0.9")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FileFormatError, match=r"expected a file \.npy or \.npz, or a Zarr directory"
    ):
        open_predictions(tmp_path / "p.txt", "log_probs")
    with pytest.raises(FileFormatError, match="expected a Zarr array"):
        open_predictions(tmp_path / "empty", "log_probs")
    refused("no such file", open_predictions, tmp_path / "nowhere.npz", "log_probs")
    refused("unknown kind of predictions 'logits'", open_predictions, tmp_path / "p.npy", "logits")


def test_labels_from_each_format(tmp_path: Path) -> None:
    np.save(tmp_path / "l.npy", LABELS.astype(np.uint8))
    np.savez(tmp_path / "l.npz", labels=LABELS, predictions=LOG_PROBS)
    zarr.create_array(tmp_path / "l.zarr", data=LABELS)
    (tmp_path / "l.txt").write_text("\n".join(map(str, LABELS)))
    for name in ("l.npy", "l.npz", "l.zarr", "l.txt"):
        labels = load_labels(tmp_path / name)
        assert labels.dtype == np.int64
        np.testing.assert_array_equal(labels, LABELS)


@pytest.mark.parametrize("name", ["p.npy", "p.zarr"])
def test_a_change_of_the_file_changes_its_identity(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / name, LOG_PROBS)
    before = file_identity(path)
    assert file_identity(path) == before
    changed = path if path.is_file() else next(f for f in path.rglob("*") if f.is_file())
    os.utime(changed, ns=(0, 2 * 10**18))
    assert file_identity(path) != before
