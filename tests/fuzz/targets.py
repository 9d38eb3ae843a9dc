"""What relook reads from outside: for each kind of file a reader, and sound ones to start from."""

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save
from tests.unit.report.example_run import example_comparison

from relook.data import Preparation
from relook.data.adapt import read_groups
from relook.data.arrays import load_npz
from relook.data.base import Dataset, read_classes
from relook.data.decode import FORMATS, Unreadable, decode_image, read_heads, report_faults
from relook.data.folder import load_csv
from relook.deploy.early_exit.rule import EarlyExit
from relook.errors import RelookError
from relook.evaluation.comparison import Fitted, load_comparison
from relook.io.files import json_text
from relook.io.safe_pickle import load_pickle
from relook.models.small import load_small, new_small, save_small
from relook.models.weights import read_weights
from relook.numerics.conformal import SetRule
from relook.policy import Policy
from relook.policy.file import load_policy, policy_to_json
from relook.policy.pool import sample_pool
from relook.policy.recipes import load_recipe
from relook.policy.reference import load_reference
from relook.policy_search.run_record import load_run
from relook.predictions.external import load_labels, open_predictions
from relook.predictions.store import BatchPlan, PredictionStore
from relook.studies.reproduce.file import load_study
from relook.transforms.centre_crop import CentreCrop

MANIFEST = {"what": "a test"}
PLAN = BatchPlan(views=2, images=3, classes=4, batch=3, group=2)


@dataclass(frozen=True)
class Target:
    """One kind of file: the end of its name, how it is read, and sound ones."""

    suffix: str
    read: Callable[[Path], object]
    seeds: Callable[[], list[bytes]]

    def try_bytes(self, data: bytes, folder: Path) -> RelookError | None:
        """Read bytes as a file; whatever but a RelookError comes out is a fault of relook's."""
        path = folder / f"input{self.suffix}"
        path.write_bytes(data)
        try:
            self.read(path)
        except RelookError as error:
            check_message(str(error))
            return error
        return None


def check_message(message: str) -> None:
    """A message is one line and safe to print; names in it may be long, but not without end."""
    assert message
    assert len(message) < 20_000, message[:200]
    strange = [c for c in message if not c.isprintable()]
    assert not strange, repr(message)[:300]


def _policies() -> list[bytes]:
    texts = []
    for recipe, draws in (("small", "fixed"), ("cifar", "fresh"), ("imagenet", "fixed")):
        pool = sample_pool(recipe, 4, 0, draws=draws)  # type: ignore[arg-type]
        policy = Policy(pool[:3], temperatures=(1.0, 1.5, 2.0), recipe=recipe, seed=1)
        texts.append(json_text(policy_to_json(policy)).encode())
    learned = replace(
        policy,
        view_temperature=4.0,
        preparation=CentreCrop((32, 32), 0.875, 3),
        seen=bytes(range(12)),
        sets=SetRule("raps", 0.9, (0.5,), 2.0, penalty=0.01, free=5),
    )
    return [*texts, json_text(policy_to_json(learned)).encode()]


def _comparisons() -> list[bytes]:
    found = example_comparison()
    rows = (replace(found.rows[0], fitted=Fitted(2.0, 1.5)), found.rows[-1])
    bins = {name: some[:1] for name, some in found.reliability.items()}
    few = replace(found, policy=found.policy[:2], rows=rows, reliability=bins)
    return [json_text(few.to_json()).encode()]


def _reference() -> list[bytes]:
    entries = np.empty(3, dtype=object)
    entries[:] = [None, [(1, -3.5), (4, 2.0)], [(14, 7.0)]]
    lists, numbers = io.BytesIO(), io.BytesIO()
    np.savez(lists, arr_0=entries)
    np.savez_compressed(numbers, arr_0=np.ones((3, 2, 2)))
    texts = np.array(["[(15,-7.72),(0,8.7)]", "None"])
    return [lists.getvalue(), numbers.getvalue(), _saved(texts)]


def _npz() -> list[bytes]:
    images = np.zeros((3, 8, 8), dtype=np.uint8)
    plain, packed = io.BytesIO(), io.BytesIO()
    np.savez(plain, images=images, labels=np.arange(3), patient=np.arange(3))
    np.savez_compressed(
        packed, images=images, labels=np.arange(3), classes=np.array(["a", "b", "c"])
    )
    return [plain.getvalue(), packed.getvalue()]


