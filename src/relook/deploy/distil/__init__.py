"""Distillation: what averaging views knows, taught to the network itself, for one plain pass."""
