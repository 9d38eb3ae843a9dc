"""A web service around an exported ONNX file: post an image, get its likeliest classes.

    pip install fastapi uvicorn onnxruntime pillow numpy
    relook export runs/mine --out model.onnx --layout nhwc
    MODEL=model.onnx uvicorn service:app
    curl --data-binary @cat.jpg -H 'Content-Type: image/jpeg' localhost:8000/predict

The file holds the views, the network, the average and the temperature: relook and PyTorch are
not needed here. One that was searched on photos gets them as they are, at any size, and cuts its
views from them; any other gets the centre at its own size. It is run on the CPU, and what a
client sends is decoded as an image, no more.
"""

from __future__ import annotations

import io
import json
import os
import warnings

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from fastapi import FastAPI, HTTPException, Request
from PIL import Image, ImageOps

LARGEST_UPLOAD = 20_000_000
MOST_PIXELS = 40_000_000


class Classifier:
    """An exported file; `classes` are its classes' names, or their numbers."""

    def __init__(self, path: str) -> None:
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (taken,) = self.session.get_inputs()
        _, self.height, self.width, self.channels = taken.shape
        if self.channels not in (1, 3):
            raise ValueError(f"{path}: expected channels last: export with --layout nhwc")
        about = self.session.get_modelmeta().custom_metadata_map
        count = self.session.get_outputs()[0].shape[1]
        self.classes = json.loads(about.get("classes", "null")) or [str(i) for i in range(count)]
        self.about = {name: about[name] for name in ("input", "views", "temperature", "check")}

    def predict(self, image: Image.Image, top: int = 5) -> list[dict[str, object]]:
        """Return the likeliest classes of one image, with their probabilities."""
        image = ImageOps.exif_transpose(image).convert("RGB" if self.channels == 3 else "L")
        if isinstance(self.height, int):  # otherwise the file takes photos of any size
            image = ImageOps.fit(image, (self.width, self.height), Image.Resampling.BICUBIC)
        levels = np.asarray(image).reshape(1, image.height, image.width, self.channels)
        (probabilities,) = self.session.run(["probabilities"], {"images": levels})
        best = np.argsort(-probabilities[0])[:top]
        return [{"class": self.classes[i], "probability": float(probabilities[0, i])} for i in best]


def decoded(data: bytes) -> Image.Image:
    """Return an uploaded image; what is none, or is too large, raises a ValueError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP", "BMP", "GIF"))
            if image.width * image.height > MOST_PIXELS:
                raise ValueError("the image has too many pixels")
            image.load()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError("expected an image (JPEG, PNG, WebP, BMP or GIF)") from error
    return image


def make_app(path: str) -> FastAPI:
    """Return the service of one exported file."""
    classifier = Classifier(path)
    app = FastAPI(title="relook")

    @app.get("/about")
    def about() -> dict[str, str]:
        """What the file says of itself."""
        return classifier.about

    @app.post("/predict")
    async def predict(request: Request, top: int = 5) -> list[dict[str, object]]:
        """The body is an image file."""
        data = b""
        async for part in request.stream():
            data += part
            if len(data) > LARGEST_UPLOAD:
                raise HTTPException(413, "the file is too large")
        try:
            return classifier.predict(decoded(data), max(1, top))
        except ValueError as error:
            raise HTTPException(422, str(error)) from error

    return app


if "MODEL" in os.environ:
    app = make_app(os.environ["MODEL"])
