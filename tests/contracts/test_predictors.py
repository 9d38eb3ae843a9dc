"""What every model source promises; a new row of MODEL_SOURCES needs an example here."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.contracts.predictor_cases import EXAMPLES, Example

from relook.errors import MissingExtraError, RelookError
from relook.models import MODEL_SOURCES, Predictor, load_model


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


def test_it_returns_log_probabilities(predictor: Predictor, example: Example) -> None:
    log_probs = predictor(example.images)
    assert isinstance(predictor, Predictor)
    assert (log_probs.dtype, log_probs.device.type) == (torch.float32, "cpu")
    assert log_probs.ndim == 2
    assert len(log_probs) == len(example.images)
    assert predictor.classes in (None, log_probs.shape[1])
    assert log_probs.isfinite().all()
    torch.testing.assert_close(log_probs.double().exp().sum(dim=1), torch.ones(5).double())


def test_it_leaves_its_input_alone(predictor: Predictor, example: Example) -> None:
    before = example.images.clone()
    predictor(example.images)
    assert torch.equal(example.images, before)


def test_it_judges_each_image_by_itself(predictor: Predictor, example: Example) -> None:
    together = predictor(example.images)
    alone = torch.cat([predictor(image[None]) for image in example.images])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=0)


def test_it_repeats_itself_and_so_does_another_of_the_same_spec(
    predictor: Predictor, example: Example
) -> None:
    log_probs = predictor(example.images)
    again = load_model(example.spec)
    assert torch.equal(predictor(example.images), log_probs)
    assert torch.equal(again(example.images), log_probs)
    assert again.fingerprint == predictor.fingerprint
    assert predictor.fingerprint


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
    with pytest.raises(RelookError) as caught:
        predictor(images)
    assert "\n" not in str(caught.value)


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
    with pytest.raises(RelookError) as caught:
        load_model(f"{prefix}:{rest}")
    assert "\n" not in str(caught.value)
