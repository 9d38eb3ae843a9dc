"""The contents of a study file as frozen data: models, data sets, and the settings of parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from relook.evaluation.baselines import GRID, Options
from relook.policy.recipes import Recipe, get_recipe

PARTS = (
    "train",
    "search",
    "compare",
    "robustness",
    "transfer",
    "ensembles",
    "objectives",
    "magnitudes",
    "statistics",
    "temperature",
)
"""All parts of a study, in the order that they are run."""

GIVEN = "given"
"""Stands for the augmentation of a network that the study does not train."""

VANILLA = "crop_flip"
"""The augmentation that the paper calls vanilla."""

_LARGEST = 10**15

Count = Annotated[int, Meta(ge=1, le=_LARGEST, description="a whole number ≥ 1")]
"""Images, views, networks, epochs: at least one."""
Length = Annotated[int, Meta(ge=0, le=_LARGEST, description="a whole number ≥ 0")]
Magnitude = Annotated[float, Meta(ge=0, description="a number ≥ 0")]
Budgets = Annotated[
    tuple[Count, ...], Meta(min_length=1, description="a list of whole numbers ≥ 1")
]


def _named(key: str) -> Meta:
    return Meta(min_length=1, description=f"a table [{key}.NAME] for each")


@dataclass(frozen=True)
class StudyData:
    """One data set, with images to train, search and score networks on.

    `train`, `test` and `corrupted` may contain `{path}`, which stands for `path`. `validation` is
    the number of training images to hold out for the searches, stratified by class; networks are
    then trained again on all images for scoring. Without it, `split` divides the test images into
    those to search on and those to score on. `train_images` and `test_images` are the numbers of
    images in the sets.
    """

    test: str
    path: str | None = None
    train: str | None = None
    corrupted: str | None = None
    validation: Count | None = None
    split: str = "0.5:0.5"
    train_images: Count | None = None
    test_images: Count | None = None


@dataclass(frozen=True)
class StudyModel:
    """One model: a `network` to train, or the `spec` of a trained one.

    A `spec` may contain `{path}`, which stands for the path of the study's one data set. `outputs`,
    `mean` and `std` are only needed if the model's source does not define them. The default of
    `weight_decay` is the paper's for the network. `members` networks are trained from different
    seeds; the first one is in the tables, and all form an ensemble. A model that is not `searched`
    gets the others' policies.
    """

    network: str | None = None
    spec: str | None = None
    outputs: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    pretrained: bool = False
    weight_decay: float | None = None
    members: Count = 1
    searched: bool = True
    size: Count | None = None
    batch: Count | None = None


@dataclass(frozen=True)
class TrainPart:
    """How networks are trained; the main tables show those of the first augmentation.

    RandAugment has `length` steps with magnitudes uniform on [0, `magnitude`].
    """

    augments: tuple[str, ...] = ("randaugment",)
    length: Length = Options.length
    magnitude: Magnitude = Options.magnitude
    epochs: Count = 2000
    batch: Count = 128
    learning_rate: float = 0.1
    threads: Count | None = None


@dataclass(frozen=True)
class SearchPart:
    """How policies are searched for."""

    strategy: str = "greedy"
    draws: str = "fixed"
    length: Count = 20
    pool_size: Count | None = None
    objective: str = "cll"
    plain: bool = True
    race: bool = False
    cross_fit: bool = False


@dataclass(frozen=True)
class ComparePart:
    """How policies are compared with baselines; `table` has the budgets of the tables.

    `train_length` and `train_magnitude` are MTrain's for given models; for networks that the study
    trains, they are those of the training.
    """

    methods: tuple[str, ...] = ("cf", "mtrain", "mgrid")
    budgets: Budgets = (5, 10, 20)
    table: tuple[int, ...] = ()
    runs: Count = 1
    train_length: Length = Options.length
    train_magnitude: Magnitude = Options.magnitude


@dataclass(frozen=True)
class RobustnessPart:
    """The study of domain shift; `images` limits the number of images to score on.

    The default of `models` is all models with a search.
    """

    models: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("cf", "mgrid")
    budgets: Budgets = (5, 10, 20)
    corruptions: tuple[str, ...] | None = None
    severities: tuple[int, ...] | None = None
    images: Annotated[int, Meta(ge=4, description="a whole number ≥ 4")] | None = None
    runs: Count = 1


@dataclass(frozen=True)
class TransferPart:
    """Every policy on every model, at equal views, alongside the baselines `methods`."""

    methods: tuple[str, ...] = ("plain", "cf")
    budgets: Budgets = (5, 10, 20)
    runs: Count = 1


@dataclass(frozen=True)
class EnsemblesPart:
    """Policies of ensembles: of each model with several members, and of `models` together."""

    models: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("plain", "cf", "mtrain", "mgrid")
    budgets: Budgets = (5, 10, 20)
    runs: Count = 1


@dataclass(frozen=True)
class ObjectivesPart:
    """Searches by several objectives; the default of `models` is all models with a search."""

    models: tuple[str, ...] = ()
    objectives: tuple[str, ...] = ("accuracy", "ll", "cll")
    views: Count | None = None
    runs: Count = 1


@dataclass(frozen=True)
class MagnitudesPart:
    """RandAugment at each magnitude; MGrid uses the best one."""

    views: Count = Options.grid_views
    grid: tuple[float, ...] = GRID


@dataclass(frozen=True)
class StudyFile:
    """A whole study."""

    name: str
    data: Annotated[dict[str, StudyData], _named("data")]
    models: Annotated[dict[str, StudyModel], _named("models")]
    title: str = ""
    recipe: str = "cifar"
    exclude: tuple[str, ...] = ()
    seed: int = 0
    batch: Count | None = None
    parts: tuple[str, ...] = PARTS
    train: TrainPart = field(default_factory=TrainPart)
    search: SearchPart = field(default_factory=SearchPart)
    compare: ComparePart = field(default_factory=ComparePart)
    robustness: RobustnessPart = field(default_factory=RobustnessPart)
    transfer: TransferPart = field(default_factory=TransferPart)
    ensembles: EnsemblesPart = field(default_factory=EnsemblesPart)
    objectives: ObjectivesPart = field(default_factory=ObjectivesPart)
    magnitudes: MagnitudesPart = field(default_factory=MagnitudesPart)

    @property
    def views(self) -> Recipe:
        """The recipe that policies and baselines are drawn from."""
        return get_recipe(self.recipe).without(self.exclude)

    @property
    def searched(self) -> list[str]:
        """The models with a search."""
        return [name for name, model in self.models.items() if model.searched]

    @property
    def given(self) -> list[str]:
        """The models that the study does not train."""
        return [name for name, model in self.models.items() if model.network is None]

    def batch_of(self, model: str) -> int | None:
        """Return the number of images per call of a model."""
        return self.models[model].batch or self.batch

    def augments(self, model: str) -> tuple[str, ...]:
        """Return the augmentations of a model's trainings; `given` if it is not trained here."""
        return (GIVEN,) if model in self.given else self.train.augments

    def randaugment(self, model: str) -> tuple[int, float]:
        """Return the length and magnitude of RandAugment that a model was trained with."""
        if model in self.given:
            return self.compare.train_length, self.compare.train_magnitude
        return self.train.length, self.train.magnitude
