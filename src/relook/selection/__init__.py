"""The search for a policy, over stored predictions alone."""

from relook.selection.greedy import SearchResult
from relook.selection.plan import selection_needs
from relook.selection.predictions import check_predictions
from relook.selection.search import greedy_search

__all__ = ["SearchResult", "check_predictions", "greedy_search", "selection_needs"]
