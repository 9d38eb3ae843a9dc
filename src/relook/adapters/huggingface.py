"""A drop-in for transformers' `pipeline("image-classification")` that averages views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from relook.deploy import TTA
from relook.models.hf_models import Logits, import_transformers, normalisation
from relook.policy import Policy

_transformers = import_transformers()
_Usual: Any = _transformers.ImageClassificationPipeline


class TTAPipeline(_Usual):  # type: ignore[misc]
    """`pipeline("image-classification", …, pipeline_class=TTAPipeline, policy=…)`.

    Takes and returns what the usual pipeline does. `policy` is a `relook.Policy`, its file, or
    the name of a preset; `views` is a budget of model passes per image.
    """

    def __init__(
        self,
        *args: Any,
        policy: Policy | str | Path = "flip",
        views: int | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(*args, **rest)
        mean, std = normalisation(self.image_processor.to_dict())
        how: dict[str, Any] = {"views": views, "mean": mean, "std": std}
        chosen = policy if isinstance(policy, Policy) else Policy.load(policy)
        if chosen.temperatures is None:  # a preset is not calibrated, like the usual pipeline
            how["temperature"] = None
        self.tta = TTA(Logits(self.model), chosen, **how)

    def preprocess(self, image: Any, timeout: float | None = None) -> Any:
        """Return an image as uint8 `[1, c, h, w]` at the network's size, not yet normalised."""
        picture = _transformers.image_utils.load_image(image, timeout=timeout)
        plain = {"do_rescale": False, "do_normalize": False, "return_tensors": "pt"}
        found = self.image_processor(images=picture, **plain)
        return {"pixel_values": found["pixel_values"].round().clamp(0, 255).to(torch.uint8)}

    def _forward(self, model_inputs: Any) -> Any:
        probabilities = torch.from_numpy(self.tta.predict_proba(model_inputs["pixel_values"]))
        logits = probabilities.clamp(min=1e-30).log()
        return _transformers.modeling_outputs.ImageClassifierOutput(logits=logits)
