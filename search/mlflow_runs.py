"""How a sweep looks in MLflow: its run, and below it a run for each trial."""

from __future__ import annotations

import csv
import io
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from search.ledger import Event
from search.mlflow_store import Store, is_outage
from search.trials import UNFINISHED, Trial, Trials
from spaces.load import dump_recipe
from training.recipe import flatten, read_recipe

if TYPE_CHECKING:
    from mlflow.entities import Metric, Param

PARENT = -1
METRICS, PARAMS = 800, 100  # in a call; MLflow takes 1000 of everything
STATUS = {
    "running": "RUNNING",
    "paused": "RUNNING",
    "completed": "FINISHED",
    "stopped": "FINISHED",
    "diverged": "FINISHED",
    "out_of_memory": "FAILED",
    "failed": "FAILED",
    "interrupted": "KILLED",
}
ENDED = [state for state in STATUS if state not in UNFINISHED] + ["interrupted"]
logger = logging.getLogger("search")


@dataclass
class Run:
    """What MLflow has of a run."""

    id: str
    params: int = 0
    reports: int = 0
    state: str = "running"
    status: str = "RUNNING"
    reason: str = ""
    end_time: int | None = None


class SweepRuns:
    """Brings runs up to date. Every call may be repeated: what is there is not written twice."""

    def __init__(self, sweep: str, sweep_id: str, *, space: str, params: dict[str, Any], nested: bool) -> None:
        self.sweep = sweep
        self.sweep_id = sweep_id
        self.space = space
        self.params = params
        self.nested = nested
        self.store: Store
        self.runs: dict[int, Run] = {}
        self.unsure = False  # whether a run may have been created without us knowing

    @property
    def parent_run_id(self) -> str | None:
        return self.runs[PARENT].id if self.nested and PARENT in self.runs else None

    @property
    def run_ids(self) -> dict[int, str]:
        if self.nested:
            return {number: run.id for number, run in list(self.runs.items()) if number != PARENT}
        return dict(enumerate(run.id for run in self.runs.values()))

    def open(self, store: Store) -> None:
        """Find the sweep's runs, and create or reopen its own."""
        self.store = store
        self._find()
        if not self.nested:
            return
        run = self.runs.get(PARENT) or self._create(PARENT, self.sweep, time.time(), {})
        params = self._describe(run, self.params, "space.yaml", self.space)
        self._update(run, "running", "RUNNING", "", None, [], params)

    def send(self, trial: Trial) -> None:
        """Create the trial's run if it must be, and write what it lacks."""
        key = trial.number if self.nested else PARENT
        run = self.runs.get(key) or self._create_trial(key, trial)
        status = STATUS[trial.state]
        end_time = None if status == "RUNNING" or trial.ended is None else _milliseconds(trial.ended)
        if end_time and (run.state, run.status, run.end_time) == (trial.state, status, end_time):
            run.reports = len(trial.reports)  # its end is written last, so all before it is there
            return
        params = self._describe(run, flatten(trial.recipe), "recipe.yaml", trial.recipe)
        metrics = [metric for report in trial.reports[run.reports :] for metric in metrics_of(report)]
        self._update(run, trial.state, status, trial.reason, end_time, metrics, params)
        run.reports = len(trial.reports)

    def finish(self, state: str, trials: Trials, last_time: float) -> None:
        """End every run: nothing of a sweep that is over may look as if it ran."""
        if self.unsure:
            self._find()  # a request given up on may have been served later
        stamp = _milliseconds(last_time)
        for trial in trials:
            run = self.runs.get(trial.number if self.nested else PARENT)
            if run and trial.state in UNFINISHED and run.status == "RUNNING":
                self._update(run, trial.state, "KILLED", trial.reason, stamp, [], [])
        if self.nested:
            run = self.runs[PARENT]
            if len(trials):
                self._log_text(run, "leaderboard.csv", leaderboard(trials))
            self._update(run, state, STATUS.get(state, "FINISHED"), "", stamp, summary(trials, stamp), [])

    def _create_trial(self, key: int, trial: Trial) -> Run:
        tags: dict[str, str] = {"origin": trial.origin}
        if not self.nested:
            return self._create(key, self.sweep, trial.started, tags)
        tags |= {"trial": trial.name, "mlflow.parentRunId": self.runs[PARENT].id}
        return self._create(key, trial.name, trial.started, tags)

    def _create(self, key: int, name: str, started: float, tags: dict[str, str]) -> Run:
        if self.unsure:
            self._find()
            if key in self.runs:
                return self.runs[key]
        tags = {"sweep_id": self.sweep_id, "state": "running", **tags} | ({"sweep": self.sweep} if self.nested else {})
        self.unsure = True
        client, experiment = self.store.client, self.store.experiment_id
        created = client.create_run(experiment, _milliseconds(started), tags, run_name=name)
        self.unsure = False
        self.runs[key] = Run(created.info.run_id)
        return self.runs[key]

    def _find(self) -> None:
        """Learn of the sweep's runs in the store; of two for one trial the empty one goes."""
        token = None
        while True:
            found = self.store.client.search_runs(
                [self.store.experiment_id], f"tags.sweep_id = '{self.sweep_id}'", max_results=1000, page_token=token
            )
            for run in found:
                self._adopt(run)
            token = found.token
            if not token:
                return

    def _adopt(self, found: Any) -> None:
        tags, info = found.data.tags, found.info
        key = int(tags.get("trial", PARENT))
        known = self.runs.get(key)
        if known is None:
            state, reason = tags.get("state", "running"), tags.get("reason", "")
            self.runs[key] = Run(info.run_id, len(found.data.params), 0, state, info.status, reason, info.end_time)
        elif known.id != info.run_id and not found.data.metrics:
            self.store.client.delete_run(info.run_id)

    def _describe(self, run: Run, params: dict[str, Any], file: str, content: str | dict[str, Any]) -> list[Param]:
        """Store the file that the parameters come from; returns those to send, which say that both are there."""
        from mlflow.entities import Param

        if run.params >= max(1, len(params)):
            return []
        text = content if isinstance(content, str) else dump_recipe(read_recipe(content))
        if text:
            self._log_text(run, file, text)
        return [Param(name, str(value)[:6000]) for name, value in params.items()]

    def _update(
        self,
        run: Run,
        state: str,
        status: str,
        reason: str,
        end_time: int | None,
        metrics: list[Metric],
        params: list[Param],
    ) -> None:
        """Everything else, then tags, then the status: a run that has ended has everything."""
        from mlflow.entities import RunTag

        wanted = {"state": state, "reason": reason}
        tags = [RunTag(key, text[:5000]) for key, text in wanted.items() if text != getattr(run, key)]
        for first in range(0, len(metrics) - METRICS, METRICS):
            self.store.client.log_batch(run.id, metrics[first : first + METRICS], synchronous=True)
        for first in range(0, len(params) - PARAMS, PARAMS):
            self.store.client.log_batch(run.id, params=params[first : first + PARAMS], synchronous=True)
        last = metrics[_last_part(metrics, METRICS) :], params[_last_part(params, PARAMS) :], tags
        if any(last):
            self.store.client.log_batch(run.id, *last, synchronous=True)
        run.params = max(1, run.params, len(params))
        run.state, run.reason = state, reason
        if status == "RUNNING" and run.status != "RUNNING":
            self.store.client.update_run(run.id, status)
        elif status != "RUNNING" and (run.status, run.end_time) != (status, end_time):
            self.store.client.set_terminated(run.id, status, end_time)
        run.status, run.end_time = status, end_time

    def _log_text(self, run: Run, file: str, text: str) -> None:
        try:
            self.store.client.log_text(run.id, text, file)
        except Exception as error:
            if is_outage(error):
                raise
            # A store for artifacts may need credentials of its own; metrics must not wait for them.
            logger.exception("MLflow could not keep %s", file)


