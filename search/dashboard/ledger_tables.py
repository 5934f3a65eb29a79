"""A sweep as the tables of `analysis.load`, but read from its ledger, which MLflow may lack for some seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from analysis.reading.sweep_tables import CURVES, FACTS, SCORE, Sweep
from search.core.record import SweepRecord
from search.core.trials import Trial
from training.score_metrics import COST

MEANS = {"seconds": "seconds", "memory_mb": "peak_memory_mb"}  # columns of the trials, and of their last epoch


def make_tables(record: SweepRecord) -> Sweep:
    """Return the tables of a sweep."""
    curves = pd.DataFrame(
        [_describe_epoch(trial, number) for trial in record.trials for number in range(len(trial.reports))],
        columns=["trial", "epoch", *SCORE, *CURVES],
    ).astype(dict.fromkeys((*SCORE, *CURVES), float))
    curves["seconds"] = curves[list(COST)].sum(axis=1, min_count=1)
    last = curves.groupby("trial").last()
    trials = pd.DataFrame([_describe_trial(trial) for trial in record.trials])
    for column, source in MEANS.items():
        trials[column] = trials.trial.map(last[source])
    recipes = pd.DataFrame([trial.recipe.flat() for trial in record.trials], dtype=object)
    return Sweep(
        record.name,
        "",
        record.state,
        record.space,
        trials[FACTS].join(recipes),
        curves,
        dict(_list_figures(record)),
        tuple(note.text for note in record.notes),
    )


def _describe_epoch(trial: Trial, number: int) -> dict[str, Any]:
    report = trial.reports[number]
    score = {"score": report.score, "standard_error": report.standard_error, "best_epoch": report.best_epoch}
    return {
        "trial": trial.number,
        "epoch": report.epoch,
        **score,
        **{name: report.metrics.get(name) for name in CURVES},
    }


def _describe_trial(trial: Trial) -> dict[str, Any]:
    last = trial.reports[-1] if trial.reports else None
    kept = next((report for report in trial.reports if last and report.epoch == last.best_epoch), None)
    return {
        "trial": trial.number,
        "state": trial.state,
        "reason": trial.reason,
        "origin": trial.origin,
        "is_baseline": trial.origin == "baseline",
        "score": last.score if last else float("nan"),
        "standard_error": last.standard_error if last else float("nan"),
        "best_epoch": last.best_epoch if last else float("nan"),
        "epochs_done": trial.epoch,
        "ece": (kept.metrics.get("val_ece") if kept else None) or float("nan"),
        "started": trial.started,
        "ended": trial.ended if trial.ended is not None else float("nan"),
    }


def _list_figures(record: SweepRecord) -> Iterator[tuple[str, float]]:
    """Return the metrics of the sweep's own run, as `search.tracking.entries` sends them."""
    trials = record.trials
    for part in (trials.probe, trials.plan):
        if part:
            yield from part.figures().items()
    for state, count in trials.count().items():
        if state != "running":
            yield f"trials_{state}", count
    yield "elapsed_seconds", trials.elapsed_seconds
