"""The address of the sweep's run in the web page of an MLflow server, found without importing MLflow."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
import urllib.parse
import urllib.request
from typing import Any

from analysis.formatting import MASK, mask_secrets

PATIENCE_SECONDS = 5.0
AGAIN_SECONDS = 30.0
PARENT = "mlflow.parentRunId"  # only runs of trials have this tag


class RunLink:
    """Looks for the run in a thread, again from time to time until it is there."""

    def __init__(self, uri: str, experiment: str, sweep_id: str) -> None:
        self.uri, self.experiment, self.sweep_id = uri.rstrip("/"), experiment, sweep_id
        self.found = ""
        self._next = 0.0 if uri.startswith(("http://", "https://")) and MASK not in uri else float("inf")

    @property
    def address(self) -> str:
        """The address of the run; empty while it is not known."""
        if not self.found and time.monotonic() >= self._next:
            self._next = time.monotonic() + AGAIN_SECONDS
            threading.Thread(target=self.look, daemon=True).start()
        return self.found

    def look(self) -> None:
        """Ask the server once. If it does not answer, there is no link yet."""
        name = urllib.parse.quote(self.experiment)
        try:
            found = self._ask(f"experiments/get-by-name?experiment_name={name}")
            experiment = found["experiment"]["experiment_id"]
            query = {
                "experiment_ids": [experiment],
                "filter": f"tags.sweep_id = '{self.sweep_id}'",
                "order_by": ["attributes.start_time ASC"],  # the sweep's own run is the first
                "max_results": 10,
            }
            runs = self._ask("runs/search", query).get("runs", [])
        except (OSError, ValueError, KeyError, TypeError):
            return
        for run in runs:
            if PARENT not in {tag["key"] for tag in run["data"].get("tags", [])}:
                self.found = f"{mask_secrets(self.uri)}/#/experiments/{experiment}/runs/{run['info']['run_id']}"
                return

    def _ask(self, path: str, query: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if query is None else json.dumps(query).encode()
        headers = {"Content-Type": "application/json", **_make_login()}
        asked = urllib.request.Request(f"{self.uri}/api/2.0/mlflow/{path}", data, headers)
        with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
            return json.loads(answer.read())


def _make_login() -> dict[str, str]:
    """Return the header with the login that MLflow's own client takes from the environment."""
    if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    if user := os.environ.get("MLFLOW_TRACKING_USERNAME"):
        pair = f"{user}:{os.environ.get('MLFLOW_TRACKING_PASSWORD', '')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}
