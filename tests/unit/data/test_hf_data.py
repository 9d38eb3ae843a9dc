import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support import refused
from tests.unit.data.full_size_files import full
from tests.unit.data.hf_files import hf_table, save_hf_data
from tests.unit.data.image_files import encoded, photo, png_that_declares, write_classes

from relook.data import Preparation, load_data
from relook.data.hf_data import _content, import_datasets
from relook.errors import FileFormatError, MissingExtraError, RelookError, install_command

pytestmark = pytest.mark.filterwarnings("ignore")  # its own writers warn


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    try:
        found = import_datasets()
    except MissingExtraError as error:
        pytest.skip(str(error))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hub")
    return found


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    command = re.escape(install_command("hf-data"))
    refused(command, load_data, "hf:somewhere", error=MissingExtraError)


def test_a_saved_data_set_is_read_as_it_was(datasets: Any, tmp_path: Path) -> None:
    save_hf_data(tmp_path / "set")
    found = load_data(f"hf:{tmp_path / 'set'}")
    assert found.classes == ("cat", "dog")
    assert found.labels.tolist() == [0, 1, 0, 1, 0, 1]
    expected = np.stack([np.asarray(photo(seed=i)) for i in range(6)])
    np.testing.assert_array_equal(found.plain.permute(0, 2, 3, 1).numpy(), expected)


def test_the_test_part_is_the_default(datasets: Any, tmp_path: Path) -> None:
    save_hf_data(tmp_path / "set", train=6, test=4)
    assert len(load_data(f"hf:{tmp_path / 'set'}")) == 4
    assert len(load_data(f"hf:{tmp_path / 'set'}?part=train")) == 6
    refused("did you mean 'train'", load_data, f"hf:{tmp_path / 'set'}?part=trian")
    save_hf_data(tmp_path / "odd", one=6, two=4)
    refused(r"say \?part=one\|two", load_data, f"hf:{tmp_path / 'odd'}")


@pytest.mark.parametrize("kind", ["parquet", "folders"])
def test_directories_of_files_are_read(datasets: Any, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "set"
    if kind == "folders":
        write_classes(place, "cat", "dog")
    else:
        place.mkdir()
        names = ["cat", "dog"]
        hf_table([photo(seed=i) for i in range(6)], [0, 1] * 3, names).to_parquet(
            place / "train.parquet"
        )
    found = load_data(f"hf:{place}")
    assert found.classes == ("cat", "dog")
    assert found.images.shape == (6, 3, 40, 60)
    if kind == "folders":
        assert torch.equal(found.plain, load_data(f"folder:{place}").plain)


def test_labels_may_be_names_or_numbers(datasets: Any, tmp_path: Path) -> None:
    pictures = [photo(seed=i) for i in range(4)]
    hf_table(pictures, ["b", "a", "b", "a"]).save_to_disk(str(tmp_path / "names"))
    found = load_data(f"hf:{tmp_path / 'names'}")
    assert (found.classes, found.labels.tolist()) == (("a", "b"), [1, 0, 1, 0])
    hf_table(pictures, [2, 0, 1, 2]).save_to_disk(str(tmp_path / "numbers"))
    found = load_data(f"hf:{tmp_path / 'numbers'}")
    assert (found.classes, found.labels.tolist()) == (("0", "1", "2"), [2, 0, 1, 2])


def test_columns_can_be_named(datasets: Any, tmp_path: Path) -> None:
    table = hf_table([photo(seed=i) for i in range(4)], [0, 1, 0, 1], ["cat", "dog"])
    table = table.rename_columns({"image": "scan", "label": "species"})
    table = table.add_column("ward", [3, 3, 4, 4])
    table.save_to_disk(str(tmp_path / "set"))
    refused(r"say \?label=COLUMN", load_data, f"hf:{tmp_path / 'set'}")
    found = load_data(f"hf:{tmp_path / 'set'}?label=species&image=scan")
    assert found.classes == ("cat", "dog")
    refused("did you mean 'species'", load_data, f"hf:{tmp_path / 'set'}?label=specis")
    with pytest.raises(RelookError, match="expected images in the column"):
        load_data(f"hf:{tmp_path / 'set'}?label=species&image=ward")


def test_hostile_images_are_named_or_skipped(datasets: Any, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    cells = [
        {"bytes": encoded(photo(), "JPEG"), "path": None},
        {"bytes": png_that_declares(50_000, 50_000), "path": None},
        {"bytes": encoded(photo(seed=3), "PNG"), "path": None},
        {"bytes": encoded(Image.fromarray(noise), "PNG")[:6000], "path": None},
        {"bytes": b"", "path": None},
    ]
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    table = datasets.Dataset.from_dict(
        {"image": cells, "label": [0, 1, 1, 0, 0]}, features=datasets.Features(kinds)
    )
    table.save_to_disk(str(tmp_path / "set"))
    with pytest.raises(FileFormatError, match="row 1: it declares more than"):
        load_data(f"hf:{tmp_path / 'set'}")
    said: list[str] = []
    wanted = Preparation((24, 24), skip_bad=True, log=said.append)
    found = load_data(f"hf:{tmp_path / 'set'}", wanted)
    assert found.columns["row"].tolist() == [0, 2]
    assert found.labels.tolist() == [0, 1]
    assert all(any(f"row {row}:" in line for line in said) for row in (1, 3, 4))


def test_only_files_are_read_by_their_path() -> None:
    cells = [{"image": {"bytes": None, "path": "/dev/null"}}]  # /dev/zero would never end
    refused("something that is not a file", _content, cells, 0, "image")


def test_it_is_kept_at_full_size(datasets: Any, tmp_path: Path) -> None:
    save_hf_data(tmp_path / "set")
    said: list[str] = []
    wanted = Preparation((24, 24), full_size=True, cache=tmp_path / "cache", log=said.append)
    found = load_data(f"hf:{tmp_path / 'set'}", wanted)
    assert full(found).shapes.tolist() == [[40, 60]] * 6
    again = load_data(f"hf:{tmp_path / 'set'}", wanted)
    assert again.fingerprint == found.fingerprint
    assert "decoded before" in said[-1]


def test_what_is_nowhere_gets_one_line(datasets: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "state.json").write_text("{")
    for name in ("empty", "damaged", "not here at all"):
        refused(".", load_data, f"hf:{tmp_path / name}")


def test_a_data_sets_own_code_is_not_run(datasets: Any, tmp_path: Path) -> None:
    directory = tmp_path / "own"
    directory.mkdir()
    ran = tmp_path / "executed"
    (directory / "own.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    refused(".", load_data, f"hf:{directory}")
    assert not ran.exists()
