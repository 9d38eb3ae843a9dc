"""The settings that decide a search's result, besides model and data: each in one place.

Command-line options, Python keywords and run records all come from the fields of `SearchSettings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar, get_args

from relook.errors import RelookError, unknown_name
from relook.foundation.memory import SHARE, parse_size
from relook.io.fingerprint import JSON
from relook.io.run_directory import RunDirectory
from relook.models.base import InputSpec
from relook.numerics.splits import parse_split
from relook.policy import DrawKind, Policy, SubPolicy
from relook.policy.file import policy_from_json, policy_to_json
from relook.policy.pool import CONSERVATIVE_SIZE, Pool, conservative_pool, sample_pool
from relook.policy.recipes import AUTO, STARTS, Recipe, get_recipe, recipe_for
from relook.predictions.store import stored_type
from relook.selection.objectives import UserObjective

STRATEGIES = ("auto", "conservative", "greedy", "paper")
_DRAWS: tuple[str, ...] = get_args(DrawKind)
T = TypeVar("T")
SEARCH, _SPEED = "What is searched", "Speed"
"""The panels of `--help`; the few settings that matter most are in none."""


@dataclass(frozen=True)
class Option:
    """A setting's option on the command line; `read` converts its text, or `several` texts."""

    help: str
    flag: str | None = None
    min: int | None = None
    shown: str | None = None
    metavar: str | None = None
    panel: str | None = None
    read: Callable[[Any], Any] | None = None
    several: bool = False


def _setting(default: T, help: str, **how: Any) -> T:
    """Return a field of `SearchSettings` that is an option of the command line."""
    found: T = field(default=default, metadata={"option": Option(help, **how)})
    return found


@dataclass(frozen=True)
class RecipeChoice:
    """The recipe asked for, and the transforms left out of it; `auto` depends on the images."""

    recipe: Recipe | str = AUTO
    exclude: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.recipe != AUTO:
            object.__setattr__(self, "recipe", get_recipe(self.recipe).without(self.exclude))

    def of(self, shape: Sequence[int]) -> tuple[Recipe, str | None]:
        """Return the recipe for images `[c, h, w]`, and the reason if it was chosen by `auto`."""
        if isinstance(self.recipe, Recipe):
            return self.recipe, None
        chosen, why = recipe_for(*shape)
        return chosen.without(self.exclude), why

    def crops(self, takes: InputSpec | None) -> bool:
        """Whether views begin with crops, as far as the model's input shows."""
        if takes is None and self.recipe == AUTO:
            return False
        shape = (3, 32, 32) if takes is None else (takes.channels or 3, *takes.size)
        return self.of(shape)[0].start is not None


StartFrom = Policy | str | Path | Mapping[str, Any]
"""A policy, its file or run, a preset's name, or its form in a record."""


def start_policies(given: StartFrom | Sequence[StartFrom] | None) -> tuple[Policy, ...]:
    """Return policies to start from: their views, each once, and the images they were found on."""
    sources: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
    found = []
    for source in sources:
        if source is None:
            continue
        if isinstance(source, Mapping):
            policy = policy_from_json(source, "start_from")
        elif isinstance(source, Policy):
            policy = source
        else:
            run = RunDirectory(source)
            policy = Policy.load(run.policy if run.path.is_dir() else source)
        views = tuple(dict.fromkeys(policy))
        fresh = next((view for view in views if not view.is_fixed), None)
        if fresh is not None:
            raise RelookError(
                f"start_from (--start-from): expected fixed views, got “{fresh}”, which is drawn "
                "anew for each image: freeze the policy first, with  relook policy freeze"
            )
        found.append(Policy(views, recipe=policy.recipe, seen=policy.seen))
    return tuple(found)


def start_views(policies: Sequence[Policy], recipe: Recipe) -> tuple[SubPolicy, ...]:
    """Return the policies' views, each once; raise if one crops otherwise than the recipe."""
    views = tuple(dict.fromkeys(view for policy in policies for view in policy))
    for view in views:
        has_start = bool(view.steps) and view.steps[0].transform in STARTS
        if (has_start and recipe.start is None) or (view.finish and recipe.finish is None):
            raise RelookError(
                f"start_from (--start-from): expected views as the recipe {recipe.name!r} "
                f"makes them, got “{view}”, which crops otherwise: leave it out, or name its recipe"
            )
    return views


