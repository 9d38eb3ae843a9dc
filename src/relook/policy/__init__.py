"""Which views to average: steps, sub-policies and policies, their files, recipes and pools."""

from relook.policy.policy import DrawKind, Draws, Policy, Step, SubPolicy

__all__ = ["DrawKind", "Draws", "Policy", "Step", "SubPolicy"]
