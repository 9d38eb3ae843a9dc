"""A search as an estimator of scikit-learn."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils import estimator_checks
from tests.support import refused

from relook import TTAClassifier
from relook.data import load_data
from relook.models.small import new_small

DIGITS = load_data("digits").subset(np.arange(90))
IMAGES, LABELS = DIGITS.plain.numpy(), DIGITS.labels
OPTIONS = {"recipe": "small", "pool_size": 6, "length": 2, "batch": 64}

pytestmark = pytest.mark.filterwarnings("ignore::relook.RelookWarning")

# check_estimator has one check for what is not a table [n, feature]; these need no table either.
CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
)


def classifier(**changes: Any) -> TTAClassifier:
    return TTAClassifier(new_small(seed=1), options=OPTIONS, **changes)


@pytest.mark.parametrize("name", CHECKS)
def test_it_keeps_what_scikit_learn_asks_of_any_estimator(name: str) -> None:
    getattr(estimator_checks, name)("TTAClassifier", TTAClassifier())


def test_scikit_learn_checks_it_as_an_estimator_of_images() -> None:
    with pytest.warns(UserWarning, match="Can't test estimator TTAClassifier"):
        estimator_checks.check_estimator(TTAClassifier())


def test_it_predicts_as_the_search_it_made() -> None:
    fitted = classifier(method="policy").fit(IMAGES, LABELS)
    found = fitted.predict_proba(IMAGES)
    np.testing.assert_array_equal(found, fitted.search_.tta(method="policy").predict_proba(IMAGES))
    np.testing.assert_array_equal(fitted.classes_, np.arange(10))
    np.testing.assert_array_equal(fitted.predict(IMAGES), found.argmax(axis=1))
    assert fitted.score(IMAGES, LABELS) == pytest.approx((found.argmax(axis=1) == LABELS).mean())
    again = clone(fitted).fit(IMAGES, LABELS)
    np.testing.assert_array_equal(again.predict_proba(IMAGES), found)


def test_names_of_classes_are_sorted_with_their_columns() -> None:
    names = [f"class {9 - i}" for i in range(10)]
    named = classifier(classes=names, method="plain").fit(IMAGES, np.array(names)[LABELS])
    usual = classifier(method="plain").fit(IMAGES, LABELS)
    assert named.classes_.tolist() == sorted(names)
    columns = usual.predict_proba(IMAGES)[:, ::-1]
    np.testing.assert_array_equal(named.predict_proba(IMAGES), columns)
    refused("got 'other'", named.fit, IMAGES, ["other"] * len(IMAGES))
    refused("with a trained model, got None", TTAClassifier().fit, IMAGES, LABELS)


def test_it_can_be_cross_validated() -> None:
    labels = np.arange(len(IMAGES)) % 10
    scores = cross_val_score(classifier(), IMAGES, labels, cv=2, scoring="neg_log_loss")
    assert scores.shape == (2,)
    assert np.isfinite(scores).all()
