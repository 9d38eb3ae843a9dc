"""`TTA(model, policy)`: one calibrated model that averages the views of a policy."""

from relook.deploy.tta.module import TTA

__all__ = ["TTA"]
