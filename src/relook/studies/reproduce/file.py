"""Study files: TOML, parsed strictly, with overrides from the command line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from relook.errors import FileFormatError, RelookError, unknown_name
from relook.evaluation.baselines import check_methods
from relook.io.files import one_line, read_toml
from relook.io.records import convert
from relook.models.base import check_outputs
from relook.numerics.splits import parse_split
from relook.policy import DrawKind
from relook.policy_search.settings import STRATEGIES
from relook.selection.objectives import OBJECTIVES
from relook.studies.corruptions import check_corruptions, check_severities
from relook.studies.reproduce.settings import PARTS, StudyData, StudyFile, StudyModel
from relook.studies.training.networks import get_network
from relook.studies.training.train import AUGMENTS


def load_study(
    path: str | Path, *, settings: Iterable[str] = (), data: Iterable[str] = ()
) -> StudyFile:
    """Read a study from a TOML file.

    `settings` are `KEY=VALUE`, such as `compare.runs=1`, and override those of the file.
    `data` are `NAME=PATH`: short for `data.NAME.path=PATH`, relative to the working directory.
    """
    path = Path(path)
    where = one_line(str(path))
    content = read_toml(path, what="a study")
    for text in settings:
        _set(content, text)
    for text in data:
        name, folder = _pair(text, "--data", "NAME=PATH")
        _set_path(content, name, folder, where)
    absent = {"name": path.stem, "data": None, "models": None}
    study = convert({**absent, **content}, StudyFile, where)
    base = path.resolve().parent
    if study.recipe.endswith(".toml"):
        study = replace(study, recipe=str(base / study.recipe))
    try:
        check_study(study)
        study = _with_paths(study, base)
    except RelookError as error:
        raise FileFormatError(f"{where}: {error}") from None
    return study


def _with_paths(study: StudyFile, base: Path) -> StudyFile:
    """Fill in `{path}`, and make paths absolute, which are relative to the file."""

    def completed(
        absolute: Callable[[Path, str], str], text: str | None, owners: Iterable[StudyData]
    ) -> str | None:
        for one in owners:
            text = text and text.replace("{path}", one.path or "")
        return text and absolute(base, text)

    data = {
        name: replace(
            one,
            test=completed(_data_spec, one.test, [one]) or "",
            train=completed(_data_spec, one.train, [one]),
            corrupted=completed(_absolute, one.corrupted, [one]),
        )
        for name, one in study.data.items()
    }
    models = {
        name: replace(one, spec=completed(_model_spec, one.spec, study.data.values()))
        for name, one in study.models.items()
    }
    return replace(study, data=data, models=models)


def _data_spec(base: Path, spec: str) -> str:
    prefix, colon, rest = spec.partition(":")
    folder, mark, options = rest.partition("?")
    if not folder or prefix == "digits":
        return spec
    return f"{prefix}{colon}{_absolute(base, folder)}{mark}{options}"


def _model_spec(base: Path, spec: str) -> str:
    head, at, file = spec.rpartition("@")
    if at:
        return f"{head}@{_absolute(base, file)}"
    prefix, _, file = spec.partition(":")
    return f"{prefix}:{_absolute(base, file)}" if prefix in ("onnx", "hf") else spec


def _absolute(base: Path, text: str) -> str:
    try:
        path = Path(text).expanduser()
        return str(path if path.is_absolute() else (base / path).resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise RelookError(f"expected a path, got {text!r}: {error}") from None


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals or not value.strip():
        raise RelookError(f"{option}: expected {form}, got {text!r}")
    return key.strip(), value.strip()


def _keys(text: str) -> list[str]:
    """Split a key such as `data."CIFAR 10".path`, with TOML's parser."""
    try:
        table: Any = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        raise RelookError(f"--set: expected a key such as compare.runs, got {text!r}") from None
    keys = []
    while isinstance(table, dict):
        (key,) = table
        keys.append(key)
        table = table[key]
    return keys


