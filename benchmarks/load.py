"""Time of `analysis.load` on a store of many trials, compared with MLflow's own client."""

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from analysis.reading.sweep_tables import load
from search.tracking.mlflow_store import open_store
from spaces.load import load_space
from training.recipe import flatten

EXPERIMENT = "technique-search"
METRICS = ("score", "standard_error", "best_epoch", "val_accuracy", "val_balanced_accuracy", "val_macro_f1", "val_loss")
METRICS += ("val_ece", "train_loss", "train_accuracy", "lr", "images_per_second", "peak_memory_mb", "train_seconds")


def fill(uri: str, trials: int, epochs: int) -> None:
    """Write runs as `search/tracking/` does, but directly into the tables, because only reading is measured here."""
    store = open_store(uri, EXPERIMENT)
    space = load_space("quick")
    tags = {"sweep": "big", "sweep_id": "big", "state": "completed"}
    parent = store.client.create_run(store.experiment_id, 0, tags, run_name="big").info.run_id
    store.client.log_text(parent, space.to_yaml(), "space.yaml")
    tags |= {"mlflow.parentRunId": parent, "trial": "0", "origin": "sampler"}
    one = store.client.create_run(store.experiment_id, 0, tags, run_name="0").info.run_id
    recipe = {name: str(value) for name, value in flatten(space.baselines()[0].model_dump()).items()}
    rng = np.random.default_rng(0)
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        run = database.execute("SELECT * FROM runs WHERE run_uuid = ?", (one,)).fetchone()
        names = [row[1] for row in database.execute("PRAGMA table_info(runs)")]
        ids = [one, *(f"{number:032x}" for number in range(1, trials))]
        at = names.index("run_uuid")
        insert(database, "runs", [(*run[:at], key, *run[at + 1 :]) for key in ids[1:]])
        for number, key in enumerate(ids[1:], start=1):
            insert(
                database, "tags (run_uuid, key, value)", [(key, *t) for t in (tags | {"trial": str(number)}).items()]
            )
        for key in ids:
            insert(database, "params (run_uuid, key, value)", [(key, *pair) for pair in recipe.items()])
            values = rng.random((epochs, len(METRICS)))
            rows = [(key, m, float(values[e, k]), 0, e + 1, 0) for e in range(epochs) for k, m in enumerate(METRICS)]
            insert(database, "metrics (run_uuid, key, value, timestamp, step, is_nan)", rows)


def insert(database: sqlite3.Connection, table: str, rows: list[tuple[Any, ...]]) -> None:
    if rows:
        database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


def read_with_client(uri: str) -> int:
    """Read the same two tables with MLflow's client: the runs by pages, the score's history in one bulk call."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    ids, token = [], None
    while True:
        page = client.search_runs([experiment.experiment_id], max_results=1000, page_token=token)
        ids += [run.info.run_id for run in page]
        token = page.token
        if not token:
            break
    return len(client._tracking_client.store.get_metric_history_bulk(ids, "score", 10**8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{Path(folder, 'mlflow.db')}"
        fill(uri, args.trials, args.epochs)
        began = time.perf_counter()
        sweep = load("big", uri)
        ours = time.perf_counter() - began
        print(f"analysis.load: {len(sweep.trials):,} trials, {len(sweep.curves):,} epochs in {ours:.1f} s")
        began = time.perf_counter()
        points = read_with_client(uri)
        print(f"MLflow's client, one metric ({points:,} points): {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
