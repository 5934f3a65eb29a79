"""A model as ONNX, checked against the one that was trained, and its 8-bit form (Jacob et al. 2018, section 3)."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analysis.export.bundle import Exported
from training.data.files.images import ImageData
from training.data.pipelines.loaders import choose_probe, make_eval_loader

TOLERANCE = 1e-3  # of logits, relative to the largest: the order of float32 sums differs
CALIBRATION_IMAGES = 512
LAYERS = ["Conv", "Gemm", "MatMul"]  # where the weights and the time are

Batches = Iterator[tuple[np.ndarray, np.ndarray]]


def export_onnx(exported: Exported, data: ImageData) -> dict[str, Any]:
    """Write `model.onnx`: float32 images (batch, 3, side, side), normalised, to logits; returns what is known of it.

    Raises:
        RuntimeError: its logits on the validation part are not those of the model.
    """
    path = exported.folder / "model.onnx"
    model, example = exported.model.float(), torch.zeros(2, *exported.summary["input_size"])
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = torch.onnx.export(
        model,
        (example,),
        input_names=["images"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        verbose=False,
    )
    assert program is not None
    # What must be done to an image first travels with it.
    keys = ("classes", "input_size", "mean", "std", "crop", "interpolation")
    program.model.metadata_props.update({key: json.dumps(exported.summary[key]) for key in keys})
    program.save(str(path))
    answer = _run(path)
    difference, largest, count = 0.0, 1.0, 0
    for images, _ in _batches(exported, data):
        with torch.inference_mode():
            expected = model(torch.from_numpy(images)).numpy()
        difference = max(difference, float(np.abs(answer(images) - expected).max()))
        largest, count = max(largest, float(np.abs(expected).max())), count + len(images)
    if difference > TOLERANCE * largest:
        raise RuntimeError(f"{path}: its logits differ from the model's by up to {difference:g}")
    return {"file": path.name, "images": count, "largest_difference": difference}


def quantise(exported: Exported, data: ImageData) -> dict[str, Any]:
    """Write `model.int8.onnx`, calibrated on training images; returns its validation accuracy beside the model's.

    `model.onnx` must be there.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Images(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = _batches(exported, data, calibration=True)

        def get_next(self) -> dict[str, np.ndarray] | None:
            images, _ = next(self.batches, (None, None))
            return None if images is None else {"images": images}

    whole, path = exported.folder / "model.onnx", exported.folder / "model.int8.onnx"
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder, "model.onnx")
        quant_pre_process(whole, prepared)
        quantize_static(
            prepared, path, Images(), quant_format=QuantFormat.QDQ, op_types_to_quantize=LAYERS, per_channel=True
        )
    return {
        "file": path.name,
        "calibration_images": min(CALIBRATION_IMAGES, len(data.train)),
        "val_accuracy": _accuracy(path, exported, data),
        "val_accuracy_float32": _accuracy(whole, exported, data),
        "megabytes": path.stat().st_size / 2**20,
        "megabytes_float32": whole.stat().st_size / 2**20,
    }


def _batches(exported: Exported, data: ImageData, calibration: bool = False) -> Batches:
    """The validation part, or some training images as validation would see them."""
    part = data.val
    if calibration:
        part = data.train.select(choose_probe(len(data.train), 0)[:CALIBRATION_IMAGES])
    for images, labels in make_eval_loader(part, exported.recipe, workers=0):
        yield images.numpy(), labels.numpy()


def _run(path: Path) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"images": images})[0]


def _accuracy(path: Path, exported: Exported, data: ImageData) -> float:
    answer = _run(path)
    right = [answer(images).argmax(axis=1) == labels for images, labels in _batches(exported, data)]
    return float(np.concatenate(right).mean())
