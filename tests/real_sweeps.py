"""Real sweeps for tests: the command as a user calls it, functions that kill it, and checks of the result."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

from ledger.file import Ledger, read_events
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.trials import Trials
from search.core.controller import Controller

SWEEP = (str(Path(sys.executable).parent / "sweep"),)
# Everything except the fit is real.
FAST = (sys.executable, str(Path(__file__).parents[1] / "benchmarks" / "fast_trainer.py"))
SPACE = """
format: 1
recipe:
  data: {name: digits, train_size: 60}
  backbone: {name: test_resnet, weights: none}
  epochs: 3
  unfreeze: {level: {choice: [last, most, full]}}
  label_smoothing: {alpha: {uniform: [0.0, 0.3]}}
  optimizer: {name: momentum, lr: {log_uniform: [0.003, 0.3]}}
search:
  trials: 6
"""


def environment(**more):
    return {**{k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"}, "COLUMNS": "200", **more}


def call(folder, *arguments, check=0, command=SWEEP):
    done = subprocess.run(
        [*command, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, timeout=900
    )
    assert done.returncode == check, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


def start(folder, *arguments, command=SWEEP):
    """Start a driver that will be killed, with epochs that are long enough for this on a busy machine too."""
    return subprocess.Popen(
        [*command, *arguments],
        cwd=folder,
        env=environment(FAST_EPOCH_SECONDS="1", COLUMNS="2000"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(path, enough, driver, seconds=900):
    """Wait until the ledger's events satisfy `enough`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and enough(events := list(read_events(path))):
            return events
        assert driver.poll() is None, driver.stdout.read()
        time.sleep(0.05)
    raise AssertionError(f"nothing of that kind in {path}")


def reports(events):
    return [(event.trial, event.epoch) for event in events if event.event == "report"]


def mlflow_runs(folder, name, field="tags.sweep"):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("technique-search")
    return client, client.search_runs([experiment.experiment_id], f"{field} = '{name}'", max_results=100)


def check_truth(folder, name, trial_count, epochs=3):
    """Check that the ledger, its replay, MLflow and the folder agree, and that no process is left."""
    path = folder / "sweeps" / name
    events = list(read_events(path / "ledger.jsonl"))
    assert max(Counter(reports(events)).values()) == 1
    trials = Trials("val_accuracy", events)
    assert len(trials) == trial_count
    for trial in trials:
        assert trial.state in ("completed", "stopped"), (trial.name, trial.state, trial.reason)
        assert [report.epoch for report in trial.reports] == list(range(1, trial.epoch + 1))
        assert (trial.epoch == epochs) == (trial.state == "completed")
    replayed = Controller(SweepRecord.open(SweepFolder(path)).space, Ledger(path / "ledger.jsonl"))
    for trial in trials:
        assert (replayed.decisions[trial.number] == "stop") == (trial.state == "stopped")
    client, runs = mlflow_runs(folder, name)
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = {run.data.tags["trial"]: run for run in runs if run not in parents}
    assert [run.info.status for run in parents] == ["FINISHED"]
    assert sorted(children) == [trial.name for trial in trials]
    assert len(runs) == trial_count + 1
    for trial in trials:
        run = children[trial.name]
        assert (run.info.status, run.data.tags["state"]) == ("FINISHED", trial.state)
        history = client.get_metric_history(run.info.run_id, "val_accuracy")
        assert [point.step for point in history] == list(range(1, trial.epoch + 1))
        assert run.data.params["optimizer.lr"] == str(trial.recipe.optimizer.lr)
    for trial in trials:
        left = {file.name for file in (path / "trials" / trial.name).glob("*.ckpt")}
        assert left == ({"best.ckpt"} if trial.state == "completed" else set()) or trial.state == "completed"
    return trials


def check_no_processes(folder):
    """Check that all processes of a sweep have ended: none works in its folder."""
    deadline = time.monotonic() + 90  # Ray's agents check for a killed raylet once a minute
    while time.monotonic() < deadline:
        left = [process for process in psutil.process_iter() if _is_in(process, folder)]
        if not left:
            return
        time.sleep(0.5)
    raise AssertionError(left)


def _is_in(process, folder):
    try:
        return str(folder) in process.cwd()
    except psutil.Error:
        return False


def kill_a_worker(driver):
    workers = [p for p in psutil.Process(driver.pid).children(recursive=True) if runs_trials(p)]
    assert workers
    workers[0].kill()


def runs_trials(process):
    try:
        return re.match(r"ray::.+\.train", " ".join(process.cmdline())) is not None  # ray::SWEEP.train
    except psutil.Error:  # it has just ended
        return False


def make_user_folder(folder):
    """Fill a working folder with a user's packages that have the same names as ours, and with a space."""
    for name in ("training", "search", "ledger", "spaces", "analysis"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise ImportError('the user\\'s own package was taken for ours')")
    (folder / "tiny.yaml").write_text(SPACE)
    return folder
