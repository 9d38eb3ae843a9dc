import torch
from torch import Tensor, nn

import relook
from relook.models.small import new_small
from relook.policy import Policy, Step, SubPolicy

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)

PLAIN = SubPolicy()
FLIP = SubPolicy((Step("flip", 0),))
DARK = SubPolicy((Step("brightness", 12, -1),))


def fixed_policy(length: int = 6, seed: int = 3) -> Policy:
    """Candidates of the cifar recipe, the second one twice, with a temperature a prefix."""
    pool = relook.sample_pool("cifar", 24, seed)
    picked = (pool[0], pool[5], pool[5], *pool[7 : 7 + length - 3])
    return Policy(
        picked, temperatures=tuple(1.1 + 0.1 * k for k in range(len(picked))), recipe="cifar"
    )


def network(seed: int = 1) -> nn.Module:
    """A real small network, with statistics that a batch has left in its BatchNorms."""
    net = new_small(3, 7, width=8, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    net.train()
    net(torch.rand((32, 3, 32, 32), generator=generator))
    return net.eval()


def some_images(count: int = 10, side: int = 32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)
