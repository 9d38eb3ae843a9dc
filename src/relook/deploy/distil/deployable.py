"""How a distilled network is named, so that every command can load it."""

from __future__ import annotations

from pathlib import Path

from relook.deploy.distil.distil import WEIGHTS
from relook.io.files import write_bytes_atomic

_WITH_FILE = ("timm", "torch", "cifar", "small")
_HF = "hf"


def new_spec(spec: str, out: Path) -> str | None:
    """Return the spec of a network with the weights in `out`; None where it can have none.

    A network of Hugging Face gets a directory of its own there, with the files of the original's.
    """
    prefix, _, rest = spec.partition(":")
    named = spec.partition("@")[0]
    if named.partition(":")[0] in _WITH_FILE:
        return f"{named}@{out / WEIGHTS}"
    source = Path(rest).expanduser()
    if prefix != _HF or not source.is_dir():
        return None
    target = out / _HF
    target.mkdir(exist_ok=True)
    for file in sorted(source.glob("*.json")):
        if not file.name.endswith(".index.json"):
            write_bytes_atomic(target / file.name, file.read_bytes())
    write_bytes_atomic(target / "model.safetensors", (out / WEIGHTS).read_bytes())
    return f"{_HF}:{target}"
