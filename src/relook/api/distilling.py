"""`relook.distil`: a part of a policy's gain for one pass, with any model and any images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relook.api.judging import images_for, policies_of
from relook.api.progress_bars import ProgressChoice, chosen_bars, is_shown, say
from relook.data import Dataset, Preparation
from relook.data.adapt import prepared_for
from relook.deploy.batch.image_source import read_unlabelled
from relook.deploy.distil.distil import Distilled, distil_policy
from relook.deploy.distil.student import Training, trainable
from relook.foundation.wording import count, views_text
from relook.models import Predictor, as_predictor
from relook.policy import Policy


def distil(
    model: object,
    images: Any,
    *,
    policy: Policy | str | Path,
    test: Any = None,
    out: str | Path | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    accelerate: str = "torch",
    progress: ProgressChoice = None,
    **options: Any,
) -> Distilled:
    """Fine-tune a network on images without labels, so that one pass has part of a policy's gain.

    `model` is a torch module or the text of one, as for `relook.search`, with its keywords among
    the `options`; it is left alone. `images` are arrays, tensors, PIL images or a text like
    "folder:DIR" (at any depth); labels are not looked at. The policy's calibrated prediction of
    each is what the network learns. `test` are labelled images that neither has seen, as a pair or
    with labels inside: the result is compared on them, and where it does not help beyond doubt,
    the network stays as it was. Without them nothing is compared.

    With `out`, everything is kept in that directory: the same call goes on after an interruption.
    """
    (found,) = policies_of(policy)
    predictor = as_predictor(model, **options)
    proof = None
    if test is not None:
        labelled, labels = test if isinstance(test, tuple) else (test, None)
        proof = images_for(predictor, labelled, labels, found, name="test images")
    wanted = Training(
        **{
            name: value
            for name, value in (("epochs", epochs), ("learning_rate", learning_rate))
            if value is not None
        },  # type: ignore[arg-type]  # of two types
        seed=seed,
    )
    return distilled(predictor, images, found, proof, wanted, out, accelerate, progress)


def distilled(
    predictor: Predictor,
    images: Any,
    policy: Policy,
    proof: Dataset | None,
    training: Training,
    out: str | Path | None,
    accelerate: str,
    progress: ProgressChoice,
) -> Distilled:
    """Read the images as the policy's search read its own, and distil on them."""
    trainable(predictor)
    wanted = prepared_for(images, Preparation(), predictor).as_searched(policy.preparation)
    dataset = read_unlabelled(images, wanted)
    if is_shown(progress):
        say(f"{count(len(dataset), 'image')} without labels, {views_text(policy.views)} each")
    with chosen_bars(progress) as bars:
        return distil_policy(
            predictor,
            dataset,
            policy,
            proof,
            out=None if out is None else Path(out),
            training=training,
            engine={"mode": accelerate},
            progress=bars,
        )
