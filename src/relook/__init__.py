"""Learned test-time augmentation for trained image classifiers.

The public names are loaded on first use, so that `relook --help` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relook.foundation import torchvision_import
from relook.version import __version__

if TYPE_CHECKING:
    from relook.adapters.estimator import TTAClassifier
    from relook.api.found import FoundPolicy
    from relook.api.judging import distil
    from relook.api.verbs import calibrate, calibrate_policy, compare, load, search
    from relook.data import Dataset
    from relook.data.specs import register_data_source
    from relook.deploy import TTA
    from relook.deploy.export import export
    from relook.errors import RelookError, RelookWarning
    from relook.evaluation.baselines import register_baseline
    from relook.evaluation.comparison import Comparison
    from relook.models import Predictor
    from relook.models.specs import register_model_source
    from relook.numerics.calibration import calibrated_log_likelihood
    from relook.policy import Policy, Step, SubPolicy
    from relook.policy.pool import sample_pool
    from relook.policy.recipes import RECIPES, Recipe
    from relook.policy.views import make_views
    from relook.policy_search.search import PolicySearch
    from relook.selection import SearchResult, greedy_search
    from relook.selection.objectives import register_objective
    from relook.transforms import TRANSFORMS
    from relook.transforms.table import register_transform

__all__ = [
    "RECIPES",
    "TRANSFORMS",
    "TTA",
    "Comparison",
    "Dataset",
    "FoundPolicy",
    "Policy",
    "PolicySearch",
    "Predictor",
    "Recipe",
    "RelookError",
    "RelookWarning",
    "SearchResult",
    "Step",
    "SubPolicy",
    "TTAClassifier",
    "__version__",
    "calibrate",
    "calibrate_policy",
    "calibrated_log_likelihood",
    "compare",
    "distil",
    "export",
    "greedy_search",
    "load",
    "make_views",
    "register_baseline",
    "register_data_source",
    "register_model_source",
    "register_objective",
    "register_transform",
    "sample_pool",
    "search",
]

_MODULES = {
    "relook.adapters.estimator": "TTAClassifier",
    "relook.api.found": "FoundPolicy",
    "relook.api.judging": "distil",
    "relook.api.verbs": "calibrate calibrate_policy compare load search",
    "relook.data": "Dataset",
    "relook.data.specs": "register_data_source",
    "relook.deploy": "TTA",
    "relook.deploy.export": "export",
    "relook.errors": "RelookError RelookWarning",
    "relook.evaluation.baselines": "register_baseline",
    "relook.evaluation.comparison": "Comparison",
    "relook.models": "Predictor",
    "relook.models.specs": "register_model_source",
    "relook.numerics.calibration": "calibrated_log_likelihood",
    "relook.policy": "Policy Step SubPolicy",
    "relook.policy.pool": "sample_pool",
    "relook.policy.recipes": "RECIPES Recipe",
    "relook.policy.views": "make_views",
    "relook.policy_search.search": "PolicySearch",
    "relook.selection": "SearchResult greedy_search",
    "relook.selection.objectives": "register_objective",
    "relook.transforms": "TRANSFORMS",
    "relook.transforms.table": "register_transform",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

torchvision_import.install()  # lets `import timm` work with a CPU build of torch


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'relook' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
