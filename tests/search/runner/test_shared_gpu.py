"""Trials that share a GPU under the real Ray, on a machine that only claims to have a GPU; workers simulate the training."""

import json
from types import SimpleNamespace

import pytest

from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.settings import Settings
from search.core.controller import Controller
from search.runner import executor
from search.runner.machines.capacity import Capacity, Demand
from search.runner.machines.cluster import list_nodes
from search.runner.machines.ray_process import RAY_SETTINGS
from spaces.load import load_space

GREEDY = 2  # the trial that runs out of memory


def make_train():
    """Return a function that Ray pickles by value, because its workers do not have this module."""

    def train(config, greedy=GREEDY):
        """Report two epochs, and note the part of the GPU; the greedy trial runs out of memory."""
        import json
        import time
        from pathlib import Path

        from ray import tune

        began, path = time.time(), Path(config["folder"])
        path.mkdir(parents=True, exist_ok=True)
        if config["trial"] == greedy:
            tune.report({"message": json.dumps({"end": "out_of_memory", "reason": "CUDA out of memory"})})
            return
        together = time.monotonic() + 120
        while config["trial"] == 0 and not (path.parent / "0001").exists() and time.monotonic() < together:
            time.sleep(0.1)  # it does not end before another trial has begun beside it
        for epoch in (1, 2):
            time.sleep(0.5)
            if epoch > config["reported"]:
                report = {"epoch": epoch, "metrics": {}, "score": 0.5, "standard_error": 0.1, "best_epoch": 1}
                report |= {"steps": [], "time": time.time()}
                tune.report({"message": json.dumps({"report": report, "worker_seconds": 1.0, "host": ""})})
        (path / "used.json").write_text(json.dumps([began, time.time(), config["gpus"]]))

    return train


@pytest.fixture
def ray_with_a_gpu(monkeypatch):
    for name, value in RAY_SETTINGS.items():
        monkeypatch.setenv(name, value)
    import ray

    ray.init(address="local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_trials_share_a_gpu_and_one_that_runs_out_of_memory_does_not_stop_the_others(
    ray_with_a_gpu, tmp_path, monkeypatch
):
    overrides = ["search.trials=7", "epochs=2", "search.scheduler={name: none}", "backbone.weights=none"]
    folder = SweepFolder(tmp_path / "shared")
    folder.path.mkdir()
    controller = Controller(load_space("quick", overrides), Ledger(folder.ledger))
    capacity = Capacity(Demand(1, 0.3333), list_nodes())
    monkeypatch.setattr(executor, "bootstrap", lambda *names: make_train())
    assert capacity.slots == 3
    controls = {"should_stop": lambda: False, "leave": lambda: None, "display": SimpleNamespace(line=print)}
    work = SimpleNamespace(folder=folder, controller=controller, capacity=capacity, settings=Settings(), **controls)
    executor.run_on_ray(work)
    others = [trial for trial in controller.trials if trial.number != GREEDY]
    assert controller.trials.by_number[GREEDY].state == "out_of_memory"
    assert {trial.state for trial in others} == {"completed"}
    used = [json.loads((folder.trial(trial.number) / "used.json").read_text()) for trial in others]
    for moment, _, _ in used:
        assert sum(gpus for began, ended, gpus in used if began <= moment < ended) <= 1
    assert used[1][0] < used[0][1]
