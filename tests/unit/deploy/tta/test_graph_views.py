"""What torch.compile, torch.export and several processes make of a TTA module."""

import multiprocessing
import tempfile
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.support import refused
from tests.unit.deploy.tta_cases import MEAN, STD, fixed_policy, network, some_images
from torch import Tensor, nn

from relook.deploy import TTA
from relook.deploy.tta.view_plan import traced_view
from relook.models import as_predictor
from relook.models.predictors import EnsemblePredictor
from relook.policy import Policy, Step, SubPolicy
from relook.policy.views import freeze_subpolicy, make_views
from relook.transforms import TRANSFORMS


class _View(nn.Module):
    def __init__(self, subpolicy: SubPolicy) -> None:
        super().__init__()
        self.subpolicy = subpolicy

    def forward(self, images: Tensor) -> Tensor:
        return traced_view(self.subpolicy, images)


def fixed_step(name: str, magnitude: float, seed: int) -> SubPolicy:
    direction = (-1 if seed % 2 else 1) if TRANSFORMS[name].signed else None
    return freeze_subpolicy(SubPolicy((Step(name, magnitude, direction),)), seed, 0)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize(
    ("magnitude", "seed", "side", "channels"),
    [(0.0, 0, 45, 3), (12.0, 1, 32, 3), (20.0, 3, 45, 1), (45.0, 4, 32, 3)],
)
def test_every_transform_can_be_exported(
    name: str, magnitude: float, seed: int, side: int, channels: int
) -> None:
    subpolicy = fixed_step(name, magnitude, seed)
    shapes = {"images": {0: torch.export.Dim("n")}}
    example, images = (some_images(n, side, n)[:, :channels].contiguous() for n in (3, 5))
    program = torch.export.export(_View(subpolicy), (example,), dynamic_shapes=shapes)
    assert torch.equal(program.module()(images), make_views(subpolicy, images, seed=0))
    assert not [node for node in program.graph.nodes if "relook" in str(node.target)]


def test_fresh_draws_cannot_be_traced() -> None:
    refused("freeze", traced_view, SubPolicy((Step("rotate", 3),)), some_images())


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_compiled_module_predicts_the_same(dynamic: bool | None) -> None:
    tta = TTA(network(), fixed_policy(), views=3, mean=MEAN, std=STD)
    torch._dynamo.reset()
    # The graph is what can go wrong here; turning it into machine code takes long.
    compiled = torch.compile(tta, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for count in (4, 9) if dynamic else (4,):
        images = some_images(count)
        given = images if dynamic else images.float() / 255
        torch.testing.assert_close(compiled(given), tta(images))


def test_what_cannot_be_compiled_says_so() -> None:
    fresh = Policy((SubPolicy((Step("rotate", 3),)),))
    ensemble = EnsemblePredictor([as_predictor(network())])
    trained = TTA(network(), fixed_policy()).train()
    for tta, message in (
        (TTA(network(), fresh, temperature=None, draws="fresh"), "fresh draws"),
        (TTA(ensemble, fixed_policy()), "torch module"),
        (trained, "eval mode"),
    ):
        refused(message, torch.export.export, tta, (some_images(),))


def test_data_parallel() -> None:
    tta = TTA(network(), fixed_policy())
    assert torch.equal(nn.DataParallel(tta)(some_images()), tta(some_images()))


def _in_a_process(rank: int, size: int, file: str, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{file}", rank=rank, world_size=size)
    tta = TTA(network(1 + rank), fixed_policy())  # DDP brings the first one's weights
    parallel = nn.parallel.DistributedDataParallel(tta)
    with torch.no_grad():
        outcome = [parallel(some_images()[rank::size]) for _ in range(2)]
    results.put((rank, outcome[1].tolist()))
    dist.barrier()
    dist.destroy_process_group()


def test_distributed_processes() -> None:
    size = 2
    context = multiprocessing.get_context("fork")  # which need not import torch again
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=_in_a_process, args=(r, size, f"{folder}/meet", results))
            for r in range(size)
        ]
        for worker in workers:
            worker.start()
        found = dict(results.get(timeout=120) for _ in workers)
        for worker in workers:
            worker.join(60)
    expected = TTA(network(), fixed_policy())(some_images())
    for rank in range(size):
        torch.testing.assert_close(torch.tensor(found[rank]), expected[rank::size])
