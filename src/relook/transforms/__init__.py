"""Image transforms: pure kernels on uint8 batches, and the table that lists them."""

from relook.transforms.table import DRAWS, TRANSFORMS, Transform

__all__ = ["DRAWS", "TRANSFORMS", "Transform"]
