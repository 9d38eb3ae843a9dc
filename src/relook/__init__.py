"""Learned test-time augmentation for trained image classifiers.

The public names are loaded when they are used: `relook --help` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relook.foundation import torchvision_import
from relook.version import __version__

if TYPE_CHECKING:
    from relook.data import Dataset
    from relook.deploy import TTA
    from relook.deploy.calibrate import calibrate_policy
    from relook.deploy.export import export
    from relook.errors import RelookError
    from relook.evaluation.compare import compare
    from relook.evaluation.comparison import Comparison
    from relook.models import Predictor
    from relook.numerics.calibration import calibrated_log_likelihood
    from relook.policy import Policy, Step, SubPolicy
    from relook.policy.pool import sample_pool
    from relook.policy.recipes import RECIPES, Recipe
    from relook.policy.views import make_views
    from relook.policy_search.search import PolicySearch, search
    from relook.selection import SearchResult, greedy_search
    from relook.transforms import TRANSFORMS

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

_HOMES = {
    "Comparison": "relook.evaluation.comparison",
    "Dataset": "relook.data",
    "Policy": "relook.policy",
    "PolicySearch": "relook.policy_search.search",
    "Predictor": "relook.models",
    "RECIPES": "relook.policy.recipes",
    "Recipe": "relook.policy.recipes",
    "RelookError": "relook.errors",
    "SearchResult": "relook.selection",
    "Step": "relook.policy",
    "SubPolicy": "relook.policy",
    "TRANSFORMS": "relook.transforms",
    "TTA": "relook.deploy",
    "calibrate_policy": "relook.deploy.calibrate",
    "calibrated_log_likelihood": "relook.numerics.calibration",
    "compare": "relook.evaluation.compare",
    "export": "relook.deploy.export",
    "greedy_search": "relook.selection",
    "make_views": "relook.policy.views",
    "sample_pool": "relook.policy.pool",
    "search": "relook.policy_search.search",
}

torchvision_import.install()  # so that `import timm` works beside a torch for the CPU


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'relook' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
