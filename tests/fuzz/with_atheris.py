"""Fuzz one target with atheris: with_atheris.py TARGET FOLDER CORPUS [libFuzzer's options]."""

import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

with atheris.instrument_imports(include=["relook"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Read what atheris makes until it stops; a fault ends with its traceback."""
    name, folder, *options = sys.argv[1:]
    target, scratch = TARGETS[name], Path(folder)

    def read(data: bytes) -> None:
        target.try_bytes(data, scratch)

    atheris.Setup([sys.argv[0], *options], read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
