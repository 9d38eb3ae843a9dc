"""A search as a scikit-learn estimator: `TTAClassifier(model).fit(images, labels)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from relook.api.verbs import search
from relook.errors import RelookError


class TTAClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A trained classifier that averages the views which suit it best.

    `fit` learns which views of uint8 images `[n, c, h, w]` to average, and compares them on a part
    of the images; the model itself is not trained. `model` and `options` are the model and the
    keywords of `relook.search` (`mean`, `std`, `recipe`, `length` …). `classes` are the labels of
    the model's outputs, in their order (default: 0, 1, 2 …). The views are those that the verdict
    recommends, or those of `method` ("policy", "plain" or "cf"). Fitted: `classes_`, sorted;
    `search_`, the result of the search; `tta_`, the `relook.TTA` that predicts.
    """

    def __init__(
        self,
        model: object = None,
        *,
        classes: Sequence[Any] | None = None,
        method: str | None = None,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.classes = classes
        self.method = method
        self.seed = seed
        self.options = options

    def fit(self, images: ArrayLike, labels: ArrayLike) -> Self:
        """Learn which views to average; the images are split for search and comparison."""
        if self.model is None:
            raise RelookError("expected TTAClassifier(model) with a trained model, got None")
        names = None if self.classes is None else np.asarray(self.classes)
        given = {"seed": self.seed, "progress": False, **(self.options or {})}
        numbers = _numbers(np.asarray(labels), names)
        self.search_ = search(self.model, _tensor(images), numbers, **given)
        verdict = self.search_.comparison.verdict
        views = verdict.recommended_views if self.method is None else None
        method = self.method or verdict.recommended_method
        self.tta_ = self.search_.tta(method=method, views=views)
        self._order = None if names is None else np.argsort(names)
        outputs = self.tta_.predict_proba(_tensor(images)[:1]).shape[1]
        self.classes_ = np.arange(outputs) if names is None else names[self._order]
        return self

    def predict_proba(self, images: ArrayLike) -> NDArray[np.float32]:
        """Return probabilities `[n, class]`, in the order of `classes_`."""
        check_is_fitted(self)
        found: NDArray[np.float32] = self.tta_.predict_proba(_tensor(images))
        return found if self._order is None else found[:, self._order]

    def predict(self, images: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each image."""
        found: NDArray[Any] = self.classes_[self.predict_proba(images).argmax(axis=1)]
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = False
        return tags


def _tensor(images: Any) -> torch.Tensor:
    return images if isinstance(images, torch.Tensor) else torch.from_numpy(np.asarray(images))


def _numbers(labels: NDArray[Any], names: NDArray[Any] | None) -> NDArray[Any]:
    """Return labels as places among the model's outputs."""
    if names is None:
        return labels
    places = {name: place for place, name in enumerate(names.tolist())}
    strange = [label for label in np.unique(labels).tolist() if label not in places]
    if strange:
        raise RelookError(
            f"expected labels of the {len(places)} classes, got {strange[0]!r}: give classes=… in "
            "the order of the model's outputs"
        )
    return np.array([places[label] for label in labels.tolist()])
