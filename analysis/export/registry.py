"""An export in MLflow's model registry: a pyfunc model that loads and serves where this project is not installed."""

from __future__ import annotations

import io
import logging
import os
import re
from importlib.metadata import version
from pathlib import Path

from analysis.export.bundle import Exported
from analysis.export.summary import file_of
from training.data.files.images import ImageData
from training.errors import UserError

NEEDED = ("mlflow", "torch", "torchvision", "timm", "safetensors", "pillow", "numpy", "pandas")


def check_model_name(name: str) -> None:
    """Check a model's name for MLflow's registry."""
    if not name.strip() or re.search(r"[/:]", name):
        raise UserError(f"--register={name}: the name of a model cannot be empty or contain / or :.")


def register(exported: Exported, data: ImageData, *, name: str, tracking_uri: str, experiment: str) -> str:
    """Log the model in its trial's run, register it, and return its address, such as `models:/name/1`.

    One validation image of `data` becomes the input example.
    """
    import mlflow
    import pandas as pd
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import Array
    from PIL import Image

    check_model_name(name)
    for logger in ("mlflow", "alembic"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    mlflow.set_tracking_uri(tracking_uri)
    mlflow.set_experiment(experiment)
    stream = io.BytesIO()
    Image.fromarray(data.val.images[0]).save(stream, "PNG")
    signature = ModelSignature(
        Schema([ColSpec("binary", "image")]),
        Schema(
            [ColSpec("string", "label"), ColSpec("double", "probability"), ColSpec(Array("double"), "probabilities")]
        ),
    )
    info = Model.log(
        artifact_path=None,
        name=re.sub(r"[^\w-]", "-", name),
        flavor=mlflow.pyfunc,
        run_id=_existing_run(exported),
        registered_model_name=name,
        python_model=str(Path(__file__).with_name("served_model.py")),
        artifacts={
            "summary": str(exported.folder / "summary.json"),
            "weights": str(file_of(exported.folder, "torch")),
            "card": str(exported.folder / "MODEL_CARD.md"),
        },
        signature=signature,
        input_example=pd.DataFrame({"image": [stream.getvalue()]}),
        pip_requirements=[f"{package}=={version(package).partition('+')[0]}" for package in NEEDED],
    )
    return f"models:/{name}/{info.registered_model_version}"


def _existing_run(exported: Exported) -> str | None:
    """The id of the trial's run, if this store has the run."""
    import mlflow
    from mlflow.exceptions import MlflowException

    run_id = exported.summary["mlflow_run_id"]
    try:
        return run_id and mlflow.MlflowClient().get_run(run_id).info.run_id
    except MlflowException:
        return None
