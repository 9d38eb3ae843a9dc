import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from tests.support import refused
from tests.unit.data.image_files import GREEN, RED, encoded, photo, with_orientation, write_classes

from relook.data import Preparation, load_data
from relook.data.prepare import in_mode, make_plan, to_array
from relook.errors import RelookError
from relook.policy import Step, SubPolicy
from relook.policy.views import apply_subpolicy
from relook.transforms.centre_crop import CentreCrop


def levels(image: Image.Image) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    array = np.asarray(image)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def read(directory: Path, content: bytes, name: str, **wanted: int) -> np.ndarray:
    """Read one file beside sound ones of the same size, as a folder does."""
    root = directory / f"set-{name}"
    for folder in ("cat", "dog"):
        (root / folder).mkdir(parents=True)
        (root / folder / name).write_bytes(content)
    return np.asarray(load_data(f"folder:{root}", Preparation(**wanted)).plain[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_that_a_file_tells_is_applied(
    tmp_path: Path, kind: str, orientation: int
) -> None:
    stored = photo()
    content = with_orientation(stored, orientation, kind)
    got = read(tmp_path, content, f"x.{kind.lower()}")
    turned = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
    want = stored.transpose(turned[orientation]) if orientation > 1 else stored
    error = np.abs(got.astype(int) - levels(want).astype(int)).mean()
    assert got.shape == (3, want.height, want.width)
    assert error < 4, "only the loss of the compression"


MODES = {
    "grey.png": (encoded(photo().convert("L"), "PNG"), photo().convert("L")),
    "bits.png": (encoded(photo().convert("1"), "PNG"), photo().convert("1").convert("L")),
    "palette.png": (encoded(photo().quantize(64), "PNG"), photo().quantize(64).convert("RGB")),
    "colour.bmp": (encoded(photo(), "BMP"), photo()),
    "colour.ppm": (encoded(photo(), "PPM"), photo()),
    "colour.webp": (encoded(photo(), "WEBP", lossless=True), photo()),
    "colour.gif": (encoded(photo().quantize(64), "GIF"), photo().quantize(64).convert("RGB")),
    "print.tiff": (encoded(photo().convert("CMYK"), "TIFF"), photo()),
}


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("channels", [None, 1, 3])
def test_every_mode_becomes_grey_or_colour(tmp_path: Path, name: str, channels: int | None) -> None:
    content, want = MODES[name]
    wanted = {} if channels is None else {"channels": channels}
    got = read(tmp_path, content, name, **wanted)
    if channels is not None:
        want = want.convert("L" if channels == 1 else "RGB")
    np.testing.assert_array_equal(got, levels(want))


def test_cmyk_jpegs_look_as_they_should(tmp_path: Path) -> None:
    got = read(tmp_path, encoded(Image.new("RGB", (16, 16), RED).convert("CMYK"), "JPEG"), "x.jpg")
    assert np.abs(got.reshape(3, -1).mean(axis=1) - np.array(RED)).max() < 4


def test_what_is_transparent_is_black(tmp_path: Path) -> None:
    image = Image.new("RGBA", (16, 16), (*RED, 0))
    image.paste((*GREEN, 255), (0, 0, 8, 16))
    image.paste((200, 100, 50, 128), (0, 0, 16, 4))
    got = read(tmp_path, encoded(image, "PNG"), "x.png")
    assert got[:, 8, 2].tolist() == list(GREEN)
    assert got[:, 8, 12].tolist() == [0, 0, 0]
    assert got[:, 1, 12].tolist() == [100, 50, 25]
    palette = image.quantize(16)
    palette.info["transparency"] = palette.getpixel((12, 8))
    got = read(tmp_path, encoded(palette, "PNG", transparency=palette.getpixel((12, 8))), "p.png")
    assert got[:, 8, 12].tolist() == [0, 0, 0]
    grey = Image.merge("LA", (Image.new("L", (16, 16), 90), Image.new("L", (16, 16), 0)))
    assert read(tmp_path, encoded(grey, "PNG"), "la.png").tolist() == np.zeros((1, 16, 16)).tolist()


def test_sixteen_bits_keep_their_high_byte(tmp_path: Path) -> None:
    deep = np.arange(256 * 16, dtype=np.uint16).reshape(64, 64) * 16
    want = (deep >> 8).astype(np.uint8)[None]
    image = Image.fromarray(deep)
    for kind in ("PNG", "TIFF"):
        got = read(tmp_path, encoded(image, kind), f"x.{kind.lower()}")
        np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match="its levels go from 0 to 70000"):
        in_mode(Image.fromarray(np.array([[0, 70_000]], dtype=np.int32)), "L")


@given(
    st.tuples(st.integers(5, 70), st.integers(5, 70)),
    st.tuples(st.integers(8, 40), st.integers(8, 40)),
    st.sampled_from([0.6, 0.875, 1.0]),
)
def test_resizing_keeps_proportions_and_takes_the_centre(
    source: tuple[int, int], target: tuple[int, int], crop: float
) -> None:
    """A picture of its own coordinates: the centre stays, and both axes have one scale."""
    height, width = source
    ramp = np.zeros((height, width, 3), dtype=np.uint8)
    ramp[..., 0] = np.linspace(60, 190, height)[:, None]
    ramp[..., 1] = np.linspace(60, 190, width)[None]
    plan = CentreCrop(target, crop, 3, every=True)
    got = to_array(Image.fromarray(ramp), plan).astype(float)
    assert got.shape == (3, *target)
    scale = max(math.floor(target[0] / crop) / height, math.floor(target[1] / crop) / width)
    per_pixel = 130 / (np.array(source) - 1) / scale
    for axis in (0, 1):
        slack = 3 + 1.2 * per_pixel[axis] + 130 / source[axis]
        assert abs(got[axis].mean() - 125) < slack


def torchvision_eval(image: Image.Image, size: int, crop: float) -> Image.Image:
    """What torchvision's Resize and CenterCrop do, by their documentation."""
    short = int(size / crop)
    width, height = image.size
    if width <= height:
        scaled = (short, int(short * height / width))
    else:
        scaled = (int(short * width / height), short)
    image = image.resize(scaled, Image.Resampling.BICUBIC)
    left, top = round((image.width - size) / 2.0), round((image.height - size) / 2.0)
    return image.crop((left, top, left + size, top + size))


@pytest.mark.parametrize("shape", [(300, 500), (500, 300), (256, 256), (257, 400), (40, 60)])
def test_resizing_is_the_usual_one(shape: tuple[int, int]) -> None:
    image = photo(*shape)
    want = levels(torchvision_eval(image, 224, 0.875))
    np.testing.assert_array_equal(to_array(image, CentreCrop((224, 224), 0.875, 3)), want)


def test_images_of_the_size_are_taken_as_they_are_unless_a_crop_is_given() -> None:
    own, other = photo(40, 60), photo(41, 60)
    usual, asked = Preparation(size=(40, 60)), Preparation(size=(40, 60), crop=0.875)
    for wanted, kept in ((usual, True), (asked, False)):
        for sizes in ([(40, 60)], [(40, 60), (41, 60)]):
            plan = make_plan(sizes, False, wanted, "x")
            assert np.array_equal(to_array(own, plan), levels(own)) == kept
            assert plan.described([(40, 60)]).startswith("3×40×60 (") != kept
        want = make_plan([(41, 60)], False, asked, "x")
        np.testing.assert_array_equal(to_array(other, plan), to_array(other, want))


@pytest.mark.parametrize("full_size", [False, True], ids=["in memory", "full size"])
def test_what_an_image_becomes_does_not_depend_on_its_neighbours(
    tmp_path: Path, full_size: bool
) -> None:
    wanted = Preparation((24, 24), full_size=full_size)
    read = []
    for neighbour in ((24, 24), (30, 26)):
        root = tmp_path / str(neighbour)
        for folder, shape in (("a", (24, 24)), ("b", neighbour)):
            (root / folder).mkdir(parents=True)
            photo(*shape, seed=3).save(root / folder / "x.png")
        dataset = load_data(f"folder:{root}", wanted)
        crop = SubPolicy((Step("zoom", 10, draws={"x": 0.2, "y": 0.9}),))
        read.append(
            (dataset.plain[0], apply_subpolicy(crop, dataset.images, np.arange(2), 0, 0)[0])
        )
    for alone, beside in zip(*read, strict=True):
        assert torch.equal(alone, beside)
    np.testing.assert_array_equal(read[0][0], levels(photo(24, 24, seed=3)))


@dataclass(frozen=True)
class Spec:
    size: tuple[int, int] = (24, 20)
    crop: float = 0.7
    interpolation: str = "bilinear"
    channels: int | None = 1


@dataclass(frozen=True)
class Model:
    input: Spec | None = Spec()


def test_the_model_says_what_the_user_does_not() -> None:
    wanted = Preparation().for_model(Model())
    assert make_plan([(40, 60)], False, wanted, "x") == CentreCrop((24, 20), 0.7, 1, "bilinear")
    assert make_plan([(24, 20)], False, wanted, "x") == CentreCrop((24, 20), 0.7, 1, "bilinear")
    own = Preparation((16, 16), 1.0, channels=3).for_model(Model())
    assert make_plan([(40, 60)], True, own, "x") == CentreCrop(
        (16, 16), 1.0, 3, "bilinear", every=True
    )
    assert Preparation().for_model(Model(None)) == Preparation().for_model(None) == Preparation()


def test_arrays_are_brought_to_size_like_files(tmp_path: Path) -> None:
    write_classes(tmp_path / "set", "cat", "dog")
    folder = load_data(f"folder:{tmp_path / 'set'}")
    np.savez(tmp_path / "set.npz", images=folder.plain, labels=folder.labels)
    for wanted in (Preparation((24, 24)), Preparation((24, 32), 1.0, channels=1), Preparation()):
        files = load_data(f"folder:{tmp_path / 'set'}", wanted)
        arrays = load_data(f"npz:{tmp_path / 'set.npz'}", wanted)
        assert (files.plain == arrays.plain).all()
    grey = load_data("digits:train")
    colour = load_data("digits:train", Preparation(channels=3))
    assert (colour.plain == grey.plain).all()
    assert colour.images.shape[1] == 3


def test_a_thread_of_an_image_is_not_made_a_bomb(tmp_path: Path) -> None:
    write_classes(tmp_path / "set", "cat", "dog")
    Image.new("L", (70_000, 8)).save(tmp_path / "set" / "cat" / "thread.png")
    with pytest.raises(RelookError, match=r"thread.png: it is too long and thin: 8×70000"):
        load_data(f"folder:{tmp_path / 'set'}", Preparation((224, 224)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (4, 20)}, "from 8 to 8192 pixels, got 4"),
        ({"size": (20, 90_000)}, "got 90000"),
        ({"crop": 0.0}, "crop share from 0.05 to 1, got 0.0"),
        ({"crop": 1.5}, "got 1.5"),
        ({"crop": float("nan")}, "got nan"),
        ({"channels": 4}, "1 or 3 channels, got 4"),
        ({"interpolation": "bicubik"}, "did you mean 'bicubic'"),
    ],
)
def test_a_preparation_that_makes_no_sense_is_refused(
    options: dict[str, object], message: str
) -> None:
    refused(message, Preparation, **options)


def test_pillow_agrees_on_what_upright_is(tmp_path: Path) -> None:
    content = with_orientation(photo(), 7)
    (tmp_path / "x.jpg").write_bytes(content)
    with Image.open(tmp_path / "x.jpg") as image:
        want = levels(ImageOps.exif_transpose(image))
    np.testing.assert_array_equal(read(tmp_path, content, "y.jpg"), want)
