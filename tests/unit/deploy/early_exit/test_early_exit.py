import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp, softmax
from tests.support import refused
from tests.unit.deploy.exit_cases import policy_of, predictions, some_rule
from tests.unit.deploy.tta_cases import MEAN, STD, fixed_policy, network, some_images

from relook.deploy.early_exit.rule import EarlyExit, apply_early_exit, exit_counts
from relook.deploy.tta import TTA
from relook.errors import FileFormatError, RelookError
from relook.policy import Policy
from relook.policy.pool import sample_pool


def _one_by_one(
    rule: EarlyExit, log_probs: np.ndarray, policy: Policy, image: int
) -> tuple[int, np.ndarray]:
    """The rule as its words say it, with one image at a time."""
    places = [sub for sub, _ in policy.counts()]
    for views, temperature in enumerate(rule.temperatures, start=1):
        prefix = policy.for_budget(views)
        rows = np.stack([log_probs[places.index(sub), image] for sub in prefix]).astype(float)
        average = logsumexp(rows, axis=0) - np.log(len(rows))
        prediction = softmax(np.maximum(average, -80) / temperature)
        if views == rule.views or prediction.max() > rule.thresholds[views - 1]:
            return views, prediction
    raise AssertionError


def test_each_image_stops_where_the_rule_says() -> None:
    policy = fixed_policy(6)  # five distinct views, the second of them twice
    log_probs, _ = predictions(300, views=5)
    rule = some_rule(policy, (0.9, 0.85, 0.8, 0.6))
    exited = apply_early_exit(rule, log_probs, exit_counts(policy))
    assert set(exited.views) == {1, 2, 3, 4, 5}
    for image in range(300):
        views, prediction = _one_by_one(rule, log_probs, policy, image)
        assert exited.views[image] == views
        np.testing.assert_allclose(np.exp(exited.log_probs[image]), prediction, atol=1e-12)


def test_an_exit_averages_what_its_budget_would() -> None:
    one, two, three = sample_pool("cifar", 5, 0)[1:4]
    counts = exit_counts(Policy((one, two, one, one, three, two)))
    assert counts.tolist() == [[1, 0, 0], [3, 1, 0], [3, 2, 1]]


def _rule_for(tta: TTA, images: torch.Tensor) -> EarlyExit:
    """A rule whose thresholds are the medians of the confidence, so that exits differ."""
    rows = tta.view_log_probs(images).double().numpy()
    thresholds = []
    for row, own in enumerate(exit_counts(tta.policy)[:-1]):
        shares = np.log(own[: row + 1] / own.sum())[:, None, None]
        average = logsumexp(rows[: row + 1] + shares, axis=0)
        calibrated = log_softmax(average / (1.0 + 0.1 * row), axis=-1)
        thresholds.append(float(np.median(np.exp(calibrated.max(axis=-1)))))
    return some_rule(tta.policy, tuple(thresholds))


def test_the_module_runs_only_the_views_that_are_needed() -> None:
    policy, model, images = fixed_policy(6), network(), some_images(40)
    full = TTA(model, policy, mean=MEAN, std=STD)
    rule = _rule_for(full, images)
    tta = TTA(model, policy, mean=MEAN, std=STD, early_exit=rule, max_batch=16)
    expected = apply_early_exit(rule, full.view_log_probs(images).numpy(), exit_counts(policy))
    passes: list[int] = []
    handle = tta.model.register_forward_hook(lambda _, __, out: passes.append(len(out)))
    exited = tta.exit_early(images)
    handle.remove()
    assert exited.views.tolist() == expected.views.tolist()
    assert len(set(expected.views.tolist())) >= 4
    assert sum(passes) == expected.views.sum() < 40 * tta.views
    assert max(passes) <= 16
    np.testing.assert_allclose(exited.log_probs, expected.log_probs, atol=1e-4)
    np.testing.assert_allclose(tta(images), np.exp(expected.log_probs), atol=1e-5)
    np.testing.assert_allclose(tta.predict_proba(images), tta(images), atol=1e-5)
    assert tta.predict(images).tolist() == expected.log_probs.argmax(axis=1).tolist()


