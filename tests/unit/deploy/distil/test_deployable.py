"""The names of distilled networks: what every command can load."""

from pathlib import Path

import pytest

from relook.deploy.distil.distil import new_spec


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("timm:resnet18@old.safetensors", "timm:resnet18@out/weights.safetensors"),
        ("timm:resnet18", "timm:resnet18@out/weights.safetensors"),
        ("torch:mine.nets:make", "torch:mine.nets:make@out/weights.safetensors"),
        ("cifar:resnet20@a@b.th", "cifar:resnet20@out/weights.safetensors"),
        ("small@old.safetensors", "small@out/weights.safetensors"),
        ("hf:some/name-of-the-hub", None),
        ("onnx:old.onnx", None),
    ],
)
def test_a_spec_gets_the_new_weights(old: str, new: str | None) -> None:
    assert new_spec(old, Path("out")) == new


def test_a_directory_of_hugging_face_gets_its_files(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    (source / "config.json").write_text("{}")
    (source / "model.safetensors.index.json").write_text("of other weights")
    (out / "weights.safetensors").write_bytes(b"new")
    assert new_spec(f"hf:{source}", out) == f"hf:{out / 'hf'}"
    names = sorted(path.name for path in (out / "hf").iterdir())
    assert names == ["config.json", "model.safetensors"]
    assert (out / "hf" / "model.safetensors").read_bytes() == b"new"
