from __future__ import annotations

import relook


def test_all_is_exactly_what_is_exported() -> None:
    public = {name for name in vars(relook) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(relook, name)).__name__ == "module"}
    assert set(relook.__all__) == (public - modules) | {"__version__"}


def test_search_is_the_function() -> None:
    import relook.policy_search

    assert relook.search is relook.policy_search.search
