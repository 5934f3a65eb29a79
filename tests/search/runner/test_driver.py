"""Real sweeps on two CPUs, driven through the command as a user would, and killed for real.

The first trains for real. Those that are killed need no more than a trainer that keeps the contract.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from search.core.controller import Controller
from search.core.trials import Trials
from search.storage.ledger import Ledger, read_events
from spaces.load import load_space

pytestmark = pytest.mark.timeout(1800)  # one test starts four drivers, perhaps on a busy machine

SWEEP = (str(Path(sys.executable).parent / "sweep"),)
FAST = (sys.executable, str(Path(__file__).parents[3] / "benchmarks" / "fast_trainer.py"))  # all but the fit is real
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with packages of the user's own that are called like ours."""
    folder = tmp_path_factory.mktemp("user")
    for name in ("training", "search", "spaces", "analysis"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise ImportError('the user\\'s own package was taken for ours')")
    (folder / "tiny.yaml").write_text(SPACE)
    return folder


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
    """A driver to kill, with epochs long enough to be there for it, also on a busy machine."""
    return subprocess.Popen(
        [*command, *arguments],
        cwd=folder,
        env=environment(FAST_EPOCH_SECONDS="1"),
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


def check_truth(folder, name, trial_count, rungs_say="stop"):
    """Ledger, its replay, MLflow and the folder tell the same story, and nothing is left running."""
    path = folder / "sweeps" / name
    events = list(read_events(path / "ledger.jsonl"))
    assert max(Counter(reports(events)).values()) == 1
    trials = Trials("val_accuracy", events)
    assert len(trials) == trial_count
    for trial in trials:
        assert trial.state in ("completed", "stopped"), (trial.name, trial.state, trial.reason)
        assert [report.epoch for report in trial.reports] == list(range(1, trial.epoch + 1))
        assert (trial.epoch == 3) == (trial.state == "completed")
    replayed = Controller(load_space(path / "space.yaml"), Ledger(path / "ledger.jsonl"))
    for trial in trials:
        assert (replayed.decisions[trial.number] == rungs_say) == (trial.state == "stopped")
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
    """What a sweep started is gone: no process works in its folder or is a Ray worker of ours."""
    deadline = time.monotonic() + 90  # Ray's agents look for a killed raylet once a minute
    while time.monotonic() < deadline:
        left = [
            p for p in psutil.process_iter(["cmdline"]) if "run_trial" in str(p.info["cmdline"]) or _is_in(p, folder)
        ]
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
    workers = [
        p
        for p in psutil.Process(driver.pid).children(recursive=True)
        if "ray::ImplicitFunc" in p.name() + str(p.cmdline())
    ]
    assert workers
    workers[0].kill()


def test_a_sweep_with_a_killed_worker_ends_with_one_truth_and_leaves_no_process(folder):
    """The one real sweep of `make test`; the others here train more, or are killed more."""
    driver = start(folder, "run", "tiny.yaml", "--name", "lost", command=FAST)
    try:
        wait_for(folder / "sweeps" / "lost" / "ledger.jsonl", lambda events: len(reports(events)) >= 1, driver)
        kill_a_worker(driver)
        assert driver.wait(timeout=900) == 0, driver.stdout.read()
    finally:
        driver.kill()
    check_truth(folder, "lost", 6)
    events = list(read_events(folder / "sweeps" / "lost" / "ledger.jsonl"))
    assert [event.event for event in events].count("lost") == 1  # it went on by our count, not by Ray's
    check_no_processes(folder)


@pytest.fixture(scope="module")
def swept(folder):
    output = call(folder, "run", "tiny.yaml", "--name", "one", "--keep-best", "2")
    check_no_processes(folder)
    return output


@pytest.mark.slow
def test_a_sweep_runs_from_one_command_in_a_folder_with_packages_like_ours(folder, swept):
    trials = check_truth(folder, "one", 6)
    _, runs = mlflow_runs(folder, "one")
    assert {run.data.params.get("preprocessing.image_size") for run in runs} == {None, "32"}  # nothing is left auto
    assert [trial.origin for trial in trials][:3] == ["baseline"] * 3
    assert "Exported trial" in swept
    assert "sweep ui" in swept
    kept = list((folder / "sweeps" / "one" / "trials").glob("*/best.ckpt"))
    assert len(kept) == 2


@pytest.mark.slow
def test_paused_trials_go_on_from_their_checkpoints_or_end_as_stopped(folder):
    scheduler = "search.scheduler={name: asha, kind: promote, rungs: epochs, group: data.name}"
    # With this seed two trials are resumed, in whatever order the reports of two workers arrive.
    options = ["--name", "pausing", "--trials", "12", "search.sampler=random", "recipe.seed=25"]
    output = call(folder, "run", "tiny.yaml", *options, scheduler, command=FAST)
    events = list(read_events(folder / "sweeps" / "pausing" / "ledger.jsonl"))
    paused = [event.trial for event in events if getattr(event, "state", None) == "paused"]
    resumed = [event.trial for event in events if event.event == "resume"]
    assert paused
    assert resumed
    assert set(resumed) <= set(paused)
    trials = check_truth(folder, "pausing", 12, rungs_say="pause")  # each epoch once: none was trained again
    logs = [(folder / "sweeps" / "pausing" / "trials" / trial.name / "log.txt").read_text() for trial in trials]
    assert [log.count("begins.") for log in logs] == [trial.epoch for trial in trials]
    assert f"{len(trials)} trials after" in output


@pytest.mark.slow
def test_the_exported_recipe_trains_again_to_the_same_score(folder, swept):
    summary = json.loads((folder / "exports" / "one" / "summary.json").read_text())
    assert summary["format"] == 1
    assert summary["classes"] == [str(digit) for digit in range(10)]
    assert summary["mlflow_run_id"]
    recipe = (folder / "exports" / "one" / "recipe.yaml").read_text()
    assert "auto" not in recipe
    call(folder, "train", "exports/one/recipe.yaml", "--out", "again")
    again = json.loads((folder / "again" / "summary.json").read_text())
    assert again["metrics"]["val_accuracy"] == summary["metrics"]["val_accuracy"]
    assert again["metrics"]["val_loss"] == summary["metrics"]["val_loss"]
    assert (again["best_epoch"], again["threads"]) == (summary["best_epoch"], summary["threads"])
    weights = [(folder / path / "weights.safetensors").read_bytes() for path in ("again", "exports/one")]
    assert weights[0] == weights[1]
    _, runs = mlflow_runs(folder, "again", "attributes.run_name")
    assert [run.info.status for run in runs] == ["FINISHED"]


@pytest.mark.slow
def test_the_sweep_is_shown_and_a_stopped_trial_exports_its_recipe(folder, swept):
    assert "one" in call(folder, "list")
    assert "±" in call(folder, "show", "one")
    trials = Trials("val_accuracy", read_events(folder / "sweeps" / "one" / "ledger.jsonl"))
    without = next(t for t in trials if not (folder / "sweeps" / "one" / "trials" / t.name / "best.ckpt").exists())
    assert "its weights are gone" in call(folder, "export", "one", "--trial", without.name, "--out", "gone")
    assert not (folder / "gone" / "weights.safetensors").exists()
    call(folder, "resume", "one", check=2)  # it is completed


@pytest.mark.slow
def test_a_sweep_extends_and_another_begins_with_its_best(folder, swept):
    call(folder, "extend", "one", "--trials", "1", command=FAST)
    check_truth(folder, "one", 7)


@pytest.mark.slow
def test_ctrl_c_keeps_everything_and_resume_survives_a_killed_worker(folder, swept):
    ledger = folder / "sweeps" / "two" / "ledger.jsonl"
    driver = start(folder, "run", "tiny.yaml", "--name", "two", "--warm-start", "one", command=FAST)
    wait_for(ledger, lambda events: len(reports(events)) >= 3, driver)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(timeout=900) == 130, driver.stdout.read()
    _, runs = mlflow_runs(folder, "two")
    assert not [run for run in runs if run.info.status == "RUNNING"]
    assert {run.data.tags["state"] for run in runs if run.info.status == "KILLED"} == {"interrupted"}
    before = len(reports(list(read_events(ledger))))

    driver = start(folder, "resume", "two", command=FAST)
    try:
        wait_for(ledger, lambda events: len(reports(events)) > before, driver)
        kill_a_worker(driver)
        assert driver.wait(timeout=900) == 0, driver.stdout.read()
    finally:
        driver.kill()
    trials = check_truth(folder, "two", 6)
    assert [trial.origin for trial in trials][3] == "warm_start"


MOMENTS = {
    "during start-up": lambda events: any(event.event == "driver" for event in events),
    "in the middle of a trial": lambda events: len(reports(events)) >= 2,
    "just after a trial's end": lambda events: any(
        getattr(event, "state", None) in ("completed", "stopped") for event in events
    ),
}


@pytest.mark.slow
def test_a_sweep_goes_on_whenever_its_driver_is_killed(folder):
    ledger = folder / "sweeps" / "killed" / "ledger.jsonl"
    kept: list = []
    for moment, enough in MOMENTS.items():
        arguments = ["resume", "killed"] if kept or ledger.exists() else ["run", "tiny.yaml", "--name", "killed"]
        driver = start(folder, *arguments, command=FAST)
        seen = len(kept)
        wait_for(ledger, lambda events, enough=enough, seen=seen: len(events) > seen and enough(events), driver)
        driver.kill()
        driver.wait()
        if moment == "in the middle of a trial":
            forget_last_report(ledger)
        kept = list(read_events(ledger))
    call(folder, "resume", "killed", command=FAST)
    events = list(read_events(ledger))
    assert events[: len(kept)] == kept
    check_truth(folder, "killed", 6)
    check_no_processes(folder)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting takes a right that this user does not have")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.slow
def test_a_full_disk_ends_a_sweep_in_one_sentence_and_everything_before_it_counts(folder, small_disk):
    ledger, filler = small_disk / "full" / "ledger.jsonl", small_disk / "filler"
    driver = start(folder, "run", "tiny.yaml", "--name", "full", "--storage", str(small_disk), command=FAST)
    wait_for(ledger, lambda events: len(reports(events)) >= 2, driver)
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * (4 << 20))
    said, _ = driver.communicate(timeout=900)
    assert driver.returncode == 2, said
    assert "No space left on device" in said.splitlines()[-1]
    assert "sweep resume full" in said.splitlines()[-1]
    assert "Traceback" not in said
    kept = list(read_events(ledger))
    filler.unlink()
    call(folder, "resume", "full", "--storage", str(small_disk), command=FAST)
    assert list(read_events(ledger))[: len(kept)] == kept
    trials = Trials("val_accuracy", read_events(ledger))
    assert [trial.state in ("completed", "stopped") for trial in trials] == [True] * 6


def forget_last_report(ledger):
    """As if the driver had been killed between a worker's checkpoint and its report: the checkpoint is ahead."""
    lines = ledger.read_bytes().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if b'"event":"report"' in line)
    ledger.write_bytes(b"".join(lines[:last]))
