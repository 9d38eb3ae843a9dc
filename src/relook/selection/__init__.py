"""The search for a policy, over stored predictions alone."""

from relook.selection.checks import check_predictions
from relook.selection.greedy import SearchResult, greedy_search
from relook.selection.needs import selection_needs

__all__ = ["SearchResult", "check_predictions", "greedy_search", "selection_needs"]
