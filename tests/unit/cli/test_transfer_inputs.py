from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.policy_search.searched_run import searched_run

from relook.cli.shared import loading
from relook.cli.study.transfer import read_transfer, target_specs
from relook.data import Dataset
from relook.policy import Policy
from relook.transforms.centre_crop import CentreCrop


def test_images_are_prepared_as_the_search_of_their_own_policy_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, plan = searched_run(tmp_path), CentreCrop((32, 32), 0.875, 1, every=True)
    replace(Policy.load(run.policy), preparation=plan).save(run.policy)
    asked: list[Any] = []
    own = loading.read_data

    def read_data(*given: Any, **how: Any) -> Dataset:
        asked.append(how["searched"])
        return own(*given, **how)

    monkeypatch.setattr(loading, "read_data", read_data)
    wanted, foreign = target_specs([run.path], [run.model], [], [], [], {})
    read_transfer(wanted, foreign, None, "cpu", "no", tmp_path)
    assert asked == [plan, None]  # another model has its own way
