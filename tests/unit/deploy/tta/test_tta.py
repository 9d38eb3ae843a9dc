import copy
import io
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support import refused
from tests.unit.deploy.exit_cases import some_rule
from tests.unit.deploy.photo_cases import PLAN, VIEWS, photo_policy, some_photos
from tests.unit.deploy.tta_cases import DARK, MEAN, PLAIN, STD, fixed_policy, network, some_images
from torch import Tensor, nn

import relook
from relook.data.image_files import reduce_photos
from relook.deploy import TTA
from relook.models import EnsemblePredictor, TorchPredictor, as_predictor
from relook.models.base import InputSpec
from relook.numerics.calibration import mean_log_probs, temper
from relook.policy import Policy, Step, SubPolicy
from relook.predictions.passes import View, predict_views
from relook.transforms.full_images import FullImages


def evaluated(policy: Policy, images: Tensor, length: int, first_index: int = 0) -> np.ndarray:
    """The path of search and compare: predictions of each entry, their mean, the temperature."""
    predictor = as_predictor(network(), mean=MEAN, std=STD)
    log_probs = predict_views(
        predictor,
        images,
        [View(sub, index) for index, sub in enumerate(policy[:length])],
        seed=policy.seed,
        indices=np.arange(first_index, first_index + len(images)),
    )
    assert policy.temperatures is not None
    return np.exp(temper(mean_log_probs(log_probs), policy.temperatures[length - 1]))


