"""What decides a search's result, beside model and data."""

from __future__ import annotations

from dataclasses import dataclass

from relook.errors import RelookError, unknown_name
from relook.policy import DrawKind
from relook.policy.recipes import Recipe
from relook.selection.objectives import UserObjective

STRATEGIES = ("auto", "steady", "greedy", "paper")


@dataclass(frozen=True)
class SearchSettings:
    """What decides a search's result, beside model and data.

    `strategy` is "steady" (evenly spread views unless others prove better), "greedy" (the best
    candidate at each step), "paper" (the same with the paper's pools and fresh draws) or "auto":
    steady where it applies, else greedy. The settings hold which.

    `holdout` is the share kept for the proof, of what is not `left_out` of it all. `memory`
    limits the selection, in bytes; above 200 classes it may decide picks, and a run keeps it.
    """

    recipe: Recipe
    length: int = 20
    pool_size: int | None = None
    seed: int = 0
    draws: DrawKind = "fixed"
    objective: str | UserObjective = "cll"
    balanced: bool = False
    holdout: float = 1 / 3
    batch: int | None = None
    plain: bool = True
    accelerate: str = "torch"
    precision: str = "auto"
    compiled: bool = False
    race: bool = False
    store_precision: str = "auto"
    memory: int | None = None
    left_out: float = 0.0
    strategy: str = "auto"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise unknown_name("strategy", self.strategy, STRATEGIES)
        if self.strategy == "paper":  # its CIFAR pool has the plain image, its ImageNet pool not
            object.__setattr__(self, "draws", "fresh")
            object.__setattr__(self, "plain", self.recipe.start is None)
        steady = self.objective == "cll" and self.draws == "fixed" and self.plain
        if self.strategy == "auto":
            object.__setattr__(self, "strategy", "steady" if steady else "greedy")
        if self.strategy == "steady" and not steady:
            raise RelookError(
                "the strategy steady needs the objective cll, fixed draws and the plain image "
                "among the candidates: change these, or use the strategy greedy"
            )
