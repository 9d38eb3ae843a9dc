"""From a search to its model, and the page that shows how."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support import refused
from tests.unit.deploy.tta_cases import fixed_policy, network, some_images

import relook
from relook.data import load_data
from relook.models.small import new_small

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "deploy.md"


@pytest.mark.filterwarnings("ignore:only .* images", "ignore:.*which is chance")
def test_a_search_gives_its_model() -> None:
    digits = load_data("digits")
    names = [f"digit {i}" for i in range(10)]
    found = relook.search(
        *(new_small(seed=1), digits.plain[:120], digits.labels[:120]),
        recipe="small",
        pool_size=6,
        length=3,
        classes=names,
        mean=0.1,
    )
    model = found.model(views=2)
    expected = relook.TTA(new_small(seed=1), found.policy, views=2, mean=0.1)
    images = digits.plain[200:210]
    torch.testing.assert_close(model(images), expected(images))
    assert model.predict(images)[0] in names
    refused("expected images of 32×32", model, images[:, :, :24, :24])
    assert "deployment" not in repr(found)
    with pytest.raises(relook.RelookError, match=r"relook\.TTA\(model, policy\)"):
        replace(found, deployment=None).model()


def test_the_page_s_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fixed_policy().save("policy.json")
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, Any] = {"network": network(), "images": some_images()}
    exec(compile(example, PAGE.name, "exec"), scope)  # noqa: S102
    assert scope["probabilities"].shape == (10, 7)
