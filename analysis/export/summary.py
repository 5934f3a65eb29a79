"""The files of an export: the forms of its model, and the facts in its `summary.json`."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from analysis.held_out.scoring import TestScore
    from training.recipe import Recipe

FORMAT = 1
LIBRARIES = ("torch", "torchvision", "timm", "lightning", "albumentations", "ray", "optuna", "mlflow")
Form = Literal["torch", "onnx", "int8"]
FILES: dict[Form, str] = {"torch": "model.safetensors", "onnx": "model.onnx", "int8": "model.int8.onnx"}


class BackboneFacts(TypedDict):
    """What timm or torchvision needs to build the model."""

    source: str
    name: str
    arguments: dict[str, Any]


class OnnxFacts(TypedDict):
    """The check of `model.onnx`: the largest difference between its logits and the model's, over these images."""

    file: str
    images: int
    largest_difference: float


class Int8Facts(TypedDict):
    """The file with 8 bits, beside the one with float32."""

    file: str
    calibration_images: int
    val_accuracy: float
    val_accuracy_float32: float
    megabytes: float
    megabytes_float32: float


class Provenance(TypedDict):
    """The training that an export comes from.

    `sweep`, `trial` and `mlflow_run_id` are None for a recipe trained outside a sweep. `test` is the score that `sweep
    confirm` measured on the test split, None if it did not score this model. A release was trained on the validation part
    too: its scores are those of the same recipe trained without that part.
    """

    sweep: str | None
    sweep_id: NotRequired[str]  # the random id of that sweep
    trial: str | None  # of an ensemble the first
    mlflow_run_id: str | None
    metric: str
    score: float
    standard_error: float
    best_epoch: int
    metrics: dict[str, float]
    test: TestScore | None
    finding: NotRequired[str]  # the headline of the report or of the confirmation, where it is about this model
    ensemble: NotRequired[list[str]]  # the trials whose recipes were trained, where the export is the mean of several
    scored: NotRequired[list[str]]  # of an ensemble, if the score is what their mean is expected to have
    trained_on: Literal["train", "train and validation"]
    classes: list[str]
    threads: int


class Summary(Provenance):
    """What is needed to use the weights and to judge them. `input_size` is (channels, height, width)."""

    format: int
    backbone: BackboneFacts
    input_size: list[int]
    mean: list[float]
    std: list[float]
    crop: float
    crop_mode: str
    interpolation: str
    flip_average: bool
    members: NotRequired[int]  # number of models in the weights, of an ensemble alone
    attention_pooling: NotRequired[int]  # heads of the attention pooling, if there is one
    seed: int
    python: str
    libraries: dict[str, str]
    onnx: NotRequired[OnnxFacts]
    int8: NotRequired[Int8Facts]


def summarise(recipe: Recipe, source: Provenance) -> Summary:
    """The summary of an export."""
    from training.model.backbones import size_arguments

    preprocessing = recipe.evaluation_preprocessing
    image_size = preprocessing.side
    return {
        "format": FORMAT,
        **source,
        "backbone": {
            "source": recipe.backbone.source,
            "name": recipe.backbone.name,
            "arguments": size_arguments(recipe.backbone, image_size),
        },
        "input_size": [3, image_size, image_size],
        "mean": preprocessing.mean,  # type: ignore[typeddict-item]  # resolved, so not auto
        "std": preprocessing.std,  # type: ignore[typeddict-item]
        "crop": preprocessing.crop,  # type: ignore[typeddict-item]
        "crop_mode": preprocessing.crop_mode,
        "interpolation": preprocessing.interpolation,
        "flip_average": recipe.flip_average.enabled,
        "seed": recipe.seed,
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in LIBRARIES},
    }
