"""Study files: read strictly, one line for whatever is wrong."""

from pathlib import Path

import pytest
from tests.support import refused

from relook.errors import RelookError
from relook.studies.reproduce.file import load_study

STUDY = """
recipe = "small"

[data.digits]
train = "digits:train"
test = "digits:test"

[models.Small]
network = "small:8"

[compare]
budgets = [5, 10]
"""


def written(tmp_path: Path, text: str = STUDY) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    study = load_study(written(tmp_path))
    assert study.name == "mine"
    assert study.views.name == "small"
    assert study.compare.budgets == (5, 10)
    assert study.compare.runs == 1
    assert study.models["Small"].network == "small:8"
    assert study.data["digits"].split == "0.5:0.5"


def test_settings_stand_in_place_of_the_files(tmp_path: Path) -> None:
    path = written(tmp_path, STUDY.replace('test = "digits:test"', 'test = "npz:{path}/a.npz"'))
    study = load_study(
        path,
        settings=["compare.runs=3", "compare.budgets=[2, 4]", "search.strategy=paper"],
        data=[f"digits={tmp_path}"],
    )
    assert study.compare.runs == 3
    assert study.compare.budgets == (2, 4)
    assert study.search.strategy == "paper"
    assert study.data["digits"].path == str(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("budgets", "budgts"), "compare: unknown key 'budgts': did you mean 'budgets'?"),
        (("[compare]", "[comparing]"), "unknown key 'comparing': did you mean 'compare'?"),
        (("[5, 10]", '"5"'), 'compare.budgets: expected a list of whole numbers ≥ 1, got "5"'),
        (("[5, 10]", "[5, 1.5]"), "compare.budgets[1]: expected a whole number ≥ 1, got 1.5"),
        (("[5, 10]", "[0]"), "compare.budgets[0]: expected a whole number ≥ 1, got 0"),
        (("[5, 10]", "[]"), "compare.budgets: expected a list of whole numbers ≥ 1, got a"),
        (("[5, 10]", "[5]\nruns = true"), "compare.runs: expected a whole number ≥ 1, got true"),
        (("[5, 10]", "[5]\nruns = 0"), "compare.runs: expected a whole number ≥ 1, got 0"),
        (("[5, 10]", "[5]\ntable = [7]"), "compare.table: 7 is not among compare.budgets"),
        (("[5, 10]", '[5]\nmethods = ["cv"]'), "compare.methods: unknown method 'cv'"),
        (("[5, 10]", "[5]\nruns = 1" + "0" * 30), "compare.runs: expected a whole number ≥ 1, got"),
        (("[5, 10]", "[5]\ntrain_magnitude = inf"), "expected a TOML file: a number beyond the"),
        (('"small:8"', "8"), "models.Small.network: expected a text, got 8"),
        (('network = "small:8"', ""), "models.Small: expected either network or spec, got neither"),
        (('"small:8"', '"small"\nspec = "small@x"'), "expected either network or spec, got both"),
        (("[models.Small]", "[Small]"), "models: expected a table [models.NAME] for each"),
        (('test = "digits:test"', ""), 'data.digits: expected the key "test", got none'),
        (('train = "digits:train"', ""), "expected the key data.digits.train"),
        (('"digits:test"', '"npz:{path}"'), "{path} stands for data.digits.path, which is missing"),
        (('network = "small:8"', 'spec = "onnx:{path}/a.onnx"'),
         "models.Small.spec: {path} stands for the path of the study's one data set"),
        (('"small:8"', '"small"\noutputs = "logits"'), "models.Small.outputs: expected only with"),
        (('"small:8"', '"small"\noutputs = "logit"'), "models.Small.outputs: unknown kind of"),
        (("[compare]", '[ensembles]\nmodels = ["Small"]\n[compare]'),
         "ensembles.models: unknown model that is given by its spec 'Small'"),
        (("[compare]", '[robustness]\nmodels = ["Smal"]\n[compare]'),
         "robustness.models: unknown model with a search 'Smal': did you mean 'Small'?"),
        (('"small:8"', '"small:8"\nmembers = 2\n[search]\nrace = true'),
         "search.race: a race drops different candidates for each member"),
        (('"small:8"', '"small:8"\n[search]\ncross_fit = true'),
         "search.cross_fit: a cross-fit holds out no images, which the part objectives scores on"),
        (("[compare]", '[search]\ndraws = "often"\n[compare]'),
         "search.draws: unknown kind of draws 'often'"),
        (('"small"', '"smal"'), "recipe: unknown recipe 'smal': did you mean 'small'?"),
        (("recipe", 'parts = ["serch"]\nrecipe'), "parts: unknown part 'serch'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = written(tmp_path, STUDY.replace(*change, 1))
    with pytest.raises(RelookError) as caught:
        load_study(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("settings", "data", "message"),
    [
        (["compare.runs"], [], "--set: expected KEY=VALUE"),
        (["compare runs=1"], [], "--set: expected a key such as compare.runs"),
        (["compare.runz=1"], [], "compare: unknown key 'runz': did you mean 'runs'?"),
        (["recipe.name=1"], [], "recipe is not a table"),
        ([], ["digit=/x"], "unknown data set of"),
        ([], ["digits"], "--data: expected NAME=PATH"),
    ],
)
def test_a_bad_option_is_one_line(
    tmp_path: Path, settings: list[str], data: list[str], message: str
) -> None:
    path = written(tmp_path)
    with pytest.raises(RelookError) as caught:
        load_study(path, settings=settings, data=data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"a = ", b"\xff\xfe", b"a = [" * 5000])
def test_what_is_no_toml_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    refused("expected a TOML file", load_study, path)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RelookError, match="expected a study, got nothing: there is no such file"):
        load_study(tmp_path / "none.toml")


def test_given_models_and_kept_back_images_do_not_go_together(tmp_path: Path) -> None:
    given = STUDY.replace('network = "small:8"', 'spec = "small@x.safetensors"')
    path = written(tmp_path, given.replace("[models", "validation = 5\n[models"))
    refused(r"data.digits.validation: .*models.Small is already trained", load_study, path)


def test_names_that_make_the_same_files_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, STUDY + '[models."small"]\nnetwork = "small"\n')
    refused("names that differ in letters or digits", load_study, path)
