"""`mlflow models serve` answers with the labels of `sweep predict`."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from analysis.export.bundle import read_export
from analysis.export.prediction import Options, predict_images
from analysis.export.registry import register
from tests.waiting import wait_until
from training.data.load_data import load_data


def answers(address):
    with suppress(OSError):
        urllib.request.urlopen(f"{address}/ping", timeout=5).close()
        return True
    return False


@pytest.mark.slow
def test_mlflow_serves_a_registered_model_with_the_labels_of_predict(exported, validation_files, tmp_path):
    found, uri = read_export(exported), f"sqlite:///{tmp_path}/mlflow.db"
    model = register(found, load_data(found.recipe.data), name="digits", tracking_uri=uri, experiment="e")
    images = [next((validation_files / label).iterdir()) for label in ("3", "7")]
    predict_images(exported, [str(image) for image in images], tmp_path / "out.json", Options(device="cpu", json=True))
    expected = [json.loads(line) for line in (tmp_path / "out.json").read_text().splitlines()]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", model]
    command += ["--env-manager", "local", "-p", str(port)]
    # As in an active environment: the command starts uvicorn by its name.
    environment = {"MLFLOW_TRACKING_URI": uri, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    server = subprocess.Popen(command, env=os.environ | environment, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(address) or server.poll() is not None, 120)
        records = [{"image": base64.b64encode(image.read_bytes()).decode()} for image in images]
        body = json.dumps({"dataframe_records": records}).encode()
        request = urllib.request.Request(f"{address}/invocations", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            served = json.load(answer)["predictions"]
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    assert [one["label"] for one in served] == [one["label"] for one in expected]
    assert [one["probability"] for one in served] == pytest.approx([one["probability"] for one in expected], abs=1e-4)
