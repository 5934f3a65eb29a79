"""An exported classifier with MLflow's interface. MLflow copies this file into the model, so it imports no other room.

The input is a table with a column `image`: the bytes of an image file in each row. Nothing is unpickled.
"""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import torch
from PIL import Image, ImageOps
from safetensors.torch import load_file

BATCH = 64


class ServedClassifier(mlflow.pyfunc.PythonModel):  # type: ignore[name-defined]
    def load_context(self, context):
        self.summary = json.loads(Path(context.artifacts["summary"]).read_text())
        backbone, classes = self.summary["backbone"], len(self.summary["classes"])
        if backbone["source"] == "timm":
            import timm

            build: Any = timm.create_model
        else:
            import torchvision

            build = torchvision.models.get_model
        count = self.summary.get("members", 1)
        models = [build(backbone["name"], num_classes=classes, **backbone["arguments"]) for _ in range(count)]
        weights = load_file(context.artifacts["weights"])
        (torch.nn.ModuleList(models) if "members" in self.summary else models[0]).load_state_dict(weights)
        self.models = [model.eval() for model in models]

    @torch.inference_mode()
    def predict(self, context, model_input, params=None):
        files = list(model_input["image"])
        batches = [files[start : start + BATCH] for start in range(0, len(files), BATCH)]
        found = [self.probabilities_of(torch.stack([self.prepare(file) for file in batch])) for batch in batches]
        probabilities = torch.cat(found).numpy().astype(float)
        best = probabilities.argmax(axis=1)
        return pd.DataFrame(
            {
                "label": [self.summary["classes"][index] for index in best],
                "probability": probabilities.max(axis=1),
                "probabilities": probabilities.tolist(),
            }
        )

    def probabilities_of(self, images):
        return torch.stack([self.logits_of(model, images).softmax(1) for model in self.models]).mean(0)

    def logits_of(self, model, images):
        logits = model(images)
        return (logits + model(images.flip(3))) / 2 if self.summary.get("flip_average") else logits

    def prepare(self, file):
        """The model's input, float32 (3, side, side), from the bytes of an image file, as in training."""
        side = self.summary["input_size"][1]
        shorter = math.floor(side / self.summary["crop"])
        with Image.open(io.BytesIO(file)) as image:
            factor = 2 * shorter / min(image.size)
            image.draft("RGB", (max(1, int(image.width * factor)), max(1, int(image.height * factor))))
            image = to_rgb(ImageOps.exif_transpose(image))
        if image.size != (side, side) or self.summary["crop"] != 1.0:
            factor = shorter / min(image.size)
            size = tuple(max(shorter, int(length * factor)) for length in image.size)
            image = image.resize(size, Image.Resampling[self.summary["interpolation"].upper()])
            left, top = round((size[0] - side) / 2), round((size[1] - side) / 2)
            image = image.crop((left, top, left + side, top + side))
        pixels = np.asarray(image, dtype=np.float64) / 255
        pixels = (pixels - self.summary["mean"]) / self.summary["std"]
        return torch.from_numpy(pixels.astype(np.float32).transpose(2, 0, 1).copy())


def to_rgb(image):
    """An RGB image: transparent pixels become white, and deep greys become 8 bits."""
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image)
        levels = np.nan_to_num(values) * 255.0 if values.dtype.kind == "f" else values / 257.0
        return Image.fromarray(np.clip(np.rint(levels), 0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layered.size, (255, 255, 255, 255)), layered)
    return image.convert("RGB")


mlflow.models.set_model(ServedClassifier())  # how MLflow finds the model in this file