def test_outputs_and_any_batch_agree() -> None:
    policy, model, images = fixed_policy(5), network(), some_images(12)
    rule = _rule_for(TTA(model, policy, mean=MEAN, std=STD), images)
    made = {
        output: TTA(model, policy, mean=MEAN, std=STD, early_exit=rule, output=output)
        for output in ("probabilities", "log_probs", "logits")
    }
    whole = made["probabilities"](images)
    torch.testing.assert_close(made["log_probs"](images).exp(), whole)
    torch.testing.assert_close(made["logits"](images).softmax(-1), whole)
    single = torch.cat([made["probabilities"](images[i : i + 1]) for i in range(12)])
    torch.testing.assert_close(single, whole, atol=1e-5, rtol=1e-4)


def test_each_exit_has_its_own_temperature() -> None:
    policy = fixed_policy(5)
    rule = some_rule(policy, (0.5,) * 3)
    assert TTA(network(), policy, early_exit=rule).temperature == rule.temperatures[-1]
    refused("a temperature of its own", TTA, network(), policy, early_exit=rule, temperature=2.0)


def test_a_rule_of_another_policy_or_budget_is_refused() -> None:
    policy = fixed_policy(6)
    rule = some_rule(policy, (0.5,) * 4)
    bare = replace(policy, temperatures=None)
    assert TTA(network(), bare, early_exit=rule).temperature == rule.temperatures[-1]
    for wrong in ({"policy": fixed_policy(6, seed=9)}, {"policy": policy, "views": 3}):
        refused("belongs to another policy", TTA, network(), **wrong, early_exit=rule)


def test_fresh_draws_and_exporting_are_refused() -> None:
    fresh = Policy(sample_pool("cifar", 6, 0, draws="fresh")[1:3])
    with pytest.raises(RelookError, match="fixed policy"):
        TTA(network(), fresh, draws="fresh", early_exit=some_rule(fresh, (0.5,)))
    refused("freeze", exit_counts, fresh)
    policy, images = fixed_policy(5), some_images(4)
    rule = some_rule(policy, (0.5,) * 3)
    tta = TTA(network(), policy, mean=MEAN, std=STD, early_exit=rule)
    with pytest.raises(Exception, match="early exit cannot be compiled or exported"):
        torch.export.export(tta, (images,))


def test_a_rule_survives_its_file(tmp_path: Path) -> None:
    rule = some_rule(policy_of(), (0.1, 0.9999999999, 1.0, 0.0, 1 / 3))
    rule.save(tmp_path / "rule.json")
    assert EarlyExit.load(tmp_path / "rule.json") == rule
    policy = policy_of()
    tta = TTA(network(), policy, mean=MEAN, std=STD, early_exit=tmp_path / "rule.json")
    assert tta.early_exit == rule


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "expected a relook early exit"),
        ({"version": 3}, "expected version 2, got version 3"),
        ({"thresholds": [0.5] * 4}, "6 temperatures and 4 thresholds"),
        ({"thresholds": [2.0] * 5}, "thresholds from 0 to 1"),
        ({"thresholds": ["a"] * 5}, r"thresholds\[0\]: expected a number"),
        ({"temperatures": [0] * 6}, "temperature from 0.001 to 1000, got 0"),
        ({"temperatures": [1] * 5 + [1e-40]}, "temperature from 0.001 to 1000, got 1e-40"),
        ({"images": "many"}, "images: expected a whole number"),
        ({"surplus": 1}, "unknown key 'surplus'"),
    ],
)
def test_a_damaged_file_is_one_line(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "rule.json"
    path.write_text(json.dumps({**some_rule(policy_of(), (0.5,) * 5).to_json(), **change}))
    with pytest.raises(FileFormatError, match=message) as raised:
        EarlyExit.load(path)
    assert "\n" not in str(raised.value)
