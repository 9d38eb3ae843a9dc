"""Learned test-time augmentation for trained image classifiers."""

from relook.calibration import calibrated_log_likelihood
from relook.compare import compare
from relook.comparison import Comparison
from relook.data import Dataset
from relook.deploy import TTA
from relook.deploy.export import export
from relook.errors import RelookError
from relook.models import Predictor
from relook.policy import Policy, Step, SubPolicy
from relook.policy_calibration import calibrate_policy
from relook.policy_search import PolicySearch, search
from relook.pool import sample_pool
from relook.recipes import RECIPES, Recipe
from relook.selection import SearchResult, greedy_search
from relook.transforms import TRANSFORMS
from relook.version import __version__
from relook.views import make_views

__all__ = [
    "RECIPES",
    "TRANSFORMS",
    "TTA",
    "Comparison",
    "Dataset",
    "Policy",
    "PolicySearch",
    "Predictor",
    "Recipe",
    "RelookError",
    "SearchResult",
    "Step",
    "SubPolicy",
    "__version__",
    "calibrate_policy",
    "calibrated_log_likelihood",
    "compare",
    "export",
    "greedy_search",
    "make_views",
    "sample_pool",
    "search",
]
