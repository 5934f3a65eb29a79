"""Export to ONNX, with a check against the trained model, and to 8 bits (Jacob et al. 2018, section 3)."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from analysis.export.bundle import Exported
from analysis.export.classifier import open_onnx
from analysis.export.summary import Form, Int8Facts, OnnxFacts
from training.data.files.images import ImageData
from training.data.pipelines.loaders import make_eval_loader

# The allowed difference of logits, relative to the largest one: ONNX adds float32 numbers in another order.
TOLERANCE = 1e-3
CALIBRATION_IMAGES = 512
LAYERS = ["Conv", "Gemm", "MatMul"]  # They have most of the weights and of the computing time.

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def export_onnx(exported: Exported, data: ImageData) -> OnnxFacts:
    """Write `model.onnx`, which maps normalised float32 images (batch, 3, side, side) to logits (batch, classes).

    Raises:
        RuntimeError: Its logits on the validation part differ from the model's.
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
    # The file also has the classes and the preprocessing of images.
    keys = ("classes", "input_size", "mean", "std", "crop", "crop_mode", "interpolation")
    summary = dict(exported.summary)
    program.model.metadata_props.update({key: json.dumps(summary[key]) for key in keys})
    program.save(str(path))
    answer = open_onnx(path, "onnx")
    difference, largest, count = 0.0, 1.0, 0
    for images, _ in _batches(exported, data):
        with torch.inference_mode():
            expected = model(images)
        difference = max(difference, float((answer(images) - expected).abs().max()))
        largest, count = max(largest, float(expected.abs().max())), count + len(images)
    if difference > TOLERANCE * largest:
        raise RuntimeError(f"{path}: its logits differ from the model's by up to {difference:g}")
    return {"file": path.name, "images": count, "largest_difference": difference}


def quantise(exported: Exported, data: ImageData) -> Int8Facts:
    """Write `model.int8.onnx`, with weights from -64 to 64, calibrated on training images; `model.onnx` must exist."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Images(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = _batches(exported, data, calibration=True)

        def get_next(self) -> dict[str, np.ndarray] | None:
            images, _ = next(self.batches, (None, None))
            return None if images is None else {"images": images.numpy()}

    whole, path = exported.folder / "model.onnx", exported.folder / "model.int8.onnx"
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder, "model.onnx")
        # The symbolic inference of shapes does not know how an ensemble joins its members; the usual one does.
        quant_pre_process(whole, prepared, skip_symbolic_shape="members" in exported.summary)
        quantize_static(
            prepared,
            path,
            Images(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=LAYERS,
            per_channel=True,
            # Weights of 7 bits: CPUs without VNNI add two products of 8 bits in 16 bits, which overflows.
            reduce_range=True,
        )
    return {
        "file": path.name,
        "calibration_images": min(CALIBRATION_IMAGES, len(data.train)),
        "val_accuracy": _accuracy(path, "int8", exported, data),
        "val_accuracy_float32": _accuracy(whole, "onnx", exported, data),
        "megabytes": path.stat().st_size / 2**20,
        "megabytes_float32": whole.stat().st_size / 2**20,
    }


def _batches(exported: Exported, data: ImageData, calibration: bool = False) -> Batches:
    part = data.val
    if calibration:
        # At random, because the images of a folder are in the order of their classes.
        part = data.train.select(np.random.default_rng(0).permutation(len(data.train))[:CALIBRATION_IMAGES])
    return iter(make_eval_loader(part, exported.recipe, workers=0))


def _accuracy(path: Path, form: Form, exported: Exported, data: ImageData) -> float:
    answer = open_onnx(path, form)
    right = [answer(images).argmax(1) == labels for images, labels in _batches(exported, data)]
    return float(torch.cat(right).double().mean())
