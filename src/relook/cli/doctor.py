"""`relook doctor`: what is installed here, what works, and how to repair the rest.

torch and the packages that need it are imported only once they are known to work.
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import typer
from packaging.requirements import Requirement

import relook
from relook.cli.shared.console import print_json, print_text, say
from relook.cli.shared.option_groups import expand_options, option
from relook.errors import RelookError, install_command
from relook.foundation import torchvision_import
from relook.foundation.wording import first_line
from relook.io.files import for_terminal

BROKEN = 1
"""The exit code if something that is installed does not work."""

WORKS = "works"
ABSENT = "not installed"

_MODULES = {"pillow": "PIL", "scikit-learn": "sklearn"}
"""The modules of packages, if they are named differently."""

_TORCHVISION = (
    "torchvision was built for another torch: without relook, `import timm` fails (operator "
    "torchvision::nms does not exist). After `import relook` it works; or run  pip install "
    "--force-reinstall --no-deps torchvision --index-url https://download.pytorch.org/whl/{build}"
)


@expand_options
def doctor_command(
    *, as_json: bool = option("Print the result as JSON instead of lines.", "--json", default=False)
) -> None:
    """Check what is installed and what works here, and how to install the rest."""
    say("checking what is installed …")
    found = examine()
    if as_json:
        print_json(found)
    else:
        for line in _lines(found):
            print_text(for_terminal(line))
    if found["broken"]:
        raise typer.Exit(BROKEN)


def examine() -> dict[str, Any]:
    """Return what `relook doctor` prints, as JSON-able data."""
    try:
        required = requirements(metadata.requires("relook") or [])
    except metadata.PackageNotFoundError:
        raise RelookError(
            "relook itself is not installed: run  pip install .  in its clone"
        ) from None
    versions, broken = try_packages([one for part in required.values() for one in part])
    usable = not any(one.name in broken or versions[one.name] is None for one in required[""])
    here = _machine() if usable else {"machine": {}, "devices": {}, "engines": {}, "caches": []}
    broken |= {
        f"{kind.removesuffix('s')} {name}": text
        for kind in ("devices", "engines")
        for name, text in here[kind].items()
        if text not in (WORKS, ABSENT)
    }
    absent = {
        extra for extra, part in required.items() for one in part if versions[one.name] is None
    }
    missing = [extra for extra in required if extra and extra in absent]
    own = {"relook": relook.__version__, "python": platform.python_version()}
    return {
        "versions": own | dict(sorted(versions.items())),
        **here,
        "broken": broken,
        "notes": _notes(),
        "missing": missing,
        "install": install_command(*missing) if missing else None,
    }


def requirements(lines: Iterable[str]) -> dict[str, list[Requirement]]:
    """Return relook's requirements, under "", and those that each extra for users adds.

    An extra is for users if the extra `all` includes it; the others are for developers.
    """
    found: dict[str, list[Requirement]] = {"": []}
    for one in map(Requirement, lines):
        _, _, extra = str(one.marker or "").partition("extra == ")
        found.setdefault(extra.strip("\"'"), []).append(one)
    everything = {one.name for one in found.pop("all", [])}
    return {
        extra: part
        for extra, part in found.items()
        if not extra or everything.issuperset(one.name for one in part)
    }


def try_packages(required: Sequence[Requirement]) -> tuple[dict[str, str | None], dict[str, str]]:
    """Import each installed package; return versions, and the faults of broken packages by name.

    torchvision, which timm depends on, is tried too.
    """
    versions: dict[str, str | None] = {}
    broken = {}
    for one in (*required, Requirement("torchvision")):
        try:
            versions[one.name] = version = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            versions[one.name] = None
            continue
        if not one.specifier.contains(version, prereleases=True):
            broken[one.name] = (
                f"expected {one.specifier}, got {version}: pip install '{one.name}{one.specifier}'"
            )
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import_module(_MODULES.get(one.name, one.name.replace("-", "_")))
        except Exception as error:  # a package that is broken may raise anything
            repair = f"pip install --force-reinstall {one.name}"
            broken[one.name] = f"{type(error).__name__}: {first_line(error)}: {repair}"
    return versions, broken


def _machine() -> dict[str, Any]:
    import torch
    from llvmlite import binding

    from relook.foundation.memory import available_memory
    from relook.foundation.threads import available_cores
    from relook.models.accelerate import ENGINES

    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    gpus += ["mps"] if torch.backends.mps.is_available() else []
    return {
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": binding.get_host_cpu_name(),
            "vectors": torch.backends.cpu.get_cpu_capability(),
            "cores": available_cores(),
            "free_memory": available_memory(),
        },
        "devices": {name: try_engine("torch", name) for name in ("cpu", *gpus)},
        "engines": {name: try_engine(name) for name in ENGINES},
        "caches": [
            {"what": what, "path": str(path), "bytes": sum(one.stat().st_size for one in files)}
            for what, (path, files) in _caches().items()
        ],
    }


def try_engine(name: str, device: str = "cpu") -> str:
    """Run a tiny network on an engine and compare it with torch; return WORKS or the error."""
    import torch

    from relook.models import TorchPredictor, onnx_runtime
    from relook.models.accelerate import accelerate
    from relook.models.small import new_small

    if name == "onnx" and not onnx_runtime.is_installed():
        return ABSENT
    images = torch.arange(4 * 3 * 32 * 32).reshape(4, 3, 32, 32).to(torch.uint8)
    try:
        predictor = TorchPredictor(new_small(3), device=device)
        accelerate(predictor, images, mode=name).predictor(images)
    except Exception as error:  # drivers and compiled libraries fail in many ways
        return first_line(error)
    return WORKS


def _caches() -> Mapping[str, tuple[Path, list[Path]]]:
    """Return the directories of compiled code and downloads, and the files in each."""
    import torch

    package = Path(relook.__file__).parent
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    places = {
        "compiled by numba": (Path(os.environ.get("NUMBA_CACHE_DIR", package)), "*.nb[ci]"),
        "torch's downloads": (Path(torch.hub.get_dir()), "*"),
        "Hugging Face's downloads": (Path(os.environ.get("HF_HUB_CACHE", home / "hub")), "*"),
    }
    return {
        what: (path, [one for one in path.rglob(pattern) if one.is_file() and not one.is_symlink()])
        for what, (path, pattern) in places.items()
    }


def _notes() -> list[str]:
    if not torchvision_import.declared:
        return []
    import torch

    build = f"cu{torch.version.cuda.replace('.', '')}" if torch.version.cuda else "cpu"
    return [_TORCHVISION.format(build=build)]


def _lines(found: Mapping[str, Any]) -> list[str]:
    from relook.foundation.memory import size_text
    from relook.foundation.wording import count

    installed = (f"{name} {version}" for name, version in found["versions"].items() if version)
    lines = [" · ".join(installed)]
    if found["machine"]:
        about = found["machine"]
        lines.append(
            f"machine: {about['system']}, {about['processor']} with {about['vectors']}, "
            f"{count(about['cores'], 'core')}, {size_text(about['free_memory'])} of memory free"
        )
    for kind in ("devices", "engines"):
        lines.append(f"{kind}: " + ", ".join(f"{n} {text}" for n, text in found[kind].items()))
    lines += [
        f"{one['what']}: {size_text(one['bytes'])} in {one['path']}"
        for one in found["caches"]
        if one["bytes"]
    ]
    lines += [f"note: {text}" for text in found["notes"]]
    lines += [f"broken: {name}: {text}" for name, text in found["broken"].items()]
    if found["install"]:
        lines.append(f"not installed: {', '.join(found['missing'])}; to add:  {found['install']}")
    if found["broken"]:
        return [*lines, "something that is installed does not work"]
    return [*lines, "relook works here; see the notes above" if found["notes"] else "all is well"]
