"""The runs of a sweep in MLflow: its own run, and below it one run for each trial."""

from __future__ import annotations

from pathlib import Path

from analysis.reading.run_store import RunStore
from ledger.events import Dataset, RunOpened, SweepStarted
from ledger.trials import UNFINISHED, Trial, Trials
from search.tracking.run import PAGE, STATUS, ArtifactPlace, Run, metrics_of, summary, to_milliseconds
from spaces.reading.document import parse_document
from training.recipe import flatten

PARENT = -1


class SweepRuns:
    """Updates the runs. Every call may be repeated: nothing is written twice."""

    def __init__(self, sweep: str, sweep_id: str, *, nested: bool) -> None:
        self.sweep = sweep
        self.sweep_id = sweep_id
        self.nested = nested
        self.space = ""
        self.params: dict[str, object] = {}
        self.dataset: Dataset | None = None
        self.tags: dict[str, str] = {}
        self.store: RunStore
        self.runs: dict[int, Run] = {}
        self.artifacts = ArtifactPlace()
        self.sent_page = 0  # when the page that MLflow has was written, in ns
        self.begun = False
        self.unsure = False  # True after a failed request that may still have created a run

    @property
    def own_run(self) -> RunOpened | None:
        """The sweep's own run; None until it exists, and for a single training."""
        if not self.nested or PARENT not in self.runs:
            return None
        return RunOpened(run=self.runs[PARENT].id, experiment=self.experiment_id)

    @property
    def run_ids(self) -> dict[int, str]:
        if self.nested:
            return {number: run.id for number, run in list(self.runs.items()) if number != PARENT}
        return dict(enumerate(run.id for run in self.runs.values()))

    @property
    def refused(self) -> int:
        return sum(run.refused for run in list(self.runs.values()))

    def open(self, store: RunStore) -> None:
        """Find the sweep's runs. No run is created yet: a sweep that cannot start leaves no run behind."""
        self.store, (self.experiment_id,) = store, store.experiments
        self._find()

    def describe(self, header: SweepStarted) -> None:
        """Take the space and the data of the sweep from the first event of its ledger."""
        self.space, self.dataset = header.space, header.dataset
        # MLflow's UI shows this tag as the user who started the run.
        owner = {"mlflow.user": header.settings.owner} if header.settings.owner else {}
        self.tags = {f"tag.{name}": value for name, value in header.settings.tags.items()} | owner
        tree = parse_document(header.space, self.sweep).tree if header.space else {}
        self.params = flatten({"search": tree.get("search", {})})

    def send(self, trial: Trial) -> None:
        """Create the trial's run if it does not exist, and write the entries that it lacks."""
        self._begin(trial.started)
        run = self._find_trial(trial) or self._create_trial(trial)
        status = STATUS[trial.state]
        end_time = None if status == "RUNNING" or trial.ended is None else to_milliseconds(trial.ended)
        if end_time and (run.state, run.status, run.end_time) == (trial.state, status, end_time):
            run.reports = len(trial.reports)  # the end is written last, so the run has everything before it
            return
        params = trial.recipe.flat()
        if is_new := run.params < len(params):
            run.log_dataset(self.dataset)  # before the parameters, so that a run that has them has it too
        metrics = [metric for report in trial.reports[run.reports :] for metric in metrics_of(report)]
        host = trial.host or ""
        run.write(
            trial.state, status, trial.reason, end_time, metrics=metrics, params=params if is_new else None, host=host
        )
        run.reports = len(trial.reports)

    def finish(self, state: str, trials: Trials, last_time: float, ledger: Path | None = None) -> None:
        """End every run: no run may have the status RUNNING after the end of its sweep."""
        if self.unsure:
            self._find()  # a request that failed here may still have created a run
        stamp = to_milliseconds(last_time)
        for trial in trials:
            run = self.runs.get(self._key(trial))
            if run and trial.state in UNFINISHED and run.status == "RUNNING":
                run.write(trial.state, "KILLED", trial.reason, stamp)
        if self.nested and PARENT in self.runs:
            run = self.runs[PARENT]
            if ledger is not None:
                run.log_compressed(ledger)
            run.write(state, STATUS.get(state, "FINISHED"), end_time=stamp, metrics=summary(trials, stamp))

    def _begin(self, started: float) -> None:
        if not self.nested or self.begun:
            return
        run = self.runs.get(PARENT)
        if run is None:
            run = self._create(PARENT, self.sweep, started, self.tags)
            for key in self.runs.keys() - {PARENT}:  # somebody deleted the run above them
                self.store.client.set_tag(self.runs[key].id, "mlflow.parentRunId", run.id)
        if is_new := run.params < max(1, len(self.params)):
            run.log_text("space.yaml", self.space)
            run.log_dataset(self.dataset)
        run.write("running", "RUNNING", params=self.params if is_new else None)
        self.begun = True

    def publish(self, trials: Trials, ledger: Path, last_time: float) -> None:
        """Copy the ledger and the summary to the sweep's run, so that other machines can read the sweep from there."""
        run, stamp = self.runs[PARENT], to_milliseconds(last_time)
        run.log_compressed(ledger)
        run.write("running", "RUNNING", metrics=summary(trials, stamp))

    def attach(self, page: Path) -> None:
        """Copy the page of the running sweep to its run, if it is another one than the last time."""
        made = page.stat().st_mtime_ns if page.is_file() else 0
        if made > self.sent_page:
            self.runs[PARENT].log_bytes(PAGE, page.read_bytes)
            self.sent_page = made

    def _key(self, trial: Trial) -> int:
        return trial.number if self.nested else PARENT

    def _find_trial(self, trial: Trial) -> Run | None:
        """Return the trial's run. One that began at another time is of a lost part of the ledger, and is deleted."""
        run = self.runs.get(self._key(trial))
        if run is None or not self.nested or run.start_time == to_milliseconds(trial.started):
            return run
        self.store.client.delete_run(run.id)
        del self.runs[self._key(trial)]
        return None

    def _create_trial(self, trial: Trial) -> Run:
        tags: dict[str, str] = {"origin": trial.origin}
        if not self.nested:
            return self._create(PARENT, self.sweep, trial.started, tags)
        tags |= {"trial": trial.name, "mlflow.parentRunId": self.runs[PARENT].id}
        return self._create(trial.number, f"{self.sweep}/{trial.name}", trial.started, tags)

    def _create(self, key: int, name: str, started: float, tags: dict[str, str]) -> Run:
        if self.unsure:
            self._find()
            if key in self.runs:
                return self.runs[key]
        tags = {"sweep_id": self.sweep_id, "state": "running", **tags} | ({"sweep": self.sweep} if self.nested else {})
        stamp = to_milliseconds(started)
        try:
            created = self.store.client.create_run(self.experiment_id, stamp, tags, run_name=name)
        except Exception:
            self.unsure = True  # perhaps only the answer was lost, and the run exists
            raise
        self.runs[key] = Run(self.store.client, created.info.run_id, name, start_time=stamp, artifacts=self.artifacts)
        return self.runs[key]

    def _find(self) -> None:
        """Read the sweep's runs from the store. If a trial has two runs, the empty one is deleted."""
        for run in self.store.search(f"tags.sweep_id = '{self.sweep_id}'"):
            tags, info = run.data.tags, run.info
            key = int(tags.get("trial", PARENT))
            known = self.runs.get(key)
            if known is None:
                self.runs[key] = Run(
                    self.store.client,
                    info.run_id,
                    info.run_name,
                    params=len(run.data.params),
                    state=tags.get("state", "running"),
                    status=info.status,
                    reason=tags.get("reason", ""),
                    host=tags.get("host", ""),
                    end_time=info.end_time,
                    start_time=info.start_time,
                    artifacts=self.artifacts,
                )
            elif known.id != info.run_id and not run.data.metrics:
                self.store.client.delete_run(info.run_id)