def metrics_of(report: Event) -> list[Metric]:
    """A report as MLflow's metrics. Its own time, so that sending it again changes nothing."""
    from mlflow.entities import Metric

    stamp = _milliseconds(report["time"])
    values = report["metrics"] | {name: report[name] for name in ("score", "standard_error", "best_epoch")}
    metrics = [Metric(name, value, stamp, report["epoch"]) for name, value in values.items() if value is not None]
    for step, lr, loss in report["steps"]:
        metrics += [Metric("step_lr", lr, stamp, step), Metric("step_train_loss", loss, stamp, step)]
    return metrics


def summary(trials: Trials, stamp: int) -> list[Metric]:
    """What the sweep came to, at as many trials as it had by then."""
    from mlflow.entities import Metric

    count = trials.count()
    values: dict[str, float] = {f"trials_{state}": count.get(state, 0) for state in ENDED}  # type: ignore[call-overload]
    if best := trials.best():
        assert best.score is not None
        values |= {f"best_{trials.metric}": best.score, "best_trial": best.number}
    return [Metric(name, value, stamp, len(trials)) for name, value in values.items()]


def leaderboard(trials: Trials) -> str:
    """CSV: the trials in order of rank, then those without a score, with the fields in which they differ."""
    ranked = trials.ranked()
    ordered = ranked + [trial for trial in trials if trial.score is None]
    flat = {trial.number: flatten(trial.recipe) for trial in ordered}
    names = dict.fromkeys(name for recipe in flat.values() for name in recipe)
    differing = [name for name in names if len({repr(recipe.get(name)) for recipe in flat.values()}) > 1]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rank", "trial", "state", "origin", "score", "standard_error", "best_epoch", "epoch", *differing])
    for rank, trial in enumerate(ordered, start=1):
        last = trial.reports[-1] if trial.reports else {}
        scores = [last.get(name) for name in ("score", "standard_error", "best_epoch", "epoch")]
        values = [flat[trial.number].get(name) for name in differing]
        writer.writerow([rank if trial in ranked else "", trial.name, trial.state, trial.origin, *scores, *values])
    return text.getvalue()


def _last_part(entries: list[Any], size: int) -> int:
    """Where the last part begins, of parts of at most `size`."""
    return max(0, (len(entries) - 1) // size * size)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
