"""The forms of an exported model, and the file of each."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

Form = Literal["torch", "onnx", "int8"]
FILES: dict[Form, str] = {"torch": "model.safetensors", "onnx": "model.onnx", "int8": "model.int8.onnx"}
OLD_WEIGHTS = "weights.safetensors"  # the weights in exports of earlier versions


def file_of(folder: Path, form: Form) -> Path:
    """The file of a form in an export, which may be of an earlier version; the file may not exist."""
    path, old = folder / FILES[form], folder / OLD_WEIGHTS
    return old if form == "torch" and not path.exists() and old.exists() else path
