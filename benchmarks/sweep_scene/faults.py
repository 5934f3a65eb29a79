"""Compare a sweep's ledger with its replay, the trainers' logs and MLflow, and count what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from benchmarks.sweep_scene.scene import NODES, Driven, Scene, find_workers
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.trials import Trials
from search.core.controller import Controller

HARMLESS = {
    "kills",
    "epochs trained",
    "epochs begun twice",
    "trials expected",
    "trials found",
    "resumed for MLflow alone",
}


def count_faults(scene: Scene, kills: int) -> Counter[str]:
    """Count the differences between each ledger, its replay, the trainers' logs and MLflow, and the processes left."""
    counts: Counter[str] = Counter()
    for sweep in scene.sweeps:
        counts.update(_count_faults(sweep, kills, scene.server.uri))
    counts.update({"processes left": len(find_workers())})
    return counts


def _count_faults(sweep: Driven, kills: int, uri: str) -> dict[str, int]:
    events = sweep.events()
    record = SweepRecord(SweepFolder(sweep.ledger.parent), events)
    space = record.space  # a sweep from a copy has no space.yaml
    trials = Trials(space.search.metric, events)
    arrived = Counter((event.trial, event.epoch) for event in events if event.event == "report")
    replayed = Controller(space, Ledger(sweep.ledger))
    begun: Counter[tuple[int, str]] = Counter()
    for trial in trials:
        # A lost head took the logs in its folder with it.
        own, copied = (
            place.parent / "trials" / trial.name / "log.txt" for place in (sweep.ledger, sweep.copied_ledger)
        )
        log = own if own.exists() else copied
        begun.update(
            (trial.number, line.split("Epoch ")[1]) for line in log.read_text().splitlines() if "Epoch " in line
        )
    twice = begun.total() - len(begun)
    return {
        "epochs trained": len(begun),
        "epochs begun twice": twice,
        "trials expected": space.search.trials,
        "trials found": len(trials),
        "beyond kills × running trials": max(0, twice - kills * NODES),
        "reports missing": sum(trial.epoch - sum(number == trial.number for number, _ in arrived) for trial in trials),
        "reports duplicated": arrived.total() - len(arrived),
        "lines of a killed driver changed": int(events[: len(sweep.kept)] != sweep.kept),
        "wrong end states": sum(
            trial.state != ("completed" if trial.epoch == trial.epochs else "stopped") for trial in trials
        ),
        "decisions that differ from the replay": sum(
            (replayed.decisions[trial.number] == "stop") != (trial.state == "stopped") for trial in trials
        ),
        **count_mlflow_faults(uri, record.header.id, trials),
    }


def count_mlflow_faults(uri: str, sweep: str, trials: Trials) -> dict[str, int]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("technique-search")
    runs = client.search_runs([experiment.experiment_id], f"tags.sweep_id = '{sweep}'", max_results=1000)
    children: dict[str, list[Any]] = {}
    for run in runs:
        children.setdefault(run.data.tags.get("trial", "parent"), []).append(run)
    wrong_states, wrong_steps = int(children["parent"][0].info.status != "FINISHED"), 0
    for trial in trials:
        for run in children.get(trial.name, [])[:1]:
            wrong_states += (run.info.status, run.data.tags["state"]) != ("FINISHED", trial.state)
            history = client.get_metric_history(run.info.run_id, trials.metric)
            wrong_steps += [point.step for point in history] != list(range(1, trial.epoch + 1))
    return {
        "MLflow runs missing": len(trials) + 1 - len(children),
        "MLflow runs duplicated": len(runs) - len(children),
        "MLflow runs in a wrong state": wrong_states,
        "MLflow runs with a missing or duplicated step": wrong_steps,
    }


def find_faults(counts: dict[str, int], kinds: Iterable[str]) -> dict[str, int]:
    """Return the counts that should be zero but are not. The kinds of kills are counted too."""
    harmless = HARMLESS.union(kinds)
    lost = {"trials lost": counts["trials expected"] - counts["trials found"]}
    return {n: c for n, c in (counts | lost).items() if c and n not in harmless}
