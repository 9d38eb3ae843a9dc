from pathlib import Path

import numpy as np
import pytest
from tests.support import refused

from relook.api.recorded import pixels
from relook.cli.shared.loading import groups_for_test, read_data


@pytest.mark.parametrize(
    ("text", "size"),
    [(None, None), ("224", (224, 224)), ("192x256", (192, 256)), (" 24 × 20 ", (24, 20))],
)
def test_a_size_is_one_side_or_two(text: str | None, size: tuple[int, int] | None) -> None:
    assert pixels(text) == size


@pytest.mark.parametrize("text", ["", "x", "224x", "22.4", "-8", "1x2x3", "999999", "two"])
def test_other_sizes_are_refused(text: str) -> None:
    refused("--size: expected pixels like 224 or 192x256", pixels, text)


def test_a_column_groups_a_test_set_too_and_a_file_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr("relook.cli.shared.loading.say", told.append)
    assert groups_for_test(None) is None
    assert groups_for_test("patient") == "patient"
    assert not told
    (tmp_path / "ids.csv").write_text("id\n1\n")
    assert groups_for_test(f"{tmp_path / 'ids.csv'}?column=id") is None
    assert "no groups of the test images: each of them counts by itself" in told[0]


def test_copies_of_images_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("relook.cli.shared.loading.say", told.append)
    images = np.arange(5, dtype=np.uint8)[[0, 1, 2, 1, 1], None, None] * np.ones((8, 8), np.uint8)
    np.savez(tmp_path / "five.npz", images=images, labels=np.array([0, 1, 0, 1, 1]))
    read_data(f"npz:{tmp_path / 'five.npz'}")
    assert any("2 images are copies of others: an image and its copies" in one for one in told)
