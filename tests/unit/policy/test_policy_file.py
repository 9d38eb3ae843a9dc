import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.edits import edited, random_edits
from tests.support import refused
from tests.unit.policy.policy_cases import SMALL, STRANGE, VALIDATOR, changed, is_read, with_step

from relook import TRANSFORMS, Policy, RelookError, Step, SubPolicy
from relook.errors import FileFormatError
from relook.numerics.conformal import SetRule
from relook.policy import file as policy_file
from relook.policy.file import load_policy, policy_from_json, policy_to_json, save_policy
from relook.transforms.centre_crop import INTERPOLATIONS, CentreCrop

_SHARE = st.floats(0, 1)
_DRAW = {"sign": st.sampled_from([-1, 1]), "edge": st.integers(0, 1), "flip": st.booleans()}


@st.composite
def steps(draw: st.DrawFn) -> Step:
    row = draw(st.sampled_from(list(TRANSFORMS.values())))
    draws = st.fixed_dictionaries({name: _DRAW.get(name, _SHARE) for name in row.draws})
    return Step(
        row.name,
        draw(st.floats(0, allow_infinity=False)),
        draw(st.sampled_from([-1, 1])) if row.signed else None,
        draw(st.none() | draws),
    )


preparations = st.builds(
    CentreCrop,
    st.tuples(st.integers(1, 100_000), st.integers(1, 100_000)),
    st.floats(0, 1, exclude_min=True),
    st.sampled_from([1, 3]),
    st.sampled_from(list(INTERPOLATIONS)),
    st.booleans(),
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    finish = st.none() | steps()
    pool = draw(st.lists(st.builds(SubPolicy, st.lists(steps(), max_size=4), finish), max_size=4))
    subs = draw(st.lists(st.sampled_from(pool), max_size=8)) if pool else []
    positive = st.floats(1e-3, 1e3)
    temperatures = st.lists(positive, min_size=len(subs), max_size=len(subs))
    names = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=200)
    return Policy(
        tuple(subs),
        draw(st.none() | temperatures),  # type: ignore[arg-type]
        draw(st.none() | names),
        draw(st.integers(0, 2**64 - 1)),
        view_temperature=draw(st.just(1.0) | positive),
        preparation=draw(st.none() | preparations),
    )


def exactly(policy: Policy) -> str:
    """Return every bit of a policy; floats by repr, so −0.0 and 0.0 differ."""
    return repr(policy)


@given(policy=policies())
def test_a_policy_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, policy: Policy
) -> None:
    path = tmp_path_factory.mktemp("policy") / "policy.json"
    policy.save(path)
    loaded = Policy.load(path)
    assert exactly(loaded) == exactly(policy)
    assert loaded == policy
    VALIDATOR.validate(json.loads(path.read_text(encoding="utf-8")))


def test_the_format_is_what_the_docs_say() -> None:
    policy = Policy(
        (
            SubPolicy((Step("rotate", 13.2, draws={"sign": -1}), Step("color", 7.1))),
            SubPolicy((), Step("crop_flip", 4, draws={"x": 0.5, "y": 0, "flip": 1})),
        ),
        recipe="cifar",
        seed=3,
    )
    assert policy_to_json(policy) == {
        "format": "relook-policy",
        "version": 1,
        "recipe": "cifar",
        "seed": 3,
        "temperatures": None,
        "subpolicies": [
            {
                "steps": [
                    {"transform": "rotate", "magnitude": 13.2, "draws": {"sign": -1}},
                    {"transform": "color", "magnitude": 7.1, "direction": 1},
                ]
            },
            {
                "steps": [],
                "finish": {
                    "transform": "crop_flip",
                    "magnitude": 4.0,
                    "draws": {"x": 0.5, "y": 0.0, "flip": True},
                },
            },
        ],
    }


def test_a_learned_average_is_version_2_and_the_usual_one_stays_version_1() -> None:
    content = policy_to_json(replace(SMALL, view_temperature=4))
    assert content == {**policy_to_json(SMALL), "version": 2, "view_temperature": 4.0}
    assert "view_temperature" not in policy_to_json(SMALL)
    for version in (1, 2):
        assert policy_from_json(changed(version=version)) == SMALL


