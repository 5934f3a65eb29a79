"""Translate reports, data sets and the leaderboard into entries of MLflow."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

from search.core.trials import Trials
from search.storage.events import Dataset as DataFacts
from search.storage.events import EpochReported

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput, Metric

STATUS = {
    "running": "RUNNING",
    "paused": "KILLED",  # the run is reopened when the trial continues
    "completed": "FINISHED",
    "stopped": "FINISHED",
    "diverged": "FINISHED",
    "out_of_memory": "FAILED",
    "failed": "FAILED",
    "interrupted": "KILLED",
}
ENDED = [state for state, status in STATUS.items() if status != "RUNNING"]


def metrics_of(report: EpochReported) -> list[Metric]:
    """Return a report as MLflow metrics, with the time of the report, so that sending it again changes nothing."""
    from mlflow.entities import Metric

    stamp = to_milliseconds(report.time)
    values = report.metrics | {name: getattr(report, name) for name in ("score", "standard_error", "best_epoch")}
    metrics = [Metric(name, value, stamp, report.epoch) for name, value in values.items() if value is not None]
    for step, lr, loss in report.steps:
        metrics += [Metric("step_lr", lr, stamp, step), Metric("step_train_loss", loss, stamp, step)]
    return metrics


def dataset_of(facts: DataFacts) -> DatasetInput:
    """Return the description of the data from `training.data.identity` as MLflow's dataset of a run."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    counts = {name: value for name, value in facts.items() if name not in ("name", "digest", "source")}
    columns = [
        {"type": "binary", "name": "image", "required": True},
        {"type": "string", "name": "label", "required": True},
    ]
    dataset = Dataset(
        str(facts["name"]),
        str(facts["digest"]),
        source_type="local",
        source=json.dumps({"uri": facts["source"]}),
        schema=json.dumps({"mlflow_colspec": columns}),
        profile=json.dumps(counts),
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "training and validation")])


def summary(trials: Trials, stamp: int) -> list[Metric]:
    """Return the sweep's own metrics: states, best trial, linear probe, plan and time. Their step is the number of trials."""
    from mlflow.entities import Metric

    count = trials.count()
    values: dict[str, float] = {f"trials_{state}": count.get(state, 0) for state in ENDED}  # type: ignore[call-overload]
    if best := trials.best():
        assert best.score is not None
        values |= {f"best_{trials.metric}": best.score, "best_trial": best.number}
    if trials.probe:
        values |= trials.probe.figures()
    if trials.plan:
        values |= trials.plan.figures()
    values["elapsed_seconds"] = trials.elapsed_seconds
    return [Metric(name, value, stamp, len(trials)) for name, value in values.items()]


def leaderboard(trials: Trials) -> str:
    """Return CSV text: the trials by rank, then those without a score, with the fields in which they differ."""
    ranked = trials.ranked()
    ordered = ranked + [trial for trial in trials if trial.score is None]
    flat = {trial.number: trial.recipe.flat() for trial in ordered}
    names = dict.fromkeys(name for recipe in flat.values() for name in recipe)
    differing = [name for name in names if len({repr(recipe.get(name)) for recipe in flat.values()}) > 1]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rank", "trial", "state", "origin", "score", "standard_error", "best_epoch", "epoch", *differing])
    for rank, trial in enumerate(ordered, start=1):
        last = trial.reports[-1] if trial.reports else None
        scores = [getattr(last, name, None) for name in ("score", "standard_error", "best_epoch", "epoch")]
        values = [flat[trial.number].get(name) for name in differing]
        writer.writerow([rank if trial in ranked else "", trial.name, trial.state, trial.origin, *scores, *values])
    return text.getvalue()


def to_milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
