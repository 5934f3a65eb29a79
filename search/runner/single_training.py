"""`sweep train`: train one recipe with the trainer, the logging and the export of a sweep."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable
from dataclasses import asdict
from itertools import count
from pathlib import Path

import typer

from analysis.export.bundle import check_out, export_model, export_recipe
from analysis.export.summary import Provenance
from ledger.events import EpochReported, SweepStarted, TrialEnded, TrialStarted
from ledger.formatting import format_score, plural
from ledger.settings import Settings
from search.arguments import MOST_THREADS
from search.runner.interrupt import URGENT_CLOSE_SECONDS, Interrupted, interruptible
from search.runner.machines.preparation import check_recipe
from search.tracking.writer import Tracking
from spaces.load import load_recipe
from training.errors import UserError
from training.loop.epoch_report import Kept, Outcome, Report
from training.process.resources import Resources, count_cpus, find_device, split_cpus
from training.process.text_files import read_json
from training.recipe import Recipe
from training.score_metrics import MAXIMISED, MINIMISED


def train_single(
    recipe: Recipe,
    source: Path,
    out: Path | None,
    *,
    metric: str,
    score: Kept,
    cpus: int | None,
    device: str | None,
    tracking_uri: str,
    experiment: str,
    say: Callable[[str], object],
) -> None:
    """Train, log one run to MLflow, and export the best weights into `out`."""
    from training.data.files.away import find_missing
    from training.data.identity import identify
    from training.data.inspection.remarks import list_remarks, summarise_remarks

    if metric not in (*MAXIMISED, *MINIMISED):
        raise UserError(f"--metric={metric}: choose one of {', '.join((*MAXIMISED, *MINIMISED))}.")
    out = out or next(folder for number in count(1) if not (folder := Path("trained", str(number))).exists())
    _check_free(out, recipe)
    resources = _plan_resources(recipe, source, cpus, device)
    try:
        data, _ = check_recipe(recipe, resources.device)
    except UserError as error:
        if missing := find_missing(recipe.data):
            place = {"root": "FOLDER", "path": "FILE"}[missing[0]]
            raise UserError(f"{error} If the images moved, add data.{missing[0]}=NEW/{place}.") from None
        raise
    sweep_id = uuid.uuid4().hex
    tracking = Tracking(tracking_uri, experiment, sweep=out.name, sweep_id=sweep_id, metric=metric, nested=False)
    tracking(SweepStarted(name=out.name, id=sweep_id, settings=Settings(), dataset=identify(data, recipe.data)))
    tracking.start()  # not earlier, so that a refused training creates no database
    tracking.wait_ready()
    export_recipe(recipe, out)
    say(f"Training {source} on {plural(resources.threads, 'CPU thread')}, {resources.device}.")
    if remarks := summarise_remarks(list_remarks(data), recipe.data):
        say(remarks)
    hint = f"To continue, run the command again with --out {out}"
    try:
        outcome = _train(recipe, out, metric, score, resources, tracking, say)
    except Interrupted as end:
        tracking(TrialEnded(trial=0, state="interrupted"))
        tracking.close("interrupted", at_most_seconds=URGENT_CLOSE_SECONDS)
        raise Interrupted(end.number, hint) from None
    except BaseException:
        tracking(TrialEnded(trial=0, state="failed", reason="the training did not start"))
        tracking.close("failed")
        raise
    tracking.close(outcome.state)
    if outcome.state == "diverged":
        say("The training diverged: the loss became infinite or NaN. Lower optimizer.lr, or clip the gradient.")
        raise typer.Exit(1)
    if outcome.state == "stopped":
        say(f"Interrupted after {plural(len(outcome.reports), 'epoch')}.")
        raise Interrupted(signal.SIGINT, hint)
    _export(outcome, out, metric, resources.threads, tracking.run_ids.get(0))
    say(f"Wrote {out}: recipe.yaml, model.safetensors, summary.json.")


def _check_free(out: Path, recipe: Recipe) -> None:
    if (out / "summary.json").exists():
        raise UserError(f"--out={out}: this folder already has a finished training. Name a new folder.")
    if (out / "last.ckpt").exists() and load_recipe(out / "recipe.yaml") != recipe:
        raise UserError(f"--out={out}: this folder has an interrupted training of another recipe. Name a new folder.")
    check_out(out)


def _train(
    recipe: Recipe,
    out: Path,
    metric: str,
    score: Kept,
    resources: Resources,
    tracking: Tracking,
    say: Callable[[str], object],
) -> Outcome:
    from training.train import train

    tracking(TrialStarted(trial=0, recipe=recipe, params=None, origin="single"))
    with interruptible() as interrupted:

        def on_report(report: Report) -> bool:
            tracking(EpochReported(trial=0, **asdict(report)))
            now = format_score(metric, report.metrics[metric])
            best = format_score(metric, report.score, report.standard_error)
            suffix = f", best {best}" if score == "best" else ""
            say(f"epoch {report.epoch}/{recipe.epochs}: {metric} {now}{suffix}")
            return not interrupted()

        outcome = train(recipe, out, metric=metric, score=score, resources=resources, on_report=on_report)
    tracking(TrialEnded(trial=0, state="interrupted" if outcome.state == "stopped" else outcome.state))
    return outcome


def _export(outcome: Outcome, out: Path, metric: str, threads: int, run_id: str | None) -> None:
    from training.evaluate import read_trained

    last = outcome.reports[-1]
    best = outcome.reports[last.best_epoch - 1]
    source = Provenance(
        metrics=best.metrics,
        metric=metric,
        score=last.score,
        standard_error=last.standard_error,
        best_epoch=best.epoch,
        test=None,
        trained_on="train",
        classes=list(outcome.classes),
        threads=threads,
        sweep=None,
        trial=None,
        mlflow_run_id=run_id,
    )
    export_model(outcome.recipe, read_trained(out / "best.ckpt")["state_dict"], source, out)
    for name in ("best.ckpt", "last.ckpt"):
        (out / name).unlink()


def _read_threads(summary: Path) -> int | None:
    try:
        threads = read_json(summary)["threads"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{summary}: it does not name the threads of the training ({error}). Give --cpus N.") from None
    if not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
        raise UserError(f"{summary}: threads={threads!r} is not a number from 1 to {MOST_THREADS}. Give --cpus N.")
    return threads


def _plan_resources(recipe: Recipe, source: Path, cpus: int | None, device: str | None) -> Resources:
    """As many threads as the exported trial had, so that its numbers come out again; else all CPUs."""
    summary = source.parent / "summary.json"
    if cpus is None and summary.is_file():
        cpus = _read_threads(summary)
    all_cpus = count_cpus()
    # Set before torch is imported, because its thread pools read it then.
    os.environ["OMP_NUM_THREADS"] = str(cpus or all_cpus)
    import torch

    has_gpu = find_device() == "cuda"
    if device == "cuda" and not has_gpu:
        raise UserError("--device=cuda: there is no GPU that torch can use. Give cpu.")
    on_gpu = has_gpu and device != "cpu"
    threads, workers = (cpus, 0) if cpus else split_cpus(all_cpus, not recipe.data.reads_files, on_gpu)
    return Resources(threads, workers, "cuda" if on_gpu else "cpu", torch.cuda.device_count())
