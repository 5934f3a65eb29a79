"""The forms of an exported model, and the file of each."""

from __future__ import annotations

from typing import Literal

Form = Literal["torch", "onnx", "int8"]
FILES: dict[Form, str] = {"torch": "weights.safetensors", "onnx": "model.onnx", "int8": "model.int8.onnx"}
