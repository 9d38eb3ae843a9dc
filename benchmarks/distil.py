"""How much of a policy's gain one plain pass keeps after distillation, for public networks.

    python -m benchmarks.distil --data DIR --network distiller/WRN16_1/cifar10 --out distil

DIR has `networks.py` with `load(name) -> (module, mean, std, dataset)`, which is imported, and
`DATASET_test.npz` with `images` [n, 32, 32, 3] and `labels`. Of the test images in a fixed random
order, the first `--images` are used without labels, but for `--search` of them, which the policy is
searched on (`--policy FILE`: one that was); the last `--proof` show what came of it. Prints lines
of a table in Markdown; everything is kept below `--out`, and the same command goes on there.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.quality import load_networks

import relook
from relook.data import Dataset
from relook.deploy.distil.distil import Distilled, distil_policy
from relook.deploy.distil.student import Training
from relook.evaluation.baselines import BASELINES, Options
from relook.evaluation.cross_validation import cross_validated
from relook.foundation.wording import interval, plain, signed
from relook.models import TorchPredictor
from relook.numerics.calibration import mean_log_probs
from relook.policy import Policy
from relook.policy.recipes import get_recipe
from relook.predictions.passes import View, predict_views
from relook.studies.corruptions import corrupt_images

_CROPS = 10
_CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
_SEVERITY, _CORRUPTED = 3, 1000


def main() -> None:
    """Search, distil, and print the verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--unlabelled", type=Path, help="an .npz with other images to learn from")
    parser.add_argument("--search", type=int, default=1000)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--proof", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=Training().epochs)
    parser.add_argument("--learning-rate", type=float, default=Training().learning_rate)
    given = parser.parse_args()
    module, mean, std, name = load_networks(given.data).load(given.network)
    predictor = TorchPredictor(module, mean=mean, std=std)
    whole = read(given.data / f"{name}_test.npz")
    order = np.random.default_rng(0).permutation(len(whole))
    images, proof = whole.subset(order[: given.images]), whole.subset(order[-given.proof :])
    place = given.out / given.network.replace("/", "-")
    policy = Policy.load(given.policy) if given.policy else searched(predictor, images, given)
    if given.unlabelled is not None:
        images = read(given.unlabelled)
    began = time.process_time()
    found = distil_policy(
        predictor,
        images,
        policy,
        proof,
        out=place / "distilled",
        training=Training(epochs=given.epochs, learning_rate=given.learning_rate),
        engine={"mode": "auto", "record": None},
    )
    report(given.network, found, time.process_time() - began)
    print(f"| {_CROPS} random crop-flips | {plain(crops_cll(predictor, proof, policy), 4)} |")
    for label, one in (("original", predictor), ("distilled", found.predictor)):
        print(f"| corrupted, {label} | {plain(corrupted_cll(one, proof), 4)} |")


def read(path: Path) -> Dataset:
    """Return the images of an archive."""
    with np.load(path) as arrays:
        images = torch.from_numpy(arrays["images"]).permute(0, 3, 1, 2).contiguous()
        labels = arrays["labels"].astype(np.int64)
    classes = tuple(map(str, range(int(labels.max()) + 1)))
    return Dataset(images, labels, classes, path.name)


def searched(predictor: TorchPredictor, images: Dataset, given: Any) -> Policy:
    """Return the policy that the default search finds on the first images."""
    some = images.subset(np.arange(given.search))
    run = given.out / given.network.replace("/", "-") / "run"
    return relook.search(predictor, some, out=run, recipe="cifar", progress=False).policy


def report(network: str, found: Distilled, seconds: float) -> None:
    """Print the four rows and what is kept."""
    verdict, record = found.verdict, found.record
    print(f"{network}: {record.sentence}")
    print(f"epoch {record.kept_epoch} of {len(record.epochs)}, {seconds:.0f} s of processor time")
    for line in verdict.lines if verdict is not None else ():
        gain = "" if line.over_plain is None else _shown(line.over_plain["cll"])
        print(
            f"| {line.name} | {100 * line.accuracy:.2f} | {plain(line.cll, 4)} "
            f"| {100 * line.ece:.1f} | {gain} |",
            flush=True,
        )


def crops_cll(predictor: TorchPredictor, proof: Dataset, policy: Policy) -> float:
    """Return the cLL of random crops with flips, averaged as usual."""
    recipe = get_recipe(policy.recipe or "cifar")
    crops = BASELINES["cf"].policy(recipe, _CROPS, 0, "fresh", Options())
    views = [View(sub, index) for index, sub in enumerate(crops)]
    log_probs = predict_views(predictor, proof.images, views, seed=0)
    return cross_validated(mean_log_probs(log_probs), proof.labels, seed=0).metrics["cll"]


def corrupted_cll(predictor: TorchPredictor, proof: Dataset) -> float:
    """Return the mean cLL of plain passes over corrupted images."""
    some = proof.subset(np.arange(min(_CORRUPTED, len(proof))))
    found = []
    for corruption in _CORRUPTIONS:
        images = corrupt_images(some.plain, corruption, _SEVERITY)
        log_probs = torch.cat([predictor(part) for part in torch.split(images, 250)])
        scores = cross_validated(log_probs.double().numpy(), some.labels, seed=0)
        found.append(scores.metrics["cll"])
    return float(np.mean(found))


def _shown(one: Any) -> str:
    return f"{signed(one.estimate, 4)} {interval(one, 4)}"


if __name__ == "__main__":
    main()
