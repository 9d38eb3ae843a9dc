"""Other libraries: their transforms in relook, and relook in their pipelines."""

from relook.adapters.transforms import from_albumentations, from_kornia, from_torchvision

__all__ = ["from_albumentations", "from_kornia", "from_torchvision"]
