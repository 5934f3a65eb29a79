"""Real sweeps on two CPUs, driven through the command as a user would."""

import json
import signal

import pytest

from ledger.file import read_events
from ledger.trials import Trials
from tests.real_sweeps import (
    FAST,
    call,
    check_no_processes,
    check_truth,
    kill_a_worker,
    mlflow_runs,
    reports,
    start,
    wait_for,
)

pytestmark = pytest.mark.timeout(1800)  # one test starts four drivers, perhaps on a busy machine


@pytest.fixture(scope="module")
def swept(folder):
    output = call(folder, "run", "tiny.yaml", "--name", "one", "--keep-best", "2", "search.score=last")
    check_no_processes(folder)
    return output


@pytest.mark.slow
def test_a_sweep_runs_from_one_command_in_a_folder_with_packages_like_ours(folder, swept):
    trials = check_truth(folder, "one", 6)
    _, runs = mlflow_runs(folder, "one")
    assert {run.data.params.get("preprocessing.image_size") for run in runs} == {None, "32"}  # every auto was replaced
    assert [trial.origin for trial in trials][:3] == ["baseline"] * 3
    assert "Exported trial" in swept
    assert "sweep ui" in swept
    kept = list((folder / "sweeps" / "one" / "trials").glob("*/best.ckpt"))
    assert len(kept) == 2


@pytest.mark.slow
def test_the_exported_recipe_trains_again_to_the_same_score(folder, swept):
    summary = json.loads((folder / "exports" / "one" / "summary.json").read_text())
    assert summary["format"] == 1
    assert summary["classes"] == [str(digit) for digit in range(10)]
    assert summary["mlflow_run_id"]
    recipe = (folder / "exports" / "one" / "recipe.yaml").read_text()
    assert "auto" not in recipe
    assert "sweep train exports/one/recipe.yaml --score last" in " ".join(swept.split())
    call(folder, "train", "exports/one/recipe.yaml", "--score", "last", "--out", "again")
    again = json.loads((folder / "again" / "summary.json").read_text())
    assert again["metrics"]["val_accuracy"] == summary["metrics"]["val_accuracy"]
    assert again["metrics"]["val_loss"] == summary["metrics"]["val_loss"]
    events = read_events(folder / "sweeps" / "one" / "ledger.jsonl")
    assert [event for event in events if event.event == "report" and event.best_epoch != event.epoch] == []
    assert (again["best_epoch"], again["threads"]) == (summary["best_epoch"], summary["threads"])
    weights = [(folder / path / "model.safetensors").read_bytes() for path in ("again", "exports/one")]
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
    assert not (folder / "gone" / "model.safetensors").exists()
    call(folder, "resume", "one", check=2)  # it is completed


@pytest.mark.slow
def test_a_sweep_is_extended_and_another_begins_with_its_best_recipes(folder, swept):
    call(folder, "resume", "one", "--trials", "1", command=FAST)
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
