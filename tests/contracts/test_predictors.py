"""What every model source promises; a new row of MODEL_SOURCES needs an example here."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.predictor_cases import EXAMPLES, Example
from tests.support import refused

from relook.errors import MissingExtraError, RelookError
from relook.models import MODEL_SOURCES, Predictor, load_model
from relook.testing import check_model_source


def test_every_model_source_has_an_example() -> None:
    assert set(EXAMPLES) == set(MODEL_SOURCES)


@pytest.fixture(params=list(MODEL_SOURCES))
def example(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Example]:
    monkeypatch.chdir(tmp_path)
    try:
        made = EXAMPLES[request.param](tmp_path)
    except MissingExtraError as error:
        pytest.skip(str(error))
    yield made
    sys.modules.pop("relook_contract_network", None)


@pytest.fixture
def predictor(example: Example) -> Predictor:
    return load_model(example.spec)


def test_it_keeps_its_promises(example: Example) -> None:
    check_model_source(example.spec, example.images)


def test_its_results_can_be_worked_on(predictor: Predictor, example: Example) -> None:
    log_probs = predictor(example.images)
    log_probs.sub_(1.0)
    assert not log_probs.requires_grad


@pytest.mark.parametrize("bad", ["float", "channels_last", "flat"])
def test_it_refuses_what_are_no_images(predictor: Predictor, example: Example, bad: str) -> None:
    images = {
        "float": example.images.float(),
        "channels_last": example.images.permute(0, 2, 3, 1),
        "flat": example.images.flatten(1),
    }[bad]
    refused(".", predictor, images)


@pytest.mark.parametrize("prefix", MODEL_SOURCES)
def test_a_spec_without_its_part_shows_the_form(prefix: str) -> None:
    source = MODEL_SOURCES[prefix]
    assert source.prefix == prefix
    assert source.form.startswith(prefix)
    for spec in (prefix, f"{prefix}:"):
        with pytest.raises(RelookError) as caught:
            load_model(spec)
        assert source.form in str(caught.value)


@pytest.mark.parametrize("prefix", MODEL_SOURCES)
@pytest.mark.parametrize("rest", ["no/such thing", "…", "a:b:c@d", "\n"])
def test_a_spec_that_names_nothing_gets_one_line(prefix: str, rest: str) -> None:
    refused(".", load_model, f"{prefix}:{rest}")
