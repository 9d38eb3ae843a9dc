import pytest
from tests.support import refused

from relook.studies.corruptions import CORRUPTIONS
from relook.studies.robustness_scores import (
    ALEXNET_ERRORS,
    has_normaliser,
    mean_over_corruptions,
    normalised_errors,
    unnormalised,
)

ERRORS = {"fog": (0.1, 0.2, 0.3, 0.4, 0.5), "snow": (0.2, 0.2, 0.2, 0.2, 0.7)}


def test_uce_and_muce_by_hand() -> None:
    # (0.1 + 0.2 + 0.3 + 0.4 + 0.5) / 5 = 0.3 and (4 · 0.2 + 0.7) / 5 = 0.3
    assert unnormalised(ERRORS) == pytest.approx({"fog": 0.3, "snow": 0.3})
    assert mean_over_corruptions({"fog": 0.3, "snow": 0.5}) == pytest.approx(0.4)


def test_ce_and_mce_by_hand() -> None:
    # 1.5 / (5 · 0.819324) = 0.366156… and 1.5 / (5 · 0.866816) = 0.346094…
    found = normalised_errors(ERRORS)
    assert found == pytest.approx({"fog": 0.3661555, "snow": 0.3460942}, abs=1e-6)
    assert mean_over_corruptions(found) == pytest.approx(0.3561249, abs=1e-6)


def test_alexnet_itself_has_an_mce_of_one() -> None:
    errors = {name: (error,) * 5 for name, error in ALEXNET_ERRORS.items()}
    assert list(errors) == list(CORRUPTIONS)
    assert mean_over_corruptions(normalised_errors(errors)) == pytest.approx(1)
    # The published mean of AlexNet's errors.
    assert sum(ALEXNET_ERRORS.values()) / 15 == pytest.approx(0.789, abs=5e-4)


def test_ce_needs_all_severities_of_a_known_corruption() -> None:
    refused(
        r"CE of fog: expected .* five severities, got 2", normalised_errors, {"fog": (0.1, 0.2)}
    )
    refused("CE of spatter", normalised_errors, {"spatter": (0.1,) * 5})
    refused("got none", unnormalised, {"fog": ()})


def test_ce_is_for_imagenet_alone() -> None:
    assert has_normaliser(1000, (1, 2, 3, 4, 5))
    assert not has_normaliser(10, (1, 2, 3, 4, 5))
    assert not has_normaliser(1000, (1, 3, 5))
