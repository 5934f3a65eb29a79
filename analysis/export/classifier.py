"""An export as a function from images to probabilities, in float32 with torch or as one of its ONNX files."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from analysis.export.bundle import read_export, read_facts
from analysis.export.summary import FILES, Form
from training.data.pipelines.datasets import GAP
from training.data.preprocessing.transform import fit, normalise, resized_side
from training.errors import UserError
from training.process.optional import require
from training.recipe import Recipe

CPU_BATCH = 16  # images that a CPU computes together

Logits = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class ExportedClassifier:
    """A model with its classes and its preprocessing.

    `logits` maps normalised float32 images (N, 3, side, side) to logits (N, classes), both on the CPU.
    """

    recipe: Recipe
    classes: tuple[str, ...]
    logits: Logits

    @property
    def reduced_side(self) -> int:
        """The shorter side, in pixels, that a JPEG may be reduced to while it is decoded."""
        return GAP * resized_side(self.recipe.evaluation_preprocessing)

    def prepare(self, image: np.ndarray) -> np.ndarray:
        """Resize and crop a uint8 image (height, width, 3) as in the training's evaluation."""
        return fit(image, self.recipe.evaluation_preprocessing)

    def classify(self, images: list[np.ndarray]) -> np.ndarray:
        """Probabilities, float64 (N, classes), of images that `prepare` returned."""
        logits = self.logits(normalise(np.stack(images), self.recipe.evaluation_preprocessing)).double()
        if not logits.isfinite().all():
            raise UserError(
                "The model answers an image with infinite values or none (NaN), so it has no label: its weights are damaged. "
                "Export it again: sweep export NAME."
            )
        return logits.softmax(1).numpy()


def load_classifier(export: Path, form: Form = "torch", device: str = "auto") -> ExportedClassifier:
    """Load an export; `device` is `cpu`, `cuda`, `cuda:1`, `mps`, or `auto` for a GPU if there is one."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", device):
        raise UserError(f"--device={device}: there is no such device. Use auto, cpu, cuda, cuda:0 or mps.")
    if form == "torch":
        place, exported = _choose_device(device), read_export(export)
        return ExportedClassifier(exported.recipe, exported.classes, _with_torch(exported.model, place))
    recipe, summary = read_facts(export, form)
    return ExportedClassifier(recipe, tuple(summary["classes"]), open_onnx(export / FILES[form], form, device))


def _choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError):  # torch without CUDA asserts
        raise UserError(f"--device={name}: torch finds no such device here. Use --device cpu.") from None


def _with_torch(model: torch.nn.Module, device: torch.device) -> Logits:
    model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # its stub lacks this form
    # On a CPU, batches of 64 took twice the time of batches of 16, with a network of 3 million weights.
    most = CPU_BATCH if device.type == "cpu" else sys.maxsize

    @torch.inference_mode()
    def logits(images: torch.Tensor) -> torch.Tensor:
        parts = (part.to(device, memory_format=torch.channels_last) for part in images.split(most))
        return torch.cat([model(part).float().cpu() for part in parts])

    return logits


def open_onnx(path: Path, form: Form, device: str = "cpu") -> Logits:
    """A function from images to the logits of an ONNX file, as in `ExportedClassifier`."""
    require(f"--model={form}", "onnxruntime")
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    providers: list[str | tuple[str, dict[str, str]]] = ["CPUExecutionProvider"]
    gpu = "CUDAExecutionProvider"
    if device.startswith("cuda") or (device == "auto" and gpu in onnxruntime.get_available_providers()):
        providers.insert(0, (gpu, {"device_id": device.partition(":")[2] or "0"}))
    if device == "mps" or (device.startswith("cuda") and gpu not in onnxruntime.get_available_providers()):
        raise UserError(f"--device={device}: the installed onnxruntime cannot use it. Use --device cpu.")
    damaged = (errors.Fail, errors.InvalidProtobuf, errors.InvalidGraph, errors.InvalidArgument, errors.NoSuchFile)
    try:
        session = onnxruntime.InferenceSession(path, providers=providers)
    except damaged as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: the file is damaged ({reason}). Make it again: sweep export NAME --{form}.") from None
    [given], [answer] = session.get_inputs()[:1], session.get_outputs()[:1]
    if (given.name, given.type, len(given.shape), len(answer.shape)) != ("images", "tensor(float)", 4, 2):
        raise UserError(f"{path}: it does not take images and give logits. Make it again: sweep export NAME --{form}.")

    def logits(images: torch.Tensor) -> torch.Tensor:
        try:
            return torch.from_numpy(session.run([answer.name], {"images": images.numpy()})[0])
        except (errors.Fail, errors.InvalidArgument, errors.RuntimeException) as error:
            reason = str(error).splitlines()[0]
            raise UserError(
                f"{path}: it cannot label these images ({reason}). Make it again: sweep export NAME."
            ) from None

    return logits