def _saved(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _npy() -> list[bytes]:
    images, predictions = np.zeros((3, 8, 8), np.uint8), np.zeros((2, 3, 4), np.float32)
    return [_saved(images), _saved(predictions), _saved(np.arange(3))]


def _zipped(name: str, others: dict[str, bytes]) -> Callable[[bytes], bytes]:
    """Return what puts bytes into an archive with sound checksums, beside other members."""

    def zipped(data: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for other, content in {name: data, **others}.items():
                archive.writestr(other, content)
        return file.getvalue()

    return zipped


@cache
def _torch_members() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(_torch()[0])) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@cache
def _torch() -> list[bytes]:
    weights = {"conv.weight": torch.zeros(2, 1, 3, 3), "conv.bias": torch.ones(2)}
    files = [io.BytesIO() for _ in range(3)]
    torch.save(weights, files[0])
    torch.save({"state_dict": weights, "epoch": 3, "args": [1.5, "x", None]}, files[1])
    torch.save(weights, files[2], _use_new_zipfile_serialization=False)
    return [file.getvalue() for file in files]


def _small() -> list[bytes]:
    with TemporaryDirectory() as folder:
        save_small(new_small(width=1, classes=2), Path(folder) / "small")
        small = (Path(folder) / "small").read_bytes()
    return [small, save({"a": torch.zeros(2, 3), "b": torch.ones(1)})]


def _pictures() -> list[bytes]:
    levels = np.arange(12 * 10 * 3, dtype=np.uint8).reshape(12, 10, 3)
    picture, found, exif = Image.fromarray(levels), [], Image.Exif()
    exif[0x0112] = 6
    Image.init()
    for kind in FORMATS:
        if kind in Image.SAVE:
            file = io.BytesIO()
            turned = {"exif": exif.tobytes()} if kind in ("JPEG", "PNG", "WEBP") else {}
            picture.save(file, kind, **turned)
            found.append(file.getvalue())
    grey = io.BytesIO()
    picture.convert("P").save(grey, "PNG", transparency=3)
    return [*found, grey.getvalue()]


def _csv() -> list[bytes]:
    return [
        b"path,label,patient\na.png,cat,1\nb.png,dog,2\n",
        '\ufeffpath,label\n"a, b.png",0\n../c.png,1\n'.encode(),
    ]


def _toml() -> list[bytes]:
    whole = (
        'name = "mine"\ntransforms = ["rotate", "cutout", "flip"]\nimage_size = 32\n'
        "groups = [{count = 20, length = 2, magnitude = [0, 15]}]\n"
        'finish = {transform = "crop_flip", magnitude = 4}\n'
    )
    return [whole.encode(), b'base = "cifar"\nexclude = ["cutout"]\n']


def _pickles() -> list[bytes]:
    batch = {b"data": np.zeros((2, 3072), np.uint8)[:, :8], b"labels": [1, 2], "names": ["a", "b"]}
    return [pickle.dumps(batch, protocol) for protocol in (2, 4, 5)]


def _zarr2_json() -> list[bytes]:
    v2 = {"zarr_format": 2, "shape": [2, 3, 4], "chunks": [2, 3, 4], "dtype": "<f4", "order": "C"}
    packed: dict[str, Any] = {"compressor": {"id": "zlib", "level": 1}, "filters": None}
    labels = {**v2, "shape": [3], "chunks": [3], "dtype": "<i8"}
    return [json.dumps({**one, **packed, "fill_value": 0}).encode() for one in (v2, labels)]


def _in_store(name: str) -> Target:
    """Return one of the files that describe a store, read with the others sound."""

    def read(path: Path) -> object:
        folder = path.parent / "store"
        if not folder.exists():
            store = PredictionStore.open(folder, MANIFEST, PLAN)
            block = next(PLAN.blocks())
            store.write(block, np.zeros((*block.shape, 4), np.float32))
        (folder / name).write_bytes(path.read_bytes())
        return PredictionStore.open(folder, MANIFEST, PLAN).read()

    def seeds() -> list[bytes]:
        with TemporaryDirectory() as folder:
            PredictionStore.open(folder, MANIFEST, PLAN)
            return [(Path(folder) / name).read_bytes()]

    return Target(f".{name}", read, seeds)


def _read_foreign(name: str) -> Callable[[Path], object]:
    """Return what reads bytes as the metadata of somebody else's array, for either use."""

    def read(path: Path) -> object:
        folder = path.parent / "foreign"
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(path.read_bytes())
        (folder / "0.0.0").write_bytes(b"x" * 40)
        try:
            return open_predictions(folder, "log_probs").load()
        except RelookError as error:
            check_message(str(error))
        return load_labels(folder)

    return read


def _read_picture(path: Path) -> object:
    heads, faults = read_heads([path], Preparation())
    report_faults(faults, [path], Preparation(), "a picture")
    found = decode_image(path, lambda image: np.asarray(image.convert("RGB")).sum())
    report_faults(
        {0: found.reason} if isinstance(found, Unreadable) else {}, [path], Preparation(), "it"
    )
    return heads


def _read_csv(path: Path) -> None:
    folder = path.parent
    picture = folder / "a.png"
    if not picture.exists():
        for name in ("a.png", "b.png"):
            Image.new("L", (8, 8)).save(folder / name)
    load_csv(str(path), Preparation(skip_bad=True, log=check_message))


def _read_groups(path: Path) -> None:
    images = torch.zeros((2, 1, 8, 8), dtype=torch.uint8)
    read_groups(str(path), Dataset(images, np.array([0, 1]), ("a", "b"), "two"))


def _read_run(path: Path) -> object:
    folder = path.parent / "run"
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_bytes(path.read_bytes())
    return load_run(folder)


def _runs() -> list[bytes]:
    record: dict[str, Any] = {"format": "relook-run", "version": 1, "origin": {"model": "small@x"}}
    record |= {"settings": {"seed": 0}, "data": {"name": "digits"}, "split": {"search": 3}}
    return [json.dumps(record, indent=2).encode()]


def _exits() -> list[bytes]:
    rule = EarlyExit((0.9, 1.0), (1.0, 1.1, 1.2), "accuracy", "abc", 100, 1.5)
    return [json_text(rule.to_json()).encode()]


def _studies() -> list[bytes]:
    folder = Path(__file__).parents[2] / "studies"
    return [path.read_bytes() for path in sorted(folder.glob("*.toml"))]


def _wrapped(
    target: Target, wrap: Callable[[bytes], bytes], seeds: Callable[[], list[bytes]]
) -> Target:
    def read(path: Path) -> object:
        path.write_bytes(wrap(path.read_bytes()))
        return target.read(path)

    return Target(target.suffix, read, seeds)


_NPZ = Target(".npz", lambda path: load_npz(str(path)), _npz)
_TORCH = Target(".pt", read_weights, _torch)


def _torch_pickle(data: bytes) -> bytes:
    members = dict(_torch_members())
    name = next(name for name in members if name.endswith("data.pkl"))
    members.pop(name)
    return _zipped(name, members)(data)


def _npz_member(data: bytes) -> bytes:
    return _zipped("images.npy", {"labels.npy": _npy()[2]})(data)


TARGETS = MappingProxyType(
    {
        "policy": Target(".json", load_policy, _policies),
        "reference": Target(".npz", load_reference, _reference),
        "npz": _NPZ,
        "npz_member": _wrapped(_NPZ, _npz_member, _npy),
        "npy": Target(".npy", lambda path: open_predictions(path, "probabilities").load(), _npy),
        "safetensors": Target(".safetensors", read_weights, _small),
        "small": Target(".safetensors", load_small, _small),
        "torch": _TORCH,
        "torch_pickle": _wrapped(
            _TORCH,
            _torch_pickle,
            lambda: [data for name, data in _torch_members().items() if name.endswith("data.pkl")],
        ),
        "image": Target(".img", _read_picture, _pictures),
        "csv": Target(".csv", _read_csv, _csv),
        "toml": Target(".toml", load_recipe, _toml),
        "study": Target(".toml", load_study, _studies),
        "pickle": Target(".pkl", lambda path: load_pickle(path.read_bytes(), "a file"), _pickles),
        "zarr": _in_store("zarr.json"),
        "zarr_manifest": _in_store("manifest.json"),
        "zarr3_foreign": Target(".json", _read_foreign("zarr.json"), _in_store("zarr.json").seeds),
        "zarr2_foreign": Target(".json", _read_foreign(".zarray"), _zarr2_json),
        "classes": Target(
            ".json", lambda path: read_classes(path, 4), lambda: [b'{"cat": 0, "dog": 1}']
        ),
        "class_lines": Target(".txt", read_classes, lambda: [b"cat\ndog\n", b"a\r\nb\r\nc"]),
        "labels": Target(".txt", load_labels, lambda: [b"0\n1\n2\n"]),
        "groups": Target(".csv", _read_groups, lambda: [b"1\n2\n", b"id\n"]),
        "run": Target(".json", _read_run, _runs),
        "comparison": Target(".json", load_comparison, _comparisons),
        "early_exit": Target(".json", EarlyExit.load, _exits),
    }
)
"""Every kind of file that relook reads, by name."""