@dataclass(frozen=True)
class SearchSettings:
    """The settings that decide a search's result, besides model and data.

    `strategy` is "conservative" (quasi-random crops unless others prove better), "greedy" (the
    best candidate at each step) or "paper" (greedy with the paper's pools and fresh draws);
    "auto" becomes conservative if that is possible, else greedy. `pool_size` None is 80 for a
    conservative search, else the recipe's own.

    `holdout` is the share held out of the images that are not `left_out`. `memory` limits the
    selection, in bytes; above 200 classes it may decide picks, and a run keeps it. With
    `cross_fit` nothing is held out: all images are searched on, and so is each half alone, whose
    views are scored on the other half. The views of the policies to `start_from` replace as many
    drawn candidates.
    """

    recipe: Recipe
    strategy: str = _setting(
        "auto",
        "conservative: quasi-random crops unless others prove better; greedy: the best "
        "candidate at each step; paper: its pools and fresh draws; auto: conservative, or "
        "greedy where another objective, fresh draws or no plain image is asked for.",
        panel=SEARCH,
    )
    draws: DrawKind = _setting(  # noqa: RUF009
        "fixed",
        "fixed: each candidate is one exact view, drawn with the pool; fresh: signs, "
        "places and flips are drawn for each image, as in the paper.",
        panel=SEARCH,
    )
    length: int = _setting(20, "Number of entries in the policy.", min=1)
    pool_size: int | None = _setting(
        None,
        "Candidates.",
        min=1,
        shown=f"{CONSERVATIVE_SIZE}; greedy and paper: the recipe's own number",
        panel=SEARCH,
    )
    start_from: tuple[Policy, ...] = _setting(
        (),
        "A policy found before (file, run or preset:NAME), whose views come first among the "
        "candidates after the quasi-random ones; may be repeated.",
        metavar="POLICY",
        panel=SEARCH,
        read=start_policies,
        several=True,
    )
    plain: bool = _setting(
        True,
        "Have the plain image among the candidates; the paper's ImageNet pool does not.",
        flag="--plain/--no-plain",
        panel=SEARCH,
    )
    objective: str | UserObjective = _setting(  # noqa: RUF009
        "cll", "What to maximise: cll, ll, accuracy, brier or ece.", panel=SEARCH
    )
    view_temperature: float | None = _setting(
        None,
        "How much each view's prediction is flattened before views are averaged; 1 is the "
        "usual average.",
        shown="learned by the strategy conservative, else 1",
        panel=SEARCH,
    )
    balanced: bool = _setting(False, "Give each class the same weight.", panel=SEARCH)
    cross_fit: bool = _setting(
        False,
        "Hold nothing out: learn on all images, and compare on all of them, each half by "
        "views that were learned on the other. For few images.",
        panel=SEARCH,
    )
    holdout: float = 1 / 3
    left_out: float = 0.0
    seed: int = _setting(0, "Everything random follows from it.", min=0, panel=SEARCH)
    batch: int | None = _setting(
        None, "Images in one model call.", min=1, shown="by the images' size", panel=_SPEED
    )
    accelerate: str = _setting(
        "auto",
        "How the model runs: torch, channels-last, onnx (ONNX Runtime), or auto: the "
        "fastest on this machine whose outputs agree with torch's, where the work is long "
        "enough.",
        panel=_SPEED,
    )
    precision: str = _setting(
        "auto",
        "Arithmetic in torch: float32, float16, bfloat16, or auto: as the weights are.",
        panel=_SPEED,
    )
    compiled: bool = _setting(
        False, "Compile the model (slow start).", flag="--compile", panel=_SPEED
    )
    race: bool = _setting(
        False,
        "Drop candidates that show no promise on a part of the images: several times "
        "fewer model passes.",
        panel=_SPEED,
    )
    memory: int | None = _setting(
        None,
        "The most memory that the selection may take: 500M, 8G, 8GiB. Predictions beyond "
        "it are read from disk.",
        metavar="SIZE",
        shown=f"{SHARE:.0%} of what is free".replace("%", " %"),
        panel=_SPEED,
        read=parse_size,
    )
    store_precision: str = _setting(
        "auto",
        "Type of the predictions kept on disk: float32, float16 (half the size), or auto: "
        "float16 above 200 classes.",
        panel=_SPEED,
    )

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise unknown_name("strategy", self.strategy, STRATEGIES)
        if self.draws not in _DRAWS:
            raise RelookError(f"draws: expected {' or '.join(_DRAWS)}, got {self.draws!r}")
        if self.view_temperature is not None and not 0.05 <= self.view_temperature <= 20:
            raise RelookError(
                f"expected a view temperature from 0.05 to 20, got {self.view_temperature}"
            )
        if (
            self.strategy == "paper"
        ):  # its CIFAR pool has the plain image, its ImageNet pool has not
            object.__setattr__(self, "draws", "fresh")
            object.__setattr__(self, "plain", self.recipe.start is None)
        applies = self.objective == "cll" and self.draws == "fixed" and self.plain
        if self.strategy == "auto":
            object.__setattr__(self, "strategy", "conservative" if applies else "greedy")
        if self.strategy == "conservative" and not applies:
            raise RelookError(
                "the strategy conservative needs the objective cll, fixed draws and the plain "
                "image among the candidates: change these, or use the strategy greedy"
            )
        if self.cross_fit and self.race:
            raise RelookError(
                "a race judges candidates on all images, which leaves no unseen half to compare "
                "on: leave out race, or cross_fit (--cross-fit)"
            )
        if self.strategy == "conservative" and self.pool_size is None:
            object.__setattr__(self, "pool_size", CONSERVATIVE_SIZE)
        if not self.start_from:
            object.__setattr__(self, "start_from", ())
            return
        object.__setattr__(self, "start_from", start_policies(self.start_from))
        if self.draws == "fresh":
            raise RelookError(
                "start_from (--start-from) gives fixed views, got fresh draws: leave it out, or "
                "draws fresh and strategy paper"
            )

    @classmethod
    def of(
        cls, recipe: Recipe | str, exclude: Sequence[str] = (), **settings: Any
    ) -> SearchSettings:
        """Return settings with a recipe by its name, without some transforms."""
        return cls(get_recipe(recipe).without(exclude), **settings)

    def with_split(self, split: str | None, images: int) -> SearchSettings:
        """Return settings with the split of `images` images that `split` describes, if given."""
        if split is None:
            return self
        if self.cross_fit:
            raise RelookError(
                "cross_fit (--cross-fit) splits the images itself: leave out split or cross_fit"
            )
        shares = parse_split(split, images)
        return replace(self, holdout=shares.holdout, left_out=shares.left_out)

    @property
    def in_rounds(self) -> bool:
        """Whether candidates can be predicted in rounds, the most promising first."""
        return self.strategy == "conservative" and not self.race and not self.cross_fit

    def draw_pool(self) -> Pool:
        """Draw the candidates."""
        first = start_views(self.start_from, self.recipe) if self.start_from else ()
        if self.strategy == "conservative":
            return conservative_pool(self.recipe, self.pool_size, self.seed, first)
        size = self.pool_size
        if size is None:
            size = sum(group.count for group in self.recipe.groups) + self.plain
        first = tuple(view for view in first if not (self.plain and view.is_plain))
        first = first[: size - self.plain]
        size -= len(first)
        own: tuple[SubPolicy, ...] = ()
        if size or not first:
            own = sample_pool(self.recipe, size, self.seed, draws=self.draws, plain=self.plain)
        return Pool(first + tuple(view for view in own if view not in first))

    def stored_type(self, classes: int) -> str:
        """Return the type that predictions are stored in; a race works in float32."""
        if not self.race:
            return stored_type(self.store_precision, classes)
        if self.store_precision == "float16":
            raise RelookError(
                "a race works in float32: leave out race, or store_precision (--store-precision)"
            )
        return stored_type("float32", classes)

    def record(self) -> dict[str, JSON]:
        """Return everything that decides the result, as JSON-able data."""
        record = {
            setting.name: getattr(self, setting.name)
            for setting in fields(self)
            if setting.name != "memory"  # which is kept with the selection
        }
        if not isinstance(self.objective, str):
            record["objective"] = _name_of(self.objective)
        record["start_from"] = [policy_to_json(policy) for policy in self.start_from]
        return {**record, "recipe": self.recipe.to_json()}


class ModelKeywords(TypedDict, total=False):
    """The keywords of `relook.search` that describe its model."""

    mean: float | Sequence[float] | None
    std: float | Sequence[float] | None
    device: Any
    outputs: str | None
    layout: str | None
    output: str | None
    fingerprint: str | None
    pretrained: bool


class SearchKeywords(ModelKeywords, total=False):
    """The keywords of `relook.search`: the settings', a split, the time, and those of its model."""

    recipe: Recipe | str
    exclude: Sequence[str]
    strategy: str
    draws: DrawKind
    length: int
    pool_size: int | None
    start_from: StartFrom | Sequence[StartFrom] | None
    plain: bool
    objective: str | UserObjective
    view_temperature: float | None
    balanced: bool
    cross_fit: bool
    holdout: float
    split: str | None
    time: str | float | None
    effort: str | None
    plan: str | Path | None
    finish: bool
    reuse: bool
    seed: int
    batch: int | None
    accelerate: str
    precision: str
    compiled: bool
    race: bool
    memory: int | None
    store_precision: str


MODEL_KEYWORDS = tuple(ModelKeywords.__annotations__)


def _name_of(function: object) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}"