@pytest.mark.parametrize("max_batch", [None, 1, 7, 64])
def test_it_equals_the_evaluation(max_batch: int | None) -> None:
    policy, images = fixed_policy(), some_images()
    tta = TTA(network(), policy, mean=MEAN, std=STD, max_batch=max_batch)
    assert tta.views == 5  # one of the six is a repeat
    expected = evaluated(policy, images, 6)
    np.testing.assert_allclose(tta(images).numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(tta.predict_proba(images.numpy()), expected, atol=1e-6)


def test_arrays_may_have_the_layouts_that_a_search_takes() -> None:
    images = some_images()
    tta = TTA(network(), fixed_policy(), mean=MEAN, std=STD)
    last, labels = images.permute(0, 2, 3, 1), np.arange(len(images)) % 7
    for given in (last.numpy(), last):
        np.testing.assert_array_equal(tta.predict_proba(given), tta.predict_proba(images))
        np.testing.assert_array_equal(tta.predict(given), tta.predict(images))
        np.testing.assert_array_equal(
            tta.uncertainty(given).entropy, tta.uncertainty(images).entropy
        )
        refused("put the channels before height and width", tta, given)
    seen = [tta.calibrate(given, labels).policy.seen for given in (last.numpy(), images)]
    assert seen[0] == seen[1]
    refused("expected images with 3 channels", tta.predict_proba, images[:, 0].numpy())


def test_a_budget_takes_its_prefix_and_its_temperature() -> None:
    policy, images = fixed_policy(), some_images()
    tta = TTA(network(), policy, views=2, mean=MEAN, std=STD)
    assert len(tta.policy) == 3  # the repeat is free
    assert tta.temperature == policy.temperatures[2]  # type: ignore[index]
    np.testing.assert_allclose(tta(images).numpy(), evaluated(policy, images, 3), atol=1e-6)


def test_a_repeat_weighs_twice() -> None:
    images = some_images(4)
    net = network()
    plain, dark = (TTA(net, Policy((sub,)), temperature=None)(images) for sub in (PLAIN, DARK))
    both = TTA(net, Policy((PLAIN, DARK, PLAIN)), temperature=None)
    torch.testing.assert_close(both(images), (2 * plain + dark) / 3)


def test_outputs_are_what_they_are_called() -> None:
    images = some_images(4)
    made = {
        output: TTA(network(), fixed_policy(), output=output)(images)
        for output in ("probabilities", "log_probs", "logits")
    }
    torch.testing.assert_close(made["log_probs"].exp(), made["probabilities"])
    torch.testing.assert_close(made["logits"].softmax(-1), made["probabilities"])


def test_float_images_are_grey_levels() -> None:
    images = some_images()
    tta = TTA(network(), fixed_policy())
    assert torch.equal(tta(images), tta(images.float() / 255))
    assert torch.equal(tta(images), tta(images.double() / 255))


def test_predictions_are_names_where_classes_are_known() -> None:
    images = some_images()
    names = tuple("abcdefg")
    plain = TTA(network(), fixed_policy())
    named = TTA(network(), fixed_policy(), classes=names)
    assert plain.predict(images).dtype == np.int64
    assert named.predict(images).tolist() == [names[i] for i in plain.predict(images)]
    few = TTA(network(), fixed_policy(), classes=("a", "b"))
    refused("a name for each of the model's 7 classes, got 2", few.predict, images)


def test_a_predictor_brings_its_normalisation() -> None:
    images = some_images()
    predictor = TorchPredictor(network(), mean=MEAN, std=STD)
    tta = TTA(predictor, fixed_policy())
    assert tta.model is predictor.module
    torch.testing.assert_close(
        tta(images), TTA(network(), fixed_policy(), mean=MEAN, std=STD)(images)
    )


def test_a_predictor_that_is_no_module_works_too() -> None:
    images = some_images()
    members = [as_predictor(network(seed)) for seed in (1, 2)]
    tta = TTA(EnsemblePredictor(members), Policy((PLAIN,)), temperature=None)
    expected = torch.stack([member(images).exp() for member in members]).mean(0)
    torch.testing.assert_close(tta(images), expected)


@pytest.mark.parametrize("outputs", ["probabilities", "log_probs"])
def test_models_that_end_in_a_softmax(outputs: str) -> None:
    last = nn.Softmax(-1) if outputs == "probabilities" else nn.LogSoftmax(-1)
    tta = TTA(nn.Sequential(network(), last), fixed_policy(), outputs=outputs)
    torch.testing.assert_close(tta(some_images()), TTA(network(), fixed_policy())(some_images()))


class TestFreshDraws:
    policy = Policy(
        (SubPolicy((Step("rotate", 10),), Step("crop_flip", 4)), PLAIN),
        temperatures=(1.2, 1.3),
        recipe="cifar",
        seed=5,
    )

    def test_a_fresh_policy_is_frozen_by_seed(self) -> None:
        images = some_images(6)
        tta = TTA(network(), self.policy, temperature=None, seed=9)
        assert tta.policy == self.policy.freeze(9)
        assert torch.equal(tta(images), tta(images))
        assert not torch.equal(tta(images), TTA(network(), self.policy, temperature=None)(images))

    def test_frozen_here_it_has_no_temperature(self) -> None:
        refused("relook calibrate", TTA, network(), self.policy)

    def test_draws_go_by_the_image_s_index(self) -> None:
        images = some_images(6)
        tta = TTA(network(), self.policy, draws="fresh", mean=MEAN, std=STD, max_batch=4)
        expected = evaluated(self.policy, images, 2, first_index=3)
        np.testing.assert_allclose(tta(images, first_index=3).numpy(), expected, atol=1e-6)

    def test_calls_count_on(self) -> None:
        images = some_images(6)
        tta = TTA(network(), self.policy, draws="fresh")
        halves = torch.cat([tta(images[:4]), tta(images[4:])])
        torch.testing.assert_close(halves, tta(images, first_index=0))
        assert not torch.equal(tta(images), tta(images))


def test_a_policy_without_temperature_says_how_to_get_one() -> None:
    bare = replace(fixed_policy(), temperatures=None)
    refused(r"relook calibrate .*or say temperature=None", TTA, network(), bare)
    assert TTA(network(), bare, temperature=None).temperature == 1.0
    assert TTA(network(), bare, temperature=2).temperature == 2.0


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), "hot", True])
def test_strange_temperatures_are_refused(temperature: object) -> None:
    refused("temperature", TTA, network(), fixed_policy(), temperature=temperature)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (some_images().float(), "looks? like grey levels"),
        (some_images().float() / 128 - 1, "undo the normalisation"),
        (torch.full((2, 3, 32, 32), torch.nan), "NaN"),
        (some_images()[0], "shape"),
        (some_images()[:, :1], "expected images with 3 channels, as the network takes; got 1"),
        (some_images(side=16)[:, :, :12, :12], "about 32 pixels"),
        (some_images(side=96), "about 32 pixels"),
        (some_images()[:0], "at least 1 image"),
        (some_images().int(), "expected uint8"),
        ("cat.png", "got str"),
    ],
)
def test_wrong_images_are_refused(images: Tensor, message: str) -> None:
    tta = TTA(network(), fixed_policy(), mean=MEAN, std=STD)
    refused(message, tta, images)
    refused(".", tta.predict, images)


