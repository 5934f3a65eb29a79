"""From a sweep's ledger to what `sweep export`, `show` and `list` tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.export import Source, export_model, export_recipe
from search.folder import SweepFolder
from search.ledger import read_events
from search.tables import SweepRow
from search.trials import UNFINISHED, Trial, Trials
from spaces.load import load_space
from training.errors import UserError
from training.recipe import Recipe, read_recipe


def read_trials(folder: SweepFolder) -> Trials:
    """The trials of a sweep, running or not."""
    return Trials(load_space(folder.space).search.metric, read_events(folder.ledger))


def export_trial(folder: SweepFolder, name: str | None, out: Path | None) -> str:
    """Export the best trial, or the one named; returns a sentence about what was written where.

    Raises:
        UserError: there is no such trial, or none completed.
    """
    trials = read_trials(folder)
    trial = _choose(trials, name, folder.name)
    out = out or Path("exports") / (f"{folder.name}-{trial.name}" if name else folder.name)
    checkpoint = folder.trial(trial.number) / "best.ckpt"
    train_again = f"Train it again: sweep train {out}/recipe.yaml"
    if not checkpoint.exists():
        export_recipe(read_recipe(trial.recipe), out)
        why = f"it was {trial.state}" if trial.state != "completed" else "only the best few keep theirs"
        return f"Exported the recipe of trial {trial.name} to {out}; its weights are gone ({why}). {train_again}"
    facts = read_facts(folder)
    recipe, classes = _read_described(checkpoint)
    best = trial.reports[trial.reports[-1]["best_epoch"] - 1]
    source = Source(
        metrics=best["metrics"],
        metric=trials.metric,
        score=trial.reports[-1]["score"],
        standard_error=trial.standard_error,
        best_epoch=best["epoch"],
        classes=classes,
        threads=facts["threads"],
        sweep=folder.name,
        trial=trial.name,
        run_id=facts["runs"].get(str(trial.number)),
    )
    export_model(recipe, checkpoint, source, out)
    return f"Exported trial {trial.name} to {out}: recipe, weights, summary. {train_again}"


def read_facts(folder: SweepFolder) -> dict[str, Any]:
    """What the ledger says beside trials: the threads each had, and the MLflow runs by trial number."""
    facts: dict[str, Any] = {"threads": 1, "runs": {}}
    for event in read_events(folder.ledger):
        if event.get("event") == "driver":
            facts["threads"] = event["threads"]
        elif event.get("event") == "runs":
            facts["runs"] |= event["ids"]
    return facts


def describe_sweep(folder: SweepFolder) -> SweepRow:
    """A line of `sweep list`."""
    events = list(read_events(folder.ledger))
    space = load_space(folder.space)
    trials = Trials(space.search.metric, events)
    closes = [event["state"] for event in events if event.get("event") == "close"]
    total = space.search.trials + trials.extra
    done = len(trials) >= total and not any(trial.state in UNFINISHED for trial in trials)
    state = "running" if folder.is_running() else "completed" if done else (closes[-1:] or ["interrupted"])[0]
    ended = sum(trial.state not in UNFINISHED for trial in trials)
    best = trials.best()
    score, error = (best.score, best.standard_error) if best else (None, None)
    started = events[0]["time"]
    return SweepRow(folder.name, state, ended, total, trials.metric, score, error, started, folder.path)


def _choose(trials: Trials, name: str | None, sweep: str) -> Trial:
    if name is None:
        if (best := trials.best()) is None:
            raise UserError(f"{sweep} has no completed trial, so no best one. Export one by name: --trial 0000.")
        return best
    if not name.isdigit() or int(name) not in trials.by_number:
        raise UserError(f"--trial={name}: {sweep} has no such trial; its trials are 0000 to {len(trials) - 1:04d}.")
    return trials.by_number[int(name)]


def _read_described(checkpoint: Path) -> tuple[Recipe, tuple[str, ...]]:
    """The resolved recipe and the class names that travel with the weights."""
    import torch

    saved = torch.load(checkpoint, map_location="cpu", weights_only=True)
    return read_recipe(saved["recipe"]), tuple(saved["classes"])
