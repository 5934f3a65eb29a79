"""An export in MLflow's model registry: a pyfunc model that loads and serves where this project is not installed."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.export.bundle import Exported
from analysis.export.summary import FILES
from analysis.reading.store import make_absolute, mlflow_errors, open_client
from training.data.files.images import ImageData
from training.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

NEEDED = ["mlflow", "torch", "torchvision", "timm", "safetensors", "pillow", "numpy", "pandas"]


def check_model_name(name: str) -> None:
    """Check a model's name for MLflow's registry."""
    if not name.strip() or not name.isprintable() or re.search(r"[/:]", name):
        shown = name if name.isprintable() else repr(name)  # an escape sequence would change the terminal
        raise UserError(
            f"--register={shown}: the name of a model cannot be empty or contain /, : or characters that cannot be printed."
        )


def register(exported: Exported, data: ImageData, *, name: str, tracking_uri: str, experiment: str) -> str:
    """Log the model in its trial's run, register it, and return its address, such as `models:/name/1`.

    One validation image of `data` becomes the input example. The store and the run of the caller's own `mlflow` stay.
    """
    check_model_name(name)
    client = open_client(make_absolute(tracking_uri))
    with mlflow_errors(tracking_uri), _as_store_of_process(tracking_uri), ThreadPoolExecutor(1) as apart:
        # In a thread of its own no run of the caller is active, to which MLflow would log.
        return apart.submit(_register, client, exported, data, name, experiment).result()


@contextmanager
def _as_store_of_process(uri: str) -> Iterator[None]:
    """Name a store to those functions of MLflow that know only one."""
    import mlflow

    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type]  # None: as before its first call


def _register(client: MlflowClient, exported: Exported, data: ImageData, name: str, experiment: str) -> str:
    import mlflow
    import pandas as pd
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import Array
    from PIL import Image

    run, known = _find_run(client, exported), client.get_experiment_by_name(experiment)
    logged = client.create_logged_model(
        known.experiment_id if known else client.create_experiment(experiment),
        re.sub(r"[^\w-]", "-", name),
        source_run_id=run.info.run_id if run else None,
        params=run.data.params if run else None,
    )
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
        model_id=logged.model_id,
        flavor=mlflow.pyfunc,
        run_id=logged.source_run_id,
        registered_model_name=name,
        python_model=str(Path(__file__).with_name("served_model.py")),
        artifacts={
            "summary": str(exported.folder / "summary.json"),
            "weights": str(exported.folder / FILES["torch"]),
            "card": str(exported.folder / "MODEL_CARD.md"),
        },
        signature=signature,
        input_example=pd.DataFrame({"image": [stream.getvalue()]}),
        pip_requirements=[f"{package}=={version(package).partition('+')[0]}" for package in NEEDED],
    )
    return f"models:/{name}/{info.registered_model_version}"


def _find_run(client: MlflowClient, exported: Exported) -> Run | None:
    from mlflow.exceptions import MlflowException

    run_id = exported.summary["mlflow_run_id"]
    try:
        return client.get_run(run_id) if run_id else None
    except MlflowException:
        return None