def test_a_stated_size_goes_before_the_recipe_s() -> None:
    images = some_images(side=96)
    assert TTA(network(), fixed_policy(), size=96)(images).shape == (10, 7)
    sized = TTA(network(), fixed_policy(), size=(96, 96))
    refused("expected images of 96×96", sized, some_images())
    predictor = TorchPredictor(network())
    predictor.input = InputSpec((48, 48))
    refused("expected images of 48×48", TTA(predictor, fixed_policy()), some_images())


def test_nan_from_the_network_is_refused() -> None:
    net = network()
    nn.init.constant_(net.head.bias, torch.nan)  # type: ignore[arg-type, union-attr]
    refused("NaN", TTA(net, fixed_policy()), some_images())


def test_the_model_stays_in_its_mode() -> None:
    net = network()
    tta = TTA(net, fixed_policy())
    expected = tta(some_images())
    before = copy.deepcopy(net.state_dict())
    tta.train()
    assert torch.equal(tta(some_images()), expected)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_calling_it_within_autograd() -> None:
    scale = torch.ones((), requires_grad=True)
    (TTA(network(), fixed_policy())(some_images()) * scale).sum().backward()
    assert scale.grad is not None


RULE = some_rule(fixed_policy(), (0.5,) * 4)


class TestStateDict:
    def test_round_trip_through_a_file(self) -> None:
        policy = replace(fixed_policy(), view_temperature=4.0)
        tta, other = (
            TTA(network(seed), policy, mean=MEAN, early_exit=some_rule(policy, (0.5,) * 4))
            for seed in (1, 2)
        )
        file = io.BytesIO()
        torch.save(tta.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(tta(some_images()), other(some_images()))

    @pytest.mark.parametrize(
        "other",
        [
            TTA(network(), fixed_policy(seed=4), mean=MEAN),
            TTA(network(), fixed_policy(), mean=MEAN, views=2),
            TTA(network(), fixed_policy(), mean=MEAN, temperature=1.0),
            TTA(network(), fixed_policy()),
            TTA(network(), replace(fixed_policy(), view_temperature=2.0), mean=MEAN),
            TTA(network(), fixed_policy(), mean=MEAN, early_exit=RULE),
        ],
        ids=["policy", "budget", "temperature", "normalisation", "average", "early exit"],
    )
    def test_another_policy_is_an_error(self, other: TTA) -> None:
        own = TTA(network(), fixed_policy(), mean=MEAN).state_dict()
        refused("another policy, temperature or normalisation", other.load_state_dict, own)

    def test_a_bare_network_s_weights_go_into_the_model(self) -> None:
        tta = TTA(network(), fixed_policy())
        tta.model.load_state_dict(network(2).state_dict())
        assert torch.equal(tta(some_images()), TTA(network(2), fixed_policy())(some_images()))


def test_a_copy_is_a_model_of_its_own() -> None:
    tta = TTA(network(), fixed_policy())
    twin = copy.deepcopy(tta)
    expected = tta(some_images())
    with torch.no_grad():
        next(tta.model.parameters()).zero_()
    assert torch.equal(twin(some_images()), expected)
    assert not torch.equal(tta(some_images()), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    tta = TTA(network(), fixed_policy(), mean=MEAN, std=STD)
    expected = tta(some_images())
    changed = tta.to(dtype)(some_images())
    assert changed.dtype == torch.float32
    torch.testing.assert_close(changed, expected, atol=0.03, rtol=0)


def test_a_policy_file_will_do(tmp_path: Path) -> None:
    fixed_policy().save(tmp_path / "policy.json")
    tta = relook.TTA(network(), tmp_path / "policy.json")
    assert torch.equal(tta(some_images()), TTA(network(), fixed_policy())(some_images()))


def test_it_says_what_it_is() -> None:
    assert "views=5, temperature=1.6, output='probabilities'" in repr(
        TTA(network(), fixed_policy())
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "odds"}, "unknown output 'odds'"),
        ({"views": 0}, "at least 1 view"),
        ({"views": 2.0}, "whole number"),
        ({"max_batch": 0}, "max_batch"),
        ({"draws": "none"}, "'fixed' or 'fresh'"),
        ({"colour": 1}, "unknown keyword of TTA 'colour'"),
        ({"viwes": 3}, "unknown keyword of TTA 'viwes': did you mean 'views'"),
    ],
)
def test_strange_options_are_refused(options: dict[str, object], message: str) -> None:
    refused(message, TTA, network(), fixed_policy(), **options)


