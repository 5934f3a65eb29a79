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
from mlflow.exceptions import MlflowException
from PIL import ExifTags, Image
from safetensors.torch import load_file

BATCH = 64
# The limits of training/data/files/decode.py, where the reasons are.
MAX_PIXELS, MAX_RATIO = 160_000_000, 150
TURNS = {  # by EXIF orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF")


class ServedClassifier(mlflow.pyfunc.PythonModel):  # type: ignore[name-defined]
    def load_context(self, context):
        self.summary = json.loads(Path(context.artifacts["summary"]).read_text(encoding="utf-8"))
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
    def predict(self, context, model_input: pd.DataFrame, params=None):  # without the type MLflow warns, in colours
        files = list(model_input["image"])
        batches = [files[start : start + BATCH] for start in range(0, len(files), BATCH)]
        batch_probabilities = [
            self.probabilities_of(torch.stack([self.prepare(file) for file in batch])) for batch in batches
        ]
        probabilities = torch.cat(batch_probabilities).numpy().astype(float)
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
        return (logits + model(images.flip(3))) / 2 if self.summary["flip_average"] else logits

    def prepare(self, file):
        """The model's input, float32 (3, side, side), from the bytes of an image file, as in training."""
        side = self.summary["input_size"][1]
        shorter = math.floor(side / self.summary["crop"])
        photo = decode(file, shorter)
        if photo.size != (side, side) or self.summary["crop"] != 1.0:
            mode, factor = self.summary["crop_mode"], shorter / min(photo.size)
            size = tuple(max(shorter, int(length * factor)) for length in photo.size)
            if mode == "squash":
                size = shorter, shorter
            if mode == "border":
                size = tuple(max(1, round(length / (max(photo.size) / shorter))) for length in photo.size)
            resampling = Image.Resampling[self.summary["interpolation"].upper()]
            square = Image.new("RGB", (side, side), tuple(round(255 * level) for level in self.summary["mean"]))
            starts = [(side - length) // 2 if length < side else -round((length - side) / 2) for length in size]
            square.paste(photo.resize(size, resampling), tuple(starts))
            photo = square
        pixels = np.asarray(photo, dtype=np.float64) / 255
        pixels = (pixels - self.summary["mean"]) / self.summary["std"]
        return torch.from_numpy(pixels.astype(np.float32).transpose(2, 0, 1).copy())


def decode(file, shorter):
    """The upright RGB image; the shorter side of a JPEG may be reduced to twice the pixels of `shorter`."""
    with Image.open(io.BytesIO(file), formats=FORMATS) as image:
        width, height = image.size
        if width * height > MAX_PIXELS or max(image.size) > MAX_RATIO * min(image.size):
            raise MlflowException.invalid_parameter_value(
                f"An image has {width}×{height} pixels. At most {MAX_PIXELS // 10**6} million are read, and one side at "
                f"most {MAX_RATIO} times the other."
            )
        factor = 2 * shorter / min(image.size)
        image.draft("RGB", (max(1, int(width * factor)), max(1, int(height * factor))))
        is_wide, photo = ";16" in str(image.tile), turn_upright(image)
        # Of 16 bits a level Pillow keeps the upper 8, so nearly nothing of the 12 bits that are usual in microscopes.
        is_deep = photo.mode.startswith(("I", "F"))
        if is_deep or (is_wide and max(high for _, high in photo.convert("RGB").getextrema()) < 16):
            raise MlflowException.invalid_parameter_value(
                f"An image has levels of more than 8 bits (mode {image.mode}). The registered model reads photographs of 8 "
                "bits a channel; `sweep predict` reads this one."
            )
        return to_rgb(photo)


def turn_upright(image):
    """The decoded image, turned by its EXIF data if these can be read. Pillow turns TIFF files when it decodes them."""
    try:
        turn = TURNS.get(image.getexif().get(ExifTags.Base.Orientation))
    except Exception:  # noqa: BLE001 - whatever Pillow raises for damaged metadata, the pixels can be read
        turn = None
    image.load()
    return image if turn is None or image.format == "TIFF" else image.transpose(turn)


def to_rgb(image):
    """An RGB image: transparent pixels become white."""
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layered.size, (255, 255, 255, 255)), layered)
    return image.convert("RGB")


mlflow.models.set_model(ServedClassifier())  # how MLflow finds the model in this file
