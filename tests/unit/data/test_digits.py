import numpy as np
import pytest
from scipy.ndimage import zoom
from sklearn.datasets import load_digits
from tests.support import refused

from relook.data import Dataset, load_data


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_data("digits")


def test_they_are_scikit_learns_digits_enlarged(digits: Dataset) -> None:
    bunch = load_digits()
    assert digits.images.shape == (1797, 1, 32, 32)
    assert digits.classes == tuple("0123456789")
    np.testing.assert_array_equal(digits.labels, bunch.target)
    # SciPy's linear enlargement is another one, but nearly the same picture.
    linear = zoom(bunch.images * 255 / 16, (1, 4, 4), order=1, grid_mode=True, mode="nearest")
    enlarged = digits.plain.numpy()[:, 0].astype(float)
    assert np.abs(enlarged - linear).mean() < 8
    assert np.corrcoef(enlarged.ravel(), linear.ravel())[0, 1] > 0.99


def test_the_parts_are_disjoint_complete_and_stratified(digits: Dataset) -> None:
    train, test = load_data("digits:train"), load_data("digits:test")
    assert len(train) + len(test) == len(digits)
    keys = [{image.numpy().tobytes() for image in part.plain} for part in (train, test, digits)]
    assert keys[0].isdisjoint(keys[1])
    assert keys[0] | keys[1] == keys[2]
    whole, share = np.bincount(digits.labels), np.bincount(train.labels)
    np.testing.assert_allclose(share, 0.1 * whole, atol=0.5)


def test_the_split_is_the_same_everywhere() -> None:
    # Written down once: a split that moves would put trained-on images into the proof.
    assert load_data("digits:train").labels[:12].tolist() == [2, 6, 5, 1, 5, 8, 3, 7, 4, 3, 6, 1]


def test_an_unknown_part_names_the_known_ones() -> None:
    refused("unknown part of digits 'tset': did you mean 'test'", load_data, "digits:tset")
    refused("expected a data set as digits, digits:train", load_data, "digits:")