def test_an_empty_policy_is_refused() -> None:
    refused("at least one sub-policy", TTA, network(), Policy(()), temperature=None)


# Photos: views are cut from them as in the search, whatever they come as.


def test_photos_are_cut_as_in_the_search_whatever_they_come_as() -> None:
    tta, photos = relook.TTA(network(), photo_policy()), some_photos()
    wanted = tta(reduce_photos(FullImages.of(photos, PLAN))).numpy()
    as_tensors = [torch.from_numpy(one).permute(2, 0, 1) for one in photos]
    as_pictures = [Image.fromarray(one) for one in photos]
    floats = [one / 255 for one in as_tensors]
    for given in (photos, tuple(photos), as_tensors, as_pictures, floats):
        np.testing.assert_array_equal(tta(given).numpy(), wanted)
    assert np.allclose(tta.predict_proba(photos * 3), np.tile(wanted, (3, 1)), atol=1e-6)
    assert tta.uncertainty(photos).entropy.shape == (5,)
    batch = np.stack(some_photos(*[(45, 80)] * 3)).transpose(0, 3, 1, 2)
    for larger in (batch, torch.from_numpy(batch)):
        assert np.allclose(tta(larger).numpy()[0], wanted[0], atol=1e-6)


def test_images_of_the_input_s_size_are_taken_as_before_with_one_warning() -> None:
    tta = relook.TTA(network(), photo_policy())
    with pytest.warns(UserWarning, match="searched on photos"):
        found = tta(some_images(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tta(some_images(2))
        plain = replace(photo_policy(), subpolicies=VIEWS[:1], temperatures=(1.0,))
        relook.TTA(network(), plain)(some_images(2))  # the plain view is the image either way
        unmarked = photo_policy(replace(PLAN, full_size=False))
        before = relook.TTA(network(), unmarked)(some_images(2))
    assert torch.equal(found, before)


def test_a_policy_that_was_not_searched_on_photos_takes_them_in_a_list() -> None:
    unmarked, photos = photo_policy(replace(PLAN, full_size=False)), some_photos()
    wanted = relook.TTA(network(), photo_policy())(photos)
    assert torch.equal(relook.TTA(network(), unmarked, size=32)(photos), wanted)
    refused("expected size", relook.TTA(network(), replace(unmarked, preparation=None)), photos)
    batch = torch.zeros((2, 3, 45, 80), dtype=torch.uint8)
    refused("expected images of 32×32", relook.TTA(network(), unmarked, size=32), batch)


def test_what_is_no_photo_is_said() -> None:
    tta = relook.TTA(network(), photo_policy())
    grey = np.zeros((40, 50, 1), np.uint8)
    refused(r"photo 1: expected uint8 \[h, w, 3\]", tta, [some_photos()[0], grey])
    refused("photo 0: expected uint8", tta, [np.zeros((40, 50, 3))])
    refused("photo 0: it is too long and thin", tta, [np.zeros((1, 90_000_000, 3), np.uint8)[:, :]])
    refused("at least 1 image", tta, [])
