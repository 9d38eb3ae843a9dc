import pytest

import relook.predictions.model_calls


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three views."""
    monkeypatch.setattr(relook.predictions.model_calls, "_GROUP", 3)
