import json
import mmap
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support import refused
from tests.unit.data.full_size_files import SHAPES, SIZE, full, read_full, write_photos
from tests.unit.data.image_files import encoded, photo, png_that_declares, with_orientation

import relook
import relook.data.image_files as full_size
from relook.data import Dataset, Preparation, load_data
from relook.errors import FileFormatError
from relook.transforms.centre_crop import LARGEST, CentreCrop, kept_size
from relook.transforms.full_images import FullImages


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos")


@pytest.fixture
def dataset(photos: Path) -> Dataset:
    return read_full(photos)


def test_images_keep_their_shapes_up_to_the_largest(dataset: Dataset) -> None:
    kept = {str(path): tuple(shape) for path, shape in zip(
        dataset.columns["path"], full(dataset).shapes.tolist(), strict=True)}  # fmt: skip
    for i, shape in enumerate(SHAPES):
        short = min(shape)
        scale = min(1.0, LARGEST * 24 / short)
        wanted = (round(shape[0] * scale), round(shape[1] * scale))
        assert kept[f"{'ab'[i % 2]}/{i}.png"] == wanted
    assert dataset.images.shape == (6, 3, 24, 24)


def test_a_large_image_is_reduced_as_pillow_does(photos: Path, dataset: Dataset) -> None:
    place = dataset.columns["path"].tolist().index("b/3.png")
    with Image.open(photos / "b" / "3.png") as image:
        height, width = kept_size((200, 210), CentreCrop(SIZE, 0.875, 3))
        expected = image.resize((width, height), Image.Resampling.BICUBIC)
    assert (height, width) == (84, 88)
    np.testing.assert_array_equal(full(dataset).levels(place), np.asarray(expected))


def test_the_plain_view_is_what_the_ordinary_way_reads(photos: Path) -> None:
    (photos / "b" / "3.png").unlink()  # the one that is reduced first
    ordinary = load_data(f"folder:{photos}", Preparation(SIZE))
    assert torch.equal(read_full(photos).plain, ordinary.plain)


def test_images_of_the_inputs_size_stay_a_tensor(tmp_path: Path) -> None:
    write_photos(tmp_path, ((24, 24),) * 4)
    assert isinstance(read_full(tmp_path).images, torch.Tensor)


def test_a_subset_shares_the_pixels(dataset: Dataset) -> None:
    part = dataset.subset([4, 1])
    assert full(part).pixels is full(dataset).pixels
    assert torch.equal(part.plain, dataset.plain[[4, 1]])
    assert part.identities.tolist() == [dataset.identities[i] for i in (4, 1)]
    assert part.fingerprint != dataset.fingerprint
    assert dataset.subset(np.arange(6)).fingerprint == dataset.fingerprint


@pytest.mark.parametrize("which", [slice(1, 3), [1, 2], np.array([1, 2]), torch.tensor([1, 2])])
def test_images_are_chosen_like_those_of_a_tensor(dataset: Dataset, which: object) -> None:
    chosen = full(dataset)[which]  # type: ignore[index]
    assert chosen.fingerprints.tolist() == full(dataset).fingerprints.tolist()[1:3]


def test_one_image_is_no_subset(dataset: Dataset) -> None:
    with pytest.raises(TypeError):
        full(dataset)[0]  # type: ignore[index]


def test_the_fingerprint_tells_pixels_and_view_apart(photos: Path, dataset: Dataset) -> None:
    assert read_full(photos).fingerprint == dataset.fingerprint
    assert read_full(photos, crop=0.9).fingerprint != dataset.fingerprint
    photo(40, 60, seed=99).save(photos / "a" / "0.png")
    changed = read_full(photos)
    assert changed.fingerprint != dataset.fingerprint
    assert len(set(changed.identities) & set(dataset.identities)) == 5


def test_grey_images_stay_grey(tmp_path: Path) -> None:
    for i, name in enumerate("abab"):
        (tmp_path / name).mkdir(exist_ok=True)
        photo(40 + i, 50).convert("L").save(tmp_path / name / f"{i}.png")
    grey = read_full(tmp_path)
    assert grey.images.shape == (4, 1, 24, 24)
    assert grey.plain.shape == (4, 1, 24, 24)
    assert torch.equal(grey.plain, load_data(f"folder:{tmp_path}", Preparation(SIZE)).plain)


