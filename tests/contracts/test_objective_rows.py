"""What every row of OBJECTIVES promises; a new row enrols itself."""

import pytest

from relook.selection.objectives import OBJECTIVES
from relook.testing import check_objective


@pytest.mark.parametrize("name", OBJECTIVES)
def test_keeps_its_promises(name: str) -> None:
    assert OBJECTIVES[name].name == name
    assert OBJECTIVES[name].weighted
    check_objective(name)
