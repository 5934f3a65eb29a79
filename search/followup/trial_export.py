"""From a sweep's ledger to what `sweep export`, `show` and `list` tell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.export.bundle import Source, check_out, export_model, export_recipe
from search.core.folder import SweepFolder, describe_loss
from search.core.ledger import Event, read_events, sweep_header
from search.core.trials import UNFINISHED, Trial, Trials
from search.display.tables import SweepRow
from spaces.load import parse_space
from spaces.space import Space
from training.errors import UserError
from training.process.optional import require
from training.recipe import read_recipe


def read_trials(folder: SweepFolder) -> Trials:
    """The trials of a sweep, running or not; without a driver none is running, whatever its ledger could still say."""
    events = list(read_events(folder.ledger))
    trials = Trials(read_space(folder, events).search.metric, events)
    if any(trial.state == "running" for trial in trials) and not folder.is_running():
        for trial in trials:
            trial.state = "interrupted" if trial.state == "running" else trial.state
    return trials


def read_space(folder: SweepFolder, events: list[Event]) -> Space:
    """The space of a sweep, as its ledger has it."""
    return parse_space(sweep_header(folder.ledger, events)["space"], str(folder.space))


@dataclass(frozen=True)
class Extras:
    """What is made of an export beside its files."""

    onnx: bool = False
    int8: bool = False
    register: str | None = None

    def __bool__(self) -> bool:
        return self.onnx or self.int8 or self.register is not None


def export_trial(folder: SweepFolder, name: str | None, out: Path | None, extras: Extras = Extras()) -> str:
    """Export the best trial, or the one named; returns a sentence about what was written where.

    Of a sweep that was confirmed, the best is the model that was scored on the test part.

    Raises:
        UserError: there is no such trial, none completed, or there are no weights for the extras.
    """
    from search.followup.replication import describe_trial

    trials = read_trials(folder)
    test = next((event for event in read_events(folder.ledger) if event.get("event") == "test"), None)
    trial = trials.by_number[test["trial"]] if test and name is None else _choose(trials, name, folder.name)
    out = out or Path("exports") / (f"{folder.name}-{trial.name}" if name else folder.name)
    check_out(out)
    if extras.register is not None:
        from analysis.export.registry import check_model_name

        check_model_name(extras.register)
    if extras.onnx or extras.int8:
        require("--int8" if extras.int8 else "--onnx", "onnx", "onnxruntime", "onnxscript")
    checkpoint = folder.trial(trial.number) / "best.ckpt"
    train_again = f"Train it again: sweep train {out}/recipe.yaml"
    saved, why = _read_weights(checkpoint, trial)
    if saved is None:
        if extras:
            raise UserError(
                f"trial {trial.name} of {folder.name} has no weights ({why}), which --onnx, --int8 and --register need. "
                "Leave these out to export its recipe alone, and train it again with sweep train."
            )
        export_recipe(read_recipe(trial.recipe), out)
        return f"Exported the recipe of {describe_trial(folder, trial)} to {out}; its weights are gone ({why}). {train_again}"
    source = source_of(folder, trial, test, saved["classes"])
    export_model(read_recipe(saved["recipe"]), saved["state_dict"], source, out)
    more = _add(folder, out, extras) if extras else ""
    return f"Exported {describe_trial(folder, trial)} to {out}: recipe, weights, summary, card.{more} {train_again}"


def _read_weights(checkpoint: Path, trial: Trial) -> tuple[dict[str, Any] | None, str]:
    """The trial's best weights, else why there are none."""
    if not checkpoint.exists():
        return None, f"it was {trial.state}" if trial.state != "completed" else "only the best few keep theirs"
    from training.loop.checkpoint import read_checkpoint

    try:
        return read_checkpoint(checkpoint), ""
    except UserError as error:
        return None, str(error).rstrip(".")


def source_of(folder: SweepFolder, trial: Trial, test: Event | None, classes: Sequence[str]) -> Source:
    """What an export says of where it comes from; `test` is the sweep's test score, of whichever trial."""
    facts, metric, last = read_facts(folder), read_trials(folder).metric, trial.reports[-1]
    # A ledger that was repaired may have lost the report itself, and still says the score.
    metrics = {report["epoch"]: report["metrics"] for report in trial.reports}
    return Source(
        metrics=metrics.get(last["best_epoch"], {metric: last["score"]}),
        metric=metric,
        score=last["score"],
        standard_error=trial.standard_error,
        best_epoch=last["best_epoch"],
        classes=tuple(classes),
        threads=facts["threads"],
        sweep=folder.name,
        trial=trial.name,
        run_id=facts["runs"].get(str(trial.number)),
        test=test["results"] if test and test["trial"] == trial.number else None,
    )


def _add(folder: SweepFolder, out: Path, extras: Extras) -> str:
    """Make the extras, write into summary and card what is known of them, and say it."""
    from analysis.export.bundle import read_export, write_summary
    from analysis.export.onnx_export import export_onnx, quantise
    from search.runner.driver import read_settings
    from training.evaluate import load_same_data

    exported = read_export(out)
    data, said = load_same_data(exported.recipe, exported.classes), ""
    if extras.onnx or extras.int8:
        exported.summary["onnx"] = export_onnx(exported, data)
        said += " model.onnx gives the same logits."
    if extras.int8:
        exported.summary["int8"] = found = quantise(exported, data)
        said += (
            f" model.int8.onnx, {found['megabytes']:.1f} of {found['megabytes_float32']:.1f} MB, has a validation accuracy "
            f"of {found['val_accuracy']:.1%} where float32 has {found['val_accuracy_float32']:.1%}."
        )
    write_summary(exported.recipe, exported.summary, out)
    if extras.register is not None:
        from analysis.export.registry import register

        settings = read_settings(folder)
        address = register(
            exported, data, name=extras.register, tracking_uri=settings.tracking_uri, experiment=settings.experiment
        )
        said += f" Registered as {address}; serve it: mlflow models serve -m {address}."
    return said


def read_facts(folder: SweepFolder) -> dict[str, Any]:
    """What the ledger says beside trials: the threads each had, and the MLflow runs by trial number."""
    facts: dict[str, Any] = {"threads": 1, "runs": {}}
    for event in read_events(folder.ledger):
        if event.get("event") == "driver":
            facts["threads"] = event["threads"]
        elif event.get("event") == "runs":
            facts["runs"] |= event["ids"]
    return facts


def describe_sweeps(folders: Iterable[SweepFolder]) -> tuple[list[SweepRow], list[str]]:
    """The lines of `sweep list`, and a sentence for each sweep that is damaged."""
    rows, problems = [], []
    for folder in folders:
        try:
            rows.append(describe_sweep(folder))
        except UserError as error:
            problems.append(str(error))
    return rows, problems


def describe_sweep(folder: SweepFolder) -> SweepRow:
    """A line of `sweep list`.

    Raises:
        UserError: the sweep is damaged.
    """
    if not folder.ledger.is_file():
        raise UserError(describe_loss(folder))
    events = list(read_events(folder.ledger))
    space = read_space(folder, events)
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
    if not re.fullmatch("[0-9]{1,9}", name) or int(name) not in trials.by_number:
        raise UserError(f"--trial={name}: {sweep} has no such trial; its trials are 0000 to {len(trials) - 1:04d}.")
    return trials.by_number[int(name)]
