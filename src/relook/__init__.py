"""Learned test-time augmentation for trained image classifiers."""

from relook.errors import RelookError
from relook.policy import Policy, Step, SubPolicy
from relook.transforms import TRANSFORMS

__version__ = "0.1.0"

__all__ = ["TRANSFORMS", "Policy", "RelookError", "Step", "SubPolicy", "__version__"]
