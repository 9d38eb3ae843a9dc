"""Corrupted sets: written, read back, and refused where a part is missing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support import refused
from tests.unit.data.image_files import write_classes

from relook.data import Dataset, load_data
from relook.data.corrupted import corrupted_source, open_arrays
from relook.errors import FileFormatError, RelookError, RunError
from relook.studies.corruptions import CORRUPTIONS, corrupt_images
from relook.studies.corruptions.write import write_arrays, write_folders, write_npz

TWO = ("brightness", "impulse_noise")


@pytest.fixture
def dataset() -> Dataset:
    levels = np.random.default_rng(0).integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
    return Dataset(torch.from_numpy(levels), np.arange(6) % 3, tuple("012"), "six")


def published(directory: Path, images: int = 4) -> Path:
    """Write a set in the layout of the published CIFAR-10-C: five severities, uint8 labels."""
    directory.mkdir()
    labels = np.tile(np.arange(images, dtype=np.uint8) % 10, 5)
    np.save(directory / "labels.npy", labels)
    stack = np.repeat(np.arange(5, dtype=np.uint8), images)[:, None, None, None]
    np.save(directory / "fog.npy", np.broadcast_to(10 * stack, (5 * images, 32, 32, 3)).copy())
    return directory


def test_a_part_of_a_published_set_is_its_severity(tmp_path: Path) -> None:
    folder = published(tmp_path / "set")
    for prefix, classes in (("cifar10c", 10), ("cifar100c", 100)):
        part = load_data(f"{prefix}:{folder}?corruption=fog&severity=4")
        assert part.images.shape == (4, 3, 32, 32)
        assert (part.plain == 30).all()
        assert part.labels.tolist() == [0, 1, 2, 3]
        assert len(part.classes) == classes


def test_the_written_set_has_the_published_layout(tmp_path: Path, dataset: Dataset) -> None:
    files = write_arrays(dataset, tmp_path / "out", corruptions=TWO, seed=3)
    assert [file.name for file in files] == ["impulse_noise.npy", "brightness.npy"]
    stacked = np.load(tmp_path / "out" / "impulse_noise.npy")
    assert stacked.shape == (30, 32, 32, 3)
    assert stacked.dtype == np.uint8
    assert np.load(tmp_path / "out" / "labels.npy").tolist() == dataset.labels.tolist() * 5
    expected = corrupt_images(dataset.plain, "impulse_noise", 2, seed=3)
    assert np.array_equal(stacked[6:12], expected.numpy().transpose(0, 2, 3, 1))


def test_what_was_written_is_read_for_any_part_of_the_images(
    tmp_path: Path, dataset: Dataset
) -> None:
    write_arrays(dataset, tmp_path / "out", corruptions=TWO, severities=[1, 5], seed=3)
    places = np.array([4, 1])
    read = corrupted_source(tmp_path / "out", dataset.subset(places), places)
    expected = corrupt_images(dataset.plain[[4, 1]], "impulse_noise", 5, seed=3, indices=places)
    assert torch.equal(read("impulse_noise", 5), expected)
    refused(r"expected severity 3, but it holds only 1, 5", read, "impulse_noise", 3)
    refused(r"expected the file fog\.npy with 2 × 6 images", read, "fog", 1)


def test_writing_goes_on_where_it_stopped(tmp_path: Path, dataset: Dataset) -> None:
    out, calls = tmp_path / "out", list[tuple[int, int]]()
    write_arrays(dataset, out, corruptions=["brightness"], severities=[1])
    first = (out / "brightness.npy").stat()
    write_arrays(
        dataset,
        out,
        corruptions=TWO,
        severities=[1],
        progress=lambda done, total: calls.append((done, total)),
    )
    assert (out / "brightness.npy").stat().st_mtime_ns == first.st_mtime_ns
    assert calls[-1] == (12, 12)
    assert not list(out.glob(".relook-*"))
    with pytest.raises(RunError, match="seed: 0 there, 1 here"):
        write_arrays(dataset, out, corruptions=TWO, severities=[1], seed=1)
    with pytest.raises(RunError, match="severities"):
        write_arrays(dataset, out, corruptions=TWO, severities=[1, 2])


def test_grey_images_are_written_and_read(tmp_path: Path, dataset: Dataset) -> None:
    grey = replace(dataset, images=dataset.plain[:, :1].contiguous())
    write_arrays(grey, tmp_path / "out", corruptions=["fog"], severities=[2])
    read = corrupted_source(tmp_path / "out", grey, np.arange(6))
    assert torch.equal(read("fog", 2), corrupt_images(grey.plain, "fog", 2))


def test_one_severity_as_an_archive(tmp_path: Path, dataset: Dataset) -> None:
    write_npz(dataset, tmp_path / "fog.npz", "fog", 3, seed=2)
    found = load_data(f"npz:{tmp_path / 'fog.npz'}")
    assert torch.equal(found.plain, corrupt_images(dataset.plain, "fog", 3, seed=2))
    assert found.labels.tolist() == dataset.labels.tolist()


def test_other_images_are_told_by_their_labels(tmp_path: Path, dataset: Dataset) -> None:
    write_arrays(dataset, tmp_path / "out", corruptions=["fog"], severities=[1])
    other = replace(dataset, labels=np.array([0, 1, 2, 0, 2, 2]))
    with pytest.raises(RelookError, match=r"1 of 6 differ \(image 4 first\)"):
        corrupted_source(tmp_path / "out", other, np.arange(6))
    with pytest.raises(RelookError, match="at least 9, got 6"):
        corrupted_source(tmp_path / "out", dataset.subset([0]), np.array([8]))
    wide = replace(dataset, images=torch.zeros((6, 3, 32, 40), dtype=torch.uint8))
    with pytest.raises(RelookError, match=r"expected images of shape \[3, 32, 40\]"):
        corrupted_source(tmp_path / "out", wide, np.arange(6))("fog", 1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "labels.npy").unlink(), "expected a corrupted set with labels.npy"),
        (lambda d: (d / "fog.npy").unlink(), r"expected the file fog.npy with 5 × 4 images"),
        (
            lambda d: np.save(d / "fog.npy", np.zeros((19, 32, 32, 3), np.uint8)),
            r"expected 20 images \(5 severities of 4\), got 19",
        ),
        (lambda d: np.save(d / "fog.npy", np.zeros((20, 32, 32, 3))), "expected images uint8"),
        (lambda d: np.save(d / "labels.npy", np.arange(19)), "which 5 does not divide"),
        (lambda d: np.save(d / "labels.npy", np.arange(20)), "the same labels for every severity"),
        (lambda d: (d / "fog.npy").write_bytes(b"no array"), "expected an npy file"),
        (lambda d: (d / "corruptions.json").write_text("{}"), "run  relook study corrupt  again"),
    ],
)
def test_a_damaged_set_is_one_line(tmp_path: Path, damage: object, message: str) -> None:
    folder = published(tmp_path / "set")
    damage(folder)  # type: ignore[operator]
    refused(message, load_data, f"cifar10c:{folder}?corruption=fog&severity=1")


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("set", "expected cifar10c:DIR"),
        ("set?corruption=fog", "expected cifar10c:DIR"),
        ("set?corruption=fog&severity=6", "expected cifar10c:DIR"),
        ("set?corruption=smog&severity=1", "did you mean 'fog'|unknown corruption 'smog'"),
        ("set?kind=fog&severity=1", "unknown cifar10c option 'kind'"),
    ],
)
def test_a_wrong_spec_is_one_line(rest: str, message: str) -> None:
    refused(message, load_data, f"cifar10c:{rest}")


@pytest.mark.parametrize("jpeg", [False, True])
def test_folders_are_imagenet_cs(tmp_path: Path, jpeg: bool) -> None:
    write_classes(tmp_path / "clean", "cat", "dog", kind="jpg")
    clean = load_data(f"folder:{tmp_path / 'clean'}")
    out = tmp_path / "out"
    write_folders(clean, out, corruptions=["fog"], severities=[2], seed=1, jpeg=jpeg)
    name = Path(str(clean.columns["path"][0])).with_suffix(".jpg" if jpeg else ".png")
    assert (out / "fog" / "2" / name).is_file()
    expected = corrupt_images(clean.plain, "fog", 2, seed=1)
    found = corrupted_source(out, clean, np.arange(len(clean)))("fog", 2)
    far = (found.double() - expected.double()).abs().mean()
    assert far < 12 if jpeg else far == 0
    part = load_data(f"imagenetc:{out}?corruption=fog&severity=2")
    assert part.classes == clean.classes
    assert torch.equal(part.plain, found)


def test_folders_may_lie_in_their_families(tmp_path: Path) -> None:
    write_classes(tmp_path / "blur" / "zoom_blur" / "1", "cat", "dog", kind="jpg")
    part = load_data(f"imagenetc:{tmp_path}?corruption=zoom_blur&severity=1")
    assert part.classes == ("cat", "dog")


def test_missing_folders_and_files_are_one_line(tmp_path: Path, dataset: Dataset) -> None:
    write_classes(tmp_path / "clean", "cat", "dog", kind="jpg")
    clean = load_data(f"folder:{tmp_path / 'clean'}")
    out = tmp_path / "out"
    write_folders(clean, out, corruptions=["fog"], severities=[2])
    read = corrupted_source(out, clean, np.arange(len(clean)))
    refused(r"expected the folder snow/2 \(or weather/snow/2\)", read, "snow", 2)
    next((out / "fog" / "2" / "cat").iterdir()).unlink()
    refused(r"there is no .*fog/2/cat/", read, "fog", 2)
    refused("expected clean images from folder:DIR", corrupted_source, out, dataset, np.arange(6))
    with pytest.raises(RelookError, match="expected a corrupted set"):
        corrupted_source(tmp_path / "clean", clean, np.arange(len(clean)))
    refused("expected images from folder:DIR", write_folders, dataset, tmp_path / "other")


def test_a_damaged_image_among_the_corrupted_is_named(tmp_path: Path) -> None:
    write_classes(tmp_path / "clean", "cat", "dog", kind="jpg")
    clean = load_data(f"folder:{tmp_path / 'clean'}")
    write_folders(clean, tmp_path / "out", corruptions=["fog"], severities=[2])
    broken = next((tmp_path / "out" / "fog" / "2" / "dog").iterdir())
    broken.write_bytes(b"no image")
    with pytest.raises(FileFormatError, match=broken.name):
        corrupted_source(tmp_path / "out", clean, np.arange(len(clean)))("fog", 2)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("cat/a.png", "cat/a.jpg", "dog/b.png"):
        path = tmp_path / "clean" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16)).save(path)
    with pytest.raises(RelookError, match="got two for cat/a"):
        write_folders(load_data(f"folder:{tmp_path / 'clean'}"), tmp_path / "out")


def test_a_set_of_all_corruptions_opens(tmp_path: Path, dataset: Dataset) -> None:
    files = write_arrays(dataset.subset([0, 1]), tmp_path / "out", severities=[5])
    assert [file.stem for file in files] == list(CORRUPTIONS)
    assert open_arrays(tmp_path / "out").severities == (5,)
