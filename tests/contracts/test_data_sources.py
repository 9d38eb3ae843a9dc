"""What every data source promises; a new row of DATA_SOURCES needs an example here."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support import refused
from tests.unit.data.cifar_files import write_binary100, write_python10
from tests.unit.data.hf_files import save_hf_data
from tests.unit.data.idx_files import write as write_idx
from tests.unit.data.image_files import write_classes

from relook.data import DATA_SOURCES, load_data
from relook.errors import MissingExtraError, RelookError
from relook.testing import check_data_source


def digits_example(directory: Path) -> str:
    return "digits:train"


def npz_example(directory: Path) -> str:
    generator = np.random.default_rng(2)
    images = generator.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    np.savez(directory / "set.npz", images=images, labels=np.arange(6) % 2)
    return f"npz:{directory / 'set.npz'}"


def folder_example(directory: Path) -> str:
    write_classes(directory / "set", "cat", "dog", kind="jpg")
    return f"folder:{directory / 'set'}"


def csv_example(directory: Path) -> str:
    write_classes(directory / "set", "cat", "dog", kind="webp")
    rows = ["set/cat/0.webp,cat,a", "set/dog/0.webp,dog,b", "set/dog/1.webp,dog,b"]
    (directory / "table.csv").write_text("\n".join(["path,label,group", *rows]))
    return f"csv:{directory / 'table.csv'}"


def cifar10_example(directory: Path) -> str:
    write_python10(directory / "set")
    return f"cifar10:{directory / 'set'}?part=train"


def cifar100_example(directory: Path) -> str:
    write_binary100(directory / "set")
    return f"cifar100:{directory / 'set'}"


def idx_example(directory: Path) -> str:
    write_idx(directory, "train", packed=True)
    return f"idx:{directory}?part=train"


def hf_example(directory: Path) -> str:
    save_hf_data(directory / "set")
    return f"hf:{directory / 'set'}"


def arrays_example(directory: Path) -> str:
    generator = np.random.default_rng(3)
    images = generator.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    (directory / "set").mkdir()
    np.save(directory / "set" / "snow.npy", images)
    np.save(directory / "set" / "labels.npy", np.tile(np.arange(4), 5))
    return f"{directory / 'set'}?corruption=snow&severity=3"


def imagenetc_example(directory: Path) -> str:
    write_classes(directory / "set" / "fog" / "1", "cat", "dog", kind="jpg")
    return f"imagenetc:{directory / 'set'}?corruption=fog&severity=1"


EXAMPLES: dict[str, Callable[[Path], str]] = {
    "digits": digits_example,
    "npz": npz_example,
    "folder": folder_example,
    "csv": csv_example,
    "cifar10": cifar10_example,
    "cifar100": cifar100_example,
    "idx": idx_example,
    "hf": hf_example,
    "cifar10c": lambda directory: f"cifar10c:{arrays_example(directory)}",
    "cifar100c": lambda directory: f"cifar100c:{arrays_example(directory)}",
    "imagenetc": imagenetc_example,
}


def test_every_data_source_has_an_example() -> None:
    assert set(EXAMPLES) == set(DATA_SOURCES)


@pytest.fixture(params=list(DATA_SOURCES))
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    try:
        return EXAMPLES[request.param](tmp_path)
    except MissingExtraError as error:
        pytest.skip(str(error))


def test_it_keeps_its_promises(spec: str) -> None:
    check_data_source(spec)


def test_all_of_it_as_a_subset_has_its_columns(spec: str) -> None:
    dataset = load_data(spec)
    assert set(dataset.subset(np.arange(len(dataset))).columns) == set(dataset.columns)


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
    refused(".", load_data, f"{prefix}:{rest}")


def test_an_unknown_source_names_the_nearest() -> None:
    refused("unknown data source 'digit': did you mean 'digits'", load_data, "digit:test")
    refused("known: digits, npz", load_data, "scans.zip")
