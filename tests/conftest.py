import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import Tensor

import relook  # noqa: F401  # before torchmetrics, which imports torchvision where it is installed

torch.set_num_threads(1)
settings.register_profile("relook", deadline=None, derandomize=True)
settings.load_profile("relook")


@pytest.fixture
def images() -> Tensor:
    """Sixteen random colour images of 32×32."""
    generator = np.random.default_rng(0)
    return torch.from_numpy(generator.integers(0, 256, (16, 3, 32, 32), dtype=np.uint8))
