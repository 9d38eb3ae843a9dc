"""`found.distil`: the images that a search held out are the proof."""

import numpy as np
import pytest

import relook
from relook.data import load_data
from relook.models.small import new_small


@pytest.mark.filterwarnings("ignore::relook.RelookWarning")
def test_what_a_search_held_out_proves_the_student() -> None:
    digits = load_data("digits")
    network, some = new_small(seed=1, width=4), digits.subset(np.arange(120))
    found = relook.search(
        *(network, some), pool_size=4, length=2, recipe="small", split="60:60", progress=False
    )
    images = digits.plain[60:200]
    distilled = found.distil(images, epochs=2, learning_rate=1e-2, progress=False)
    record = distilled.record
    among = np.isin(digits.identities[60:200], some.subset(found.held_out_indices).identities)
    assert (record.images, record.left_out) == (140 - among.sum(), among.sum())
    assert len(record.epochs) == 2
    assert len(distilled.policy) == 1
    if not record.written:
        assert distilled.predictor is found.predictor
    assert "keep the old weights" in str(distilled) or "use the new weights" in str(distilled)
