"""The facts in an export's `summary.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from analysis.held_out.scoring import TestScore


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


class Summary(TypedDict):
    """What is needed to use the weights and to judge them.

    `sweep`, `trial` and `mlflow_run_id` are None for a recipe that was trained outside a sweep; `test` is None if the
    model was not scored on the test part. `input_size` is (channels, height, width).
    """

    format: int
    sweep: str | None
    trial: str | None
    mlflow_run_id: str | None
    metric: str
    score: float
    standard_error: float
    best_epoch: int
    metrics: dict[str, float]
    test: TestScore | None
    soup: NotRequired[list[str]]  # the trials whose weights were averaged
    trained_on: str
    classes: list[str]
    backbone: BackboneFacts
    input_size: list[int]
    mean: list[float]
    std: list[float]
    crop: float
    interpolation: str
    flip_average: NotRequired[bool]  # absent in exports of earlier versions, which had no such average
    members: NotRequired[int]  # number of models in the weights, of an ensemble alone
    seed: int
    threads: int
    python: str
    libraries: dict[str, str]
    onnx: NotRequired[OnnxFacts]
    int8: NotRequired[Int8Facts]