def test_too_many_for_the_memory_are_mapped_from_a_file(
    photos: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not isinstance(full(dataset).pixels.base, mmap.mmap)
    monkeypatch.setattr(full_size, "IN_MEMORY", 100)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mapped = read_full(photos)
    assert isinstance(full(mapped).pixels.base, mmap.mmap)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]  # the file has no name
    assert mapped.fingerprint == dataset.fingerprint
    assert torch.equal(mapped.plain, dataset.plain)
    beside = read_full(photos, overflow=tmp_path / "run.images")
    assert beside.fingerprint == dataset.fingerprint
    assert len(list((tmp_path / "run.images").iterdir())) == 1


class TestCache:
    @pytest.fixture
    def said(self) -> list[str]:
        return []

    @pytest.fixture
    def cached(self, photos: Path, tmp_path: Path) -> Dataset:
        return read_full(photos, cache=tmp_path / "cache")

    def entry(self, tmp_path: Path) -> Path:
        (entry,) = (tmp_path / "cache").iterdir()
        return entry

    def test_it_is_read_instead_of_the_files(
        self, cached: Dataset, photos: Path, tmp_path: Path, said: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(Image, "open", None)
        again = read_full(photos, cache=tmp_path / "cache", log=said.append)
        assert again.fingerprint == cached.fingerprint
        assert torch.equal(again.plain, cached.plain)
        assert "6 full-size images" in said[0]
        assert "decoded before" in said[0]

    def test_it_holds_what_memory_would(self, cached: Dataset, dataset: Dataset) -> None:
        assert cached.fingerprint == dataset.fingerprint
        np.testing.assert_array_equal(full(cached).pixels, full(dataset).pixels)

    def test_changed_files_and_other_sizes_are_decoded_anew(
        self, cached: Dataset, photos: Path, tmp_path: Path
    ) -> None:
        os.utime(photos / "a" / "0.png", ns=(1, 1))
        read_full(photos, cache=tmp_path / "cache")
        assert len(list((tmp_path / "cache").iterdir())) == 2
        other = Preparation((32, 32), full_size=True, cache=tmp_path / "cache")
        load_data(f"folder:{photos}", other)
        assert len(list((tmp_path / "cache").iterdir())) == 3

    def test_another_crop_share_needs_no_decoding(
        self, cached: Dataset, photos: Path, tmp_path: Path
    ) -> None:
        other = read_full(photos, cache=tmp_path / "cache", crop=0.5)
        self.entry(tmp_path)
        assert torch.equal(other.plain, read_full(photos, crop=0.5).plain)

    @pytest.mark.parametrize("name", ["pixels.u8", "shapes.npy", "marks.npy", "about.json"])
    @pytest.mark.parametrize("damage", ["gone", "short", "changed"])
    def test_damage_is_told(
        self, cached: Dataset, photos: Path, tmp_path: Path, name: str, damage: str
    ) -> None:
        file = self.entry(tmp_path) / name
        content = file.read_bytes()
        file.unlink()
        if damage == "short":
            file.write_bytes(content[:-5])
        elif damage == "changed":
            file.write_bytes(bytes(255 - byte for byte in content))
        with pytest.raises(FileFormatError, match="delete the directory") as caught:
            read_full(photos, cache=tmp_path / "cache")
        assert "\n" not in str(caught.value)

    def test_an_interrupted_decode_leaves_nothing(
        self, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("relook.data.decoded_cache.write_json_atomic", stop)
            with pytest.raises(KeyboardInterrupt):
                read_full(photos, cache=tmp_path / "cache")
        assert list((tmp_path / "cache").iterdir()) == []
        killed = tmp_path / "cache" / ".relook-0123.tmp"  # what kill -9 leaves behind
        killed.mkdir()
        (killed / "pixels.u8").write_bytes(b"half")
        read_full(photos, cache=tmp_path / "cache")
        self.entry(tmp_path)

    def test_a_place_that_cannot_be_written_to_is_told(self, photos: Path, tmp_path: Path) -> None:
        (tmp_path / "cache").write_text("a file")
        refused("give another cache", read_full, photos, cache=tmp_path / "cache")

    def test_a_full_disk_is_told_before(
        self, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
        refused("GB free", read_full, photos, cache=tmp_path / "cache")


class TestHostileFiles:
    BAD = ("bomb.png", "broken.png", "empty.png", "text.jpg")

    @pytest.fixture
    def photos(self, photos: Path) -> Path:
        rng = np.random.default_rng(0)
        noise = Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8))
        (photos / "a" / "broken.png").write_bytes(encoded(noise, "PNG")[:6000])
        (photos / "a" / "empty.png").write_bytes(b"")
        (photos / "a" / "text.jpg").write_text("no image")
        (photos / "b" / "bomb.png").write_bytes(png_that_declares(50_000, 50_000))
        return photos

    def test_they_are_an_error(self, photos: Path) -> None:
        with pytest.raises(
            FileFormatError, match=r"3 of 10 files cannot be read.*skip_bad=True \(--skip-bad\)"
        ):
            read_full(photos)

    @pytest.mark.parametrize("cached", [False, True])
    def test_they_are_skipped_and_named(self, photos: Path, tmp_path: Path, cached: bool) -> None:
        said: list[str] = []
        how = {"cache": tmp_path / "cache"} if cached else {}
        for _ in range(2):
            said.clear()
            found = read_full(photos, skip_bad=True, log=said.append, **how)
            assert len(found) == 6
            assert all(any(name in line for line in said) for name in self.BAD)
        if cached:
            refused("4 of 10 files cannot be read", read_full, photos, **how, error=FileFormatError)
            (entry,) = (tmp_path / "cache").iterdir()
            assert len(json.loads((entry / "about.json").read_text())["faults"]) == 4

    def test_modes_and_orientations_are_those_of_the_ordinary_way(self, tmp_path: Path) -> None:
        write_photos(tmp_path, ((40, 60), (60, 40)))
        place = tmp_path / "a"
        (place / "turned.jpg").write_bytes(with_orientation(photo(30, 70), 6))
        photo(31, 44).convert("CMYK").save(place / "cmyk.jpg")
        photo(32, 44).convert("P").save(place / "palette.png")
        photo(33, 44).convert("LA").save(place / "grey.png")
        Image.new("RGBA", (50, 60), (9, 99, 200, 100)).save(place / "clear.png")
        found = read_full(tmp_path)
        assert isinstance(found.images, FullImages)
        ordinary = load_data(f"folder:{tmp_path}", Preparation(SIZE))
        assert torch.equal(found.plain, ordinary.plain)
        turned = found.columns["path"].tolist().index("a/turned.jpg")
        assert found.images.shapes[turned].tolist() == [70, 30]

    def test_too_long_and_thin_is_bad(self, tmp_path: Path) -> None:
        write_photos(tmp_path, ((40, 60), (60, 40)))
        Image.new("L", (200_000, 1)).save(tmp_path / "a" / "thin.png")
        refused("too long and thin", read_full, tmp_path, error=FileFormatError)

    def test_nothing_left_is_an_error(self, tmp_path: Path) -> None:
        for name in "ab":
            (tmp_path / name).mkdir()
            noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
            content = encoded(Image.fromarray(noise), "PNG")
            (tmp_path / name / "broken.png").write_bytes(content[:6000])
        with pytest.raises(FileFormatError, match="none of the 2 files"):
            read_full(tmp_path, skip_bad=True, log=lambda _: None)


@pytest.mark.filterwarnings("ignore")  # of few and small images
def test_a_search_from_python_takes_them(tmp_path: Path) -> None:
    photos = read_full(write_photos(tmp_path, SHAPES * 5))

    def by_brightness(images: torch.Tensor) -> torch.Tensor:
        assert images.shape[1:] == (3, 24, 24)
        return images.float().mean(dim=(2, 3))[:, :2] / 20

    images, labels = photos.images, photos.labels
    found = relook.search(
        by_brightness, images, labels, recipe="imagenet", pool_size=4, length=2, outputs="logits"
    )
    assert len(found.policy) == 2
    assert len(found.comparison.gallery) == 6