def _set(content: dict[str, Any], text: str) -> None:
    """Set the value of `compare.runs=1`; a value that is not valid TOML is taken as text."""
    key, value = _pair(text, "--set", "KEY=VALUE, such as compare.runs=1")
    table, keys = content, _keys(key)
    for name in keys[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise RelookError(f"--set {'.'.join(keys)}: {name} is not a table")
    try:
        table[keys[-1]] = tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        table[keys[-1]] = value


def _set_path(content: dict[str, Any], name: str, folder: str, where: str) -> None:
    known = content.get("data")
    if not isinstance(known, dict) or not isinstance(known.get(name), dict):
        raise RelookError(f"--data: {unknown_name(f'data set of {where}', name, known or ())}")
    known[name]["path"] = str(Path(folder).expanduser().resolve())


_SPEC_KEYS = ("outputs", "mean", "std", "pretrained", "size")
_MANY = 10**9  # images, if the file does not give their number


def check_study(study: StudyFile) -> None:
    """Raise the errors that can be found before anything is run; messages name the key."""
    _check_known("parts", "part", study.parts, PARTS)
    if not study.parts:
        raise RelookError("parts: expected at least one part, got none")
    for name, data in study.data.items():
        _check_data(study, f"data.{name}", data)
    for name, model in study.models.items():
        _check_model(study, f"models.{name}", model)
    if not study.searched:
        where = f"models.{next(iter(study.models))}.searched"
        raise RelookError(f"{where}: expected a model to search a policy for, got none")
    for key, names in (("data", study.data), ("models", study.models)):
        _check_names(key, list(names))
    _check_parts(study)
    with _error_in("recipe"):
        _ = study.views


def slug(text: str) -> str:
    """Return a name in the form for file names: `EfficientNet B2` becomes `efficientnet-b2`."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")


def _check_data(study: StudyFile, where: str, data: StudyData) -> None:
    for key in ("test", "train", "corrupted"):
        if data.path is None and "{path}" in (getattr(data, key) or ""):
            raise RelookError(f"{where}.{key}: {{path}} stands for {where}.path, which is missing")
    if len(study.given) < len(study.models) and data.train is None:
        raise RelookError(f"expected the key {where}.train to train networks on, got none")
    if data.validation is None:
        with _error_in(f"{where}.split"):
            parse_split(data.split, data.test_images or _MANY)
    elif study.given:
        raise RelookError(
            f"{where}.validation: expected networks to train without these images, but "
            f"models.{study.given[0]} is already trained: give a split instead"
        )


def _check_model(study: StudyFile, where: str, model: StudyModel) -> None:
    if (model.network is None) == (model.spec is None):
        got = "neither" if model.spec is None else "both"
        raise RelookError(f"{where}: expected either network or spec, got {got}")
    if model.outputs is not None:
        with _error_in(f"{where}.outputs"):
            check_outputs(model.outputs)
    if model.network is not None:
        with _error_in(f"{where}.network"):
            get_network(model.network)
        for key in _SPEC_KEYS:
            if getattr(model, key) not in (None, False):
                raise RelookError(f"{where}.{key}: expected only with a model given by spec")
    elif model.members > 1 or model.weight_decay is not None:
        raise RelookError(f"{where}: members and weight_decay are for networks to train")
    paths = [one.path for one in study.data.values()]
    if "{path}" in (model.spec or "") and (len(paths) > 1 or None in paths):
        raise RelookError(f"{where}.spec: {{path}} stands for the path of the study's one data set")


def _check_names(key: str, names: list[str]) -> None:
    slugs = [slug(name) for name in names]
    for name, in_files in zip(names, slugs, strict=True):
        if not in_files or not name.isprintable() or slugs.count(in_files) > 1:
            raise RelookError(
                f"{key}: expected names that differ in letters or digits, got {name!r}"
            )


def _check_parts(study: StudyFile) -> None:
    _check_known("train.augments", "augmentation", study.train.augments, AUGMENTS)
    if len(set(study.train.augments)) != len(study.train.augments) or not study.train.augments:
        raise RelookError("train.augments: expected each augmentation once, and at least one")
    _check_known("search.strategy", "strategy", (study.search.strategy,), STRATEGIES)
    _check_known("search.draws", "kind of draws", (study.search.draws,), get_args(DrawKind))
    _check_known("search.objective", "objective", (study.search.objective,), OBJECTIVES)
    _check_known("objectives.objectives", "objective", study.objectives.objectives, OBJECTIVES)
    for part in ("compare", "robustness", "transfer"):
        with _error_in(f"{part}.methods"):
            check_methods(getattr(study, part).methods)
    with _error_in("robustness.corruptions"):
        check_corruptions(study.robustness.corruptions)
    with _error_in("robustness.severities"):
        check_severities(study.robustness.severities)
    for part in ("robustness", "objectives"):
        models = getattr(study, part).models
        _check_known(f"{part}.models", "model with a search", models, study.searched)
    for budget in study.compare.table:
        if budget not in study.compare.budgets:
            raise RelookError(f"compare.table: {budget} is not among compare.budgets")
    together = study.ensembles.models
    _check_known("ensembles.models", "model that is given by its spec", together, study.given)
    if len(set(together)) != len(together) or len(together) == 1:
        raise RelookError("ensembles.models: expected two or more models, each once")
    several = together or any(one.members > 1 for one in study.models.values())
    for part in ("ensembles", "objectives"):
        if study.search.cross_fit and part in study.parts and (several or part != "ensembles"):
            raise RelookError(
                f"search.cross_fit: a cross-fit holds out no images, which the part {part} scores "
                "on: leave out one of them"
            )
    if study.search.race and several and "ensembles" in study.parts:
        raise RelookError(
            "search.race: a race drops different candidates for each member of an ensemble: leave "
            "out the race or the part ensembles"
        )


def _check_known(where: str, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise RelookError(f"{where}: {unknown_name(kind, name, known)}")


@contextmanager
def _error_in(key: str) -> Iterator[None]:
    """Prefix errors within the block by the key."""
    try:
        yield
    except RelookError as error:
        raise RelookError(f"{key}: {error}") from None
