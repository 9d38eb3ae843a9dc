"""The search for a policy, over stored predictions alone."""

from relook.selection.greedy import SearchResult, check_predictions, greedy_search

__all__ = ["SearchResult", "check_predictions", "greedy_search"]
