"""The ledger of a sweep whose run in MLflow has none, as earlier versions logged it, rebuilt by MLflow's client.

It takes some milliseconds for each metric of each trial. The linear probe, the plan and lost workers are not in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from analysis.reading.remote import RemoteSweep, Store
from ledger.events import AnyEvent, EpochReported, Noted, SweepStarted, TrialEnded, TrialStarted
from ledger.settings import Settings
from spaces.load import parse_recipe

SCORE = ("score", "standard_error", "best_epoch")
STEPS = ("step_lr", "step_train_loss")  # their steps are those of the optimizer, not epochs


def rebuild_events(opened: Store, sweep: RemoteSweep) -> Iterator[AnyEvent]:
    """Return the events of a sweep, trial after trial.

    Raises:
        MlflowException: the store does not answer, or lacks a file of the sweep.
    """
    info, tags = sweep.run.info, sweep.run.data.tags
    began = info.start_time / 1000
    settings = Settings(opened.uri)
    space = _read_file(opened, info.run_id, "space.yaml")
    yield SweepStarted(time=began, name=sweep.name, id=tags["sweep_id"], space=space, settings=settings)
    for text in tags.get("notes", "").splitlines():
        yield Noted(time=began, request=text, text=text)
    for run in opened.search(f"tags.`mlflow.parentRunId` = '{info.run_id}'"):
        number, tags = int(run.data.tags["trial"]), run.data.tags
        recipe = parse_recipe(_read_file(opened, run.info.run_id, "recipe.yaml"), f"trial {number:04d}")
        begun = run.info.start_time / 1000
        yield TrialStarted(time=begun, trial=number, recipe=recipe, params=None, origin=tags["origin"])
        epochs: dict[int, dict[str, float]] = {}
        times: dict[int, float] = {}
        for name in run.data.metrics.keys() - set(STEPS):
            for point in opened.client.get_metric_history(run.info.run_id, name):
                epochs.setdefault(point.step, {})[name] = point.value
                times[point.step] = point.timestamp / 1000
        for epoch, values in sorted(epochs.items()):
            score = {name: values.pop(name) for name in SCORE}
            yield EpochReported(time=times[epoch], trial=number, epoch=epoch, metrics=values, **score)
        if (state := tags["state"]) != "running":
            ended = (run.info.end_time or run.info.start_time) / 1000
            yield TrialEnded(time=ended, trial=number, state=state, reason=tags.get("reason", ""))


def _read_file(opened: Store, run_id: str, name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return Path(opened.client.download_artifacts(run_id, name, folder)).read_text(encoding="utf-8")
