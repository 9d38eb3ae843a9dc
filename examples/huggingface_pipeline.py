"""The usual pipeline of transformers, with the average of several views inside.

python examples/huggingface_pipeline.py DIRECTORY PICTURE
"""

from __future__ import annotations

import sys
from typing import Any

from relook.adapters.huggingface import TTAPipeline


def main(model: str, picture: Any, policy: str = "preset:10c") -> list[dict[str, Any]]:
    """Return labels and scores of a picture, the best first."""
    from transformers import pipeline

    classify = pipeline(
        "image-classification", model=model, pipeline_class=TTAPipeline, policy=policy
    )
    found: list[dict[str, Any]] = classify(picture)
    return found


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