def test_prediction_sets_are_kept_and_belong_to_all_views_at_their_temperature() -> None:
    rule = SetRule("raps", 0.9, (0.1 + 0.2, 1.5), 7, penalty=0.01, free=5)
    policy = replace(SMALL, sets=rule)
    content = policy_to_json(policy)
    assert (content["version"], policy_from_json(content)) == (2, policy)
    assert policy[:4].sets == rule
    assert policy[:3].sets is None
    assert policy.freeze(0).sets is None
    assert replace(policy, temperatures=(1, 1, 1, 2)).sets is None
    other = {**content, "temperatures": [1, 1, 1, 2]}
    refused("policy: sets.temperature: expected the last of the", policy_from_json, other)


def test_a_short_file_is_enough() -> None:
    content = {
        "format": "relook-policy",
        "version": 1,
        "subpolicies": [{"steps": [{"transform": "color", "magnitude": 3}]}],
    }
    VALIDATOR.validate(content)
    assert policy_from_json(content) == Policy((SubPolicy((Step("color", 3, 1),)),))


_WRONG = [
    ([], 'expected a relook policy ("format": "relook-policy"), got a list of 0'),
    ({"a": 1}, 'expected a relook policy ("format": "relook-policy"), got null'),
    (changed(version="1"), 'version: expected the number 1 or 2, got "1"'),
    (changed(version=True), "version: expected the number 1 or 2, got true"),
    (
        changed(version=3, extra=1),
        "expected version 1 or 2, got version 3, written by a newer relook: "
        "upgrade relook to read it",
    ),
    (changed(sed=1), "unknown key 'sed': did you mean 'seed'?"),
    (changed(seed=-1), "seed: expected a whole number from 0 to 2^64 - 1, got -1"),
    (changed(seed=2**64), f"seed: expected a whole number from 0 to 2^64 - 1, got {2**64}"),
    (changed(seed=1.0), "seed: expected a whole number from 0 to 2^64 - 1, got 1.0"),
    (changed(recipe=3), "recipe: expected a name of at most 200 characters, or null, got 3"),
    (changed(recipe="\x1b"), 'recipe: expected a name without control characters, got "\\u001b"'),
    (changed(recipe="\ud800"), 'recipe: expected a name without control characters, got "\\ud800"'),
    (
        changed(temperatures=[1, 2]),
        "temperatures: expected 4 numbers, one for each sub-policy, got a list of 2",
    ),
    (
        changed(temperatures=[1, 2, 0, 3]),
        "temperatures[2]: expected a number from 0.001 to 1000, got 0",
    ),
    *(
        (
            changed(view_temperature=one),
            f"view_temperature: expected a number from 0.001 to 1000, got {said}",
        )
        for one, said in ((0, "0"), (1e-40, "1e-40"), (None, "null"))
    ),
]
_WRONG_STEPS = [
    ({}, ": expected a list of at most 10,000, got an object"),
    ([{"steps": []}] * 10_001, ": expected a list of at most 10,000, got a list of 10001"),
    ([{"steps": [None] * 65}], "[0].steps: expected a list of at most 64, got a list of 65"),
    ([{}], '[0]: expected the key "steps", got none'),
    (
        [{"steps": [], "finish": None}],
        "[0].finish: expected an object with transform, magnitude, direction, draws, got null",
    ),
]
_WRONG_STEP: list[tuple[dict[str, Any], str]] = [
    ({"magnitude": "big"}, '.magnitude: expected a finite number ≥ 0, got "big"'),
    ({"magnitude": -0.5}, ".magnitude: expected a finite number ≥ 0, got -0.5"),
    ({"magnitude": 10**399}, ".magnitude: expected a finite number ≥ 0, got a huge number"),
    ({"transform": "rotat"}, ".transform: unknown transform 'rotat': did you mean 'rotate'?"),
    ({"transform": []}, ".transform: expected the name of a transform, got a list of 0"),
    ({"direction": 1}, ": rotate: expected no direction, got 1"),
    ({"transform": "color", "direction": True}, ".direction: expected -1 or 1, got true"),
    ({"draws": {}}, ": rotate: expected the draws ['sign'], got []"),
    ({"draws": {"sing": 1}}, ".draws: unknown key 'sing': did you mean 'sign'?"),
    ({"draws": {"sign": 0}}, ".draws.sign: expected -1 or 1, got 0"),
    ({"draws": {"y": 1.5}}, ".draws.y: expected a number from 0 to 1, got 1.5"),
    ({"draws": {"flip": 1}}, ".draws.flip: expected true or false, got 1"),
]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        *_WRONG,
        *((changed(subpolicies=one), f"subpolicies{problem}") for one, problem in _WRONG_STEPS),
        *((with_step(**step), f"subpolicies[3].steps[1]{said}") for step, said in _WRONG_STEP),
    ],
    ids=lambda value: value[:50] if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said_with_its_place(content: object, problem: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        policy_from_json(content, where="policy.json")
    assert str(caught.value) == f"policy.json: {problem}"
    assert not VALIDATOR.is_valid(content) or "temperatures: " in problem or "1.0" in problem


def test_a_monstrous_name_is_cut_in_the_message() -> None:
    for content in (with_step(transform="x" * 10**6), changed(**{"y" * 10**6: 1})):
        with pytest.raises(FileFormatError) as caught:
            policy_from_json(content)
        assert len(str(caught.value)) < 800


def test_the_message_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(changed(seed=None)), encoding="utf-8")
    refused(r"^.*policy\.json: seed: expected", Policy.load, path, error=FileFormatError)


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (Policy((), recipe="a\nb"), "recipe: expected a name without control characters"),
        (Policy((SubPolicy(),) * 10_001), "subpolicies: expected a list of at most 10,000"),
        (SMALL, "expected a policy of at most 1,000 bytes, got 1,"),
    ],
    ids=["recipe", "length", "size"],
)
def test_what_could_not_be_read_back_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy, problem: str
) -> None:
    monkeypatch.setattr(policy_file, "LARGEST_JSON", 1_000)
    refused(r"^cannot write .*policy\.json: " + problem, policy.save, tmp_path / "policy.json")
    assert not list(tmp_path.iterdir())


