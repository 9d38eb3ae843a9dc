"""What every data source promises; a new row of DATA_SOURCES needs an example here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from relook.data import DATA_SOURCES, Dataset, load_data
from relook.errors import MissingExtraError, RelookError


def digits_example(directory: Path) -> str:
    return "digits:train"


def npz_example(directory: Path) -> str:
    generator = np.random.default_rng(2)
    images = generator.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    np.savez(directory / "set.npz", images=images, labels=np.arange(6) % 2)
    return f"npz:{directory / 'set.npz'}"


EXAMPLES: dict[str, Callable[[Path], str]] = {
    "digits": digits_example,
    "npz": npz_example,
}


def test_every_data_source_has_an_example() -> None:
    assert set(EXAMPLES) == set(DATA_SOURCES)


@pytest.fixture(params=list(DATA_SOURCES))
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return EXAMPLES[request.param](tmp_path)


@pytest.fixture
def dataset(spec: str) -> Dataset:
    try:
        return load_data(spec)
    except MissingExtraError as error:
        pytest.skip(str(error))


def test_it_holds_labelled_images(dataset: Dataset, spec: str) -> None:
    n = len(dataset)
    assert n > 0
    assert dataset.images.dtype == torch.uint8
    assert dataset.images.ndim == 4
    assert dataset.images.is_contiguous()
    assert dataset.labels.shape == (n,)
    assert dataset.labels.dtype == np.int64
    assert 0 <= dataset.labels.min() < dataset.labels.max() < len(dataset.classes)
    assert spec.startswith(dataset.name.partition(":")[0])


def test_it_is_the_same_each_time(dataset: Dataset, spec: str) -> None:
    again = load_data(spec)
    assert torch.equal(again.images, dataset.images)
    np.testing.assert_array_equal(again.labels, dataset.labels)
    assert again.classes == dataset.classes
    assert again.fingerprint == dataset.fingerprint


def test_all_of_it_as_a_subset_is_the_same(dataset: Dataset) -> None:
    whole = dataset.subset(np.arange(len(dataset)))
    assert whole.fingerprint == dataset.fingerprint
    assert set(whole.columns) == set(dataset.columns)


@pytest.mark.parametrize("prefix", DATA_SOURCES)
def test_a_row_says_how_its_specs_look(prefix: str) -> None:
    source = DATA_SOURCES[prefix]
    assert source.prefix == prefix
    assert source.form.startswith(prefix)
    with pytest.raises(RelookError) as caught:
        load_data(f"{prefix}:")
    assert source.form in str(caught.value)


@pytest.mark.parametrize("prefix", DATA_SOURCES)
@pytest.mark.parametrize("rest", ["no/such thing", "…", "?", "a?b=c", "\n"])
def test_a_spec_that_names_nothing_gets_one_line(prefix: str, rest: str) -> None:
    with pytest.raises(RelookError) as caught:
        load_data(f"{prefix}:{rest}")
    assert "\n" not in str(caught.value)
