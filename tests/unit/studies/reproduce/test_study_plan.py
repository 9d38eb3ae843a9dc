"""The plans of the studies that are shipped, and what a changed setting runs again."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor

from relook.studies.reproduce.cost import estimated_seconds, passes_of, pool_size
from relook.studies.reproduce.file import load_study
from relook.studies.reproduce.plan import Job, make_plan, search_settings
from relook.studies.reproduce.settings import StudyFile

STUDIES = Path(__file__).parents[4] / "studies"


def shipped(name: str, *settings: str) -> StudyFile:
    """Read a study that is shipped; what lies beside images is looked for in one place."""
    data = ["CIFAR-10=/images"] if name == "shared-cifar10-paper" else []
    return load_study(STUDIES / f"{name}.toml", settings=settings, data=data)


def plan_of(name: str, *settings: str) -> tuple[Job, ...]:
    return make_plan(shipped(name, *settings))


@pytest.mark.parametrize(
    ("name", "jobs", "pool"),
    [
        ("cifar10", {"train": 6, "search": 6, "magnitudes": 6, "compare": 6, "robustness": 3,
                     "transfer": 1}, 1101),
        ("cifar100", {"train": 10, "search": 6, "magnitudes": 6, "compare": 6, "robustness": 3,
                      "objectives": 3, "transfer": 1, "ensembles": 1}, 1101),
        ("cifars", {"train": 6, "search": 6, "transfer": 1}, 1101),
        ("imagenet", {"search": 3, "compare": 3, "robustness": 3, "transfer": 1}, 900),
        ("digits", {"train": 5, "search": 4, "magnitudes": 4, "compare": 4, "robustness": 2,
                    "objectives": 2, "transfer": 1, "ensembles": 1}, None),
        ("shared-cifar10", {"search": 5, "magnitudes": 5, "compare": 5, "robustness": 1,
                            "objectives": 1}, 100),
        ("shared-cifar10-paper", {"search": 3, "magnitudes": 1, "compare": 3, "transfer": 1,
                                  "ensembles": 1}, 150),
        ("shared-cifar100", {"search": 2, "compare": 2}, 100),
    ],
)  # fmt: skip
def test_the_shipped_studies_have_the_papers_jobs(
    name: str, jobs: dict[str, int], pool: int | None
) -> None:
    study = shipped(name)
    assert Counter(job.part for job in make_plan(study)) == jobs
    if pool is not None:
        assert pool_size(study) == pool == len(search_settings(study).draw_pool().candidates)


def test_the_readme_lists_every_study() -> None:
    listed = (STUDIES / "README.md").read_text()
    assert all(f"| [{one.name}]({one.name}) |" in listed for one in STUDIES.glob("*.toml"))


def test_the_papers_settings_are_in_the_files() -> None:
    for name in ("cifar10", "cifar100"):
        study = shipped(name)
        (data,) = study.data.values()
        assert (data.train_images, data.validation, data.test_images) == (50_000, 5_000, 10_000)
        assert study.train.augments == ("randaugment", "crop_flip")
        assert (study.train.epochs, study.train.batch) == (2000, 128)
        assert study.train.learning_rate == 0.1
        decays = {model.network: model.weight_decay for model in study.models.values()}
        assert decays == {
            "cifar:vgg16": 3e-4,
            "cifar:preresnet110": 3e-4,
            "cifar:wrn28x10": 5e-4,
        }
        assert study.search.length == 100
        assert study.compare.table == (5, 10, 100)
        assert study.compare.runs == 5
        assert (study.train.length, study.train.magnitude) == (3, 45)
        assert study.magnitudes.grid == tuple(range(0, 60, 5))
    assert shipped("cifar100").models["WideResNet28x10"].members == 5
    study = shipped("imagenet")
    assert study.search.length == 20
    assert study.compare.budgets == (5, 10, 20)
    assert [name for name, model in study.models.items() if not model.searched] == [
        "EfficientNet L2"
    ]
    settings = search_settings(study)
    assert (settings.draws, settings.plain) == ("fresh", False)


def test_passes_are_counted_by_hand() -> None:
    study = shipped("cifar10")
    passes = {job.title: passes_of(job, study) for job in make_plan(study)}
    # Three for each image and epoch, on 45,000 images and then on 50,000.
    assert passes["train cifar-10-vgg-randaugment"] == 3 * 2000 * 95_000
    # The pool; then the policy, as many crops and the plain image on the test images.
    assert passes["search cifar-10-vgg-randaugment"] == 1101 * 5000 + 201 * 10_000
    assert passes["magnitudes cifar-10-vgg-randaugment"] == 12 * 100 * 5000
    # CF, MTrain, MGrid and the policy with five draws each, and the plain image.
    assert passes["compare cifar-10-vgg-randaugment"] == (4 * 5 * 100 + 1) * 10_000
    # CF, MGrid, the policy and the plain image, clean and under 15 corruptions × 5 severities.
    assert passes["robustness cifar-10-vgg-randaugment"] == 301 * 10_000 * 76
    # Three policies and CF, five draws each, and the plain image on three networks.
    assert passes["transfer all"] == 3 * (4 * 5 * 100 + 1) * 10_000


def test_images_that_nobody_counted_leave_passes_open() -> None:
    study = shipped("digits", "data.digits={train='digits:train', test='digits:test'}")
    assert {passes_of(job, study) for job in make_plan(study)} == {None}


def marks(*settings: str) -> dict[str, str]:
    return {job.title: job.mark for job in plan_of("digits", *settings)}


@pytest.mark.parametrize(
    ("setting", "changed"),
    [
        ("robustness.images=100", {"robustness"}),
        ("compare.runs=3", {"compare"}),
        ("transfer.runs=3", {"transfer"}),
        ("objectives.runs=3", {"objectives"}),
        ("ensembles.budgets=[3]", {"ensembles"}),
        ("search.length=3", {"search", "compare", "robustness", "objectives", "transfer",
                             "ensembles"}),
        ("magnitudes.views=3", {"magnitudes", "compare", "robustness", "ensembles"}),
        ("train.epochs=3", {"train", "search", "magnitudes", "compare", "robustness", "objectives",
                            "transfer", "ensembles"}),
        ("compare.table=[5]", set()),
        ("title=other", set()),
        ("train.threads=2", set()),
    ],
)  # fmt: skip
def test_a_changed_setting_changes_what_depends_on_it(setting: str, changed: set[str]) -> None:
    before, after = marks(), marks(setting)
    assert before.keys() == after.keys()
    different = {title.split()[0] for title in before if before[title] != after[title]}
    assert different == changed


def test_a_changed_network_leaves_the_other_alone() -> None:
    before, after = marks(), marks("models.Wide.network=small:12")
    different = {title for title in before if before[title] != after[title]}
    assert different
    assert all("wide" in title or title == "transfer all" for title in different)


def test_studies_share_the_jobs_of_the_same_settings() -> None:
    shared = {job.mark for job in (*plan_of("cifar10"), *plan_of("cifar100"))}
    own = [job.title for job in plan_of("cifars") if job.mark not in shared]
    assert own == ["transfer all"]


def test_a_part_brings_what_it_needs_each_job_after_its_needs() -> None:
    study = shipped("digits")
    plan = make_plan(study, ["robustness"])
    assert Counter(job.part for job in plan) == {
        "train": 2, "search": 2, "magnitudes": 2, "robustness": 2
    }  # fmt: skip
    assert {job.part for job in make_plan(study, ["statistics"])} == {"train", "search"}
    places = {job.mark: place for place, job in enumerate(plan)}
    assert all(places[need.mark] < places[job.mark] for job in plan for need in job.needs)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[data.A]\npath = "here"\ntest = "npz:{path}/a.npz?layout=nchw"\n'
        '[models.M]\nspec = "small@weights/m.safetensors"\n'
    )
    plan = make_plan(load_study(tmp_path / "mine.toml"), ["search"])
    (search,) = plan
    assert search.settings["test"] == f"npz:{tmp_path}/here/a.npz?layout=nchw"
    assert search.settings["model"]["spec"] == f"small@{tmp_path}/weights/m.safetensors"


def test_given_models_are_beside_the_images_and_make_up_an_ensemble() -> None:
    study = shipped("shared-cifar10-paper")
    assert study.models["ResNet-20"].spec == "onnx:/images/onnx/akamaster-resnet20-cifar10.onnx"
    (job,) = [job for job in make_plan(study) if job.part == "ensembles"]
    assert [entry.model for entry in job.entries] == list(study.ensembles.models)
    other = plan_of("shared-cifar10-paper", 'models.ResNet-32.outputs="probabilities"')
    (changed,) = [one for one in other if one.part == "ensembles"]
    assert changed.mark != job.mark


def test_a_part_may_be_of_some_models_and_their_jobs_stay_the_same() -> None:
    study = shipped("digits")
    name = next(iter(study.models))
    some = shipped("digits", f'robustness.models=["{name}"]')
    one, every = make_plan(some, ["robustness"]), make_plan(study, ["robustness"])
    assert {job.entry.model for job in one} == {name}
    assert {job.entry.model for job in every} == set(study.models)
    assert {job.mark for job in one} < {job.mark for job in every}


def test_an_ensemble_waits_for_the_searches_whose_pools_it_uses() -> None:
    study = shipped("shared-cifar10-paper")
    (job,) = [job for job in make_plan(study) if job.part == "ensembles"]
    assert all(job.needs_of("search", entry) for entry in job.entries)
    assert job.need("magnitudes").entry == job.entry
    alone = replace(job, needs=())
    pools = 3 * pool_size(study) * 2500
    assert passes_of(alone, study) == (passes_of(job, study) or 0) + pools


def test_names_in_shared_tables_are_part_of_what_decides_them(tmp_path: Path) -> None:
    text = '[data.A]\ntest = "digits:test"\n'
    marks = []
    for first, second in (("8", "16"), ("16", "8")):
        path = tmp_path / "mine.toml"
        one, two = (
            f'[models.{n}]\nspec = "small:{w}@w{w}"\n'
            for n, w in zip("MN", (first, second), strict=True)
        )
        path.write_text(text + one + two + '[ensembles]\nmodels = ["M", "N"]\n')
        parts = make_plan(load_study(path), ["transfer", "ensembles"])
        marks.append({job.part: job.mark for job in parts if len(job.entries) > 1})
    assert marks[0]["transfer"] != marks[1]["transfer"]
    assert marks[0]["ensembles"] != marks[1]["ensembles"]


def test_the_batch_is_part_of_every_mark() -> None:
    one, other = plan_of("digits"), plan_of("digits", "batch=32")
    judged = [(a, b) for a, b in zip(one, other, strict=True) if a.part != "train"]
    assert all(a.mark != b.mark for a, b in judged)
    assert all(a.mark == b.mark for a, b in zip(one, other, strict=True) if a.part == "train")


def test_an_ensemble_searches_for_a_magnitude_only_where_it_is_compared() -> None:
    without, grid = (
        make_plan(shipped("shared-cifar10-paper", f"ensembles.methods={methods}"), ["ensembles"])
        for methods in ('["plain", "cf"]', '["plain", "mgrid"]')
    )
    assert {job.part for job in grid} - {job.part for job in without} == {"magnitudes"}


def test_the_time_is_measured_in_the_batches_that_will_run(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, int | None]] = []

    def estimate(
        _: object, images: Tensor, views: object, *, seed: int, batch: int | None
    ) -> float:
        taken.append((len(images), batch))
        return 0.5

    monkeypatch.setattr("relook.studies.reproduce.cost.estimate", estimate)
    study = shipped("digits", "batch=96", "models.Wide.batch=200")
    plan = plan_of("digits", "batch=96", "models.Wide.batch=200")
    seconds = estimated_seconds(study, plan)
    assert [batch for _, batch in taken] == [96, 200]
    assert all(images >= 200 for images, _ in taken)
    assert seconds == {job.mark: 0.5 * (passes_of(job, study) or 0) for job in plan}