def test_the_longest_policy_is_read(tmp_path: Path) -> None:
    policy = Policy(SMALL.subpolicies * 2_500, recipe="r" * 200)
    policy.save(tmp_path / "policy.json")
    assert Policy.load(tmp_path / "policy.json") == policy


# Damaged files: each loads, or raises a RelookError.


def test_damaged_files_load_or_raise_a_relook_error(tmp_path: Path) -> None:
    save_policy(SMALL, tmp_path / "whole.json")
    whole = (tmp_path / "whole.json").read_bytes()
    draws = random.Random(0)  # noqa: S311
    messages = []
    for number in range(4_000):
        # A new file each time: writing over one makes some file systems wait for the disk.
        path = tmp_path / f"{number}.json"
        path.write_bytes(edited(whole, random_edits(draws), whole))
        try:
            assert isinstance(load_policy(path), Policy)
        except RelookError as error:
            messages.append(str(error).removeprefix(str(path)))
        path.unlink()
    assert 3_000 < len(messages) < 4_000
    assert all(message.isprintable() for message in messages)
    assert len(set(messages)) > 100


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    save_policy(SMALL, tmp_path / "whole.json")
    whole = (tmp_path / "whole.json").read_bytes()
    for length in range(len(whole.rstrip())):
        path = tmp_path / f"{length}.json"
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError):
            load_policy(path)
        path.unlink()


_ANY = st.recursive(
    st.sampled_from([*STRANGE, *TRANSFORMS, math.nan, math.inf]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["steps", "finish", "transform", "draws", "x"]), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=300)
@given(subpolicies=_ANY, temperatures=_ANY, seed=_ANY)
def test_any_content_loads_or_raises_a_relook_error(
    subpolicies: object, temperatures: object, seed: object
) -> None:
    is_read(changed(subpolicies=subpolicies, temperatures=temperatures))
    is_read(changed(subpolicies=[{"steps": subpolicies}], seed=seed))
    is_read(subpolicies)
