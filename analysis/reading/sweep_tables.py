"""A sweep as two tidy data frames, its trials and their curves, read from any MLflow store."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis import EXPERIMENT, TRACKING_URI
from analysis.formatting import format_score, format_seconds, plural
from analysis.reading.find_sweep import SERVERS
from analysis.reading.tracking_store import Found
from spaces.load import parse_space
from spaces.space import Space
from training.score_metrics import COST

if TYPE_CHECKING:
    from analysis.report.figures.plots import Plots

SHOWN = 10  # trials in the HTML of a notebook
SCORE = ("score", "standard_error", "best_epoch")
CURVES = ("val_loss", "val_ece", "train_loss", "lr", *COST, "peak_memory_mb")
FACTS = ["trial", "state", "reason", "origin", "is_baseline", "score", "standard_error", "best_epoch", "epochs_done"]
FACTS += ["seconds", "memory_mb", "ece", "started", "ended"]


@dataclass(frozen=True)
class Sweep:
    """A sweep as recorded in MLflow.

    `trials` has a row for each trial: the columns of `FACTS`, then the recipe flat (`optimizer.lr`). `seconds` is the
    training time with that of the range test for `optimizer.lr: auto`, `ece` the calibration error of the kept weights;
    `started` and `ended` are in seconds since 1970.
    `curves` has a row for each epoch of each trial: `trial`, `epoch`, `score` (the best so far), then the metrics, and
    `seconds` if they were read.
    `figures` has the metrics of the sweep's own run, such as those of the linear probe. `notes` are those of users.
    """

    name: str
    run_id: str
    state: str
    space: Space
    trials: pd.DataFrame
    curves: pd.DataFrame
    figures: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def metric(self) -> str:
        """The metric used as the score."""
        return self.space.search.metric

    @property
    def sign(self) -> int:
        """Multiply a score by this; higher is then better."""
        return 1 if self.space.search.maximise else -1

    @property
    def recipes(self) -> pd.DataFrame:
        """The flat recipes, by trial."""
        return self.trials.set_index("trial").drop(columns=[name for name in FACTS if name != "trial"])

    @property
    def plot(self) -> Plots:
        """The interactive figures of the report: `sweep.plot.effects()`, `curves`, `parallel` and `scores`."""
        from analysis.report.figures.plots import Plots

        return Plots(self)

    def _repr_html_(self) -> str:
        done = self.completed.head(SHOWN)
        scores = [format_score(self.metric, row.score, row.standard_error) for row in done.itertuples()]
        times = [format_seconds(seconds) for seconds in done.seconds.fillna(0)]
        table = pd.DataFrame({"trial": done.trial.map("{:04d}".format).to_numpy(), "score": scores, "training": times})
        states = ", ".join(
            f"{count} {state.replace('_', ' ')}" for state, count in self.trials.state.value_counts().items()
        )
        return f"<p><b>{escape(self.name)}</b>: {plural(len(self.trials), 'trial')} ({states})</p>{table.to_html(index=False)}"

    @cached_property
    def completed(self) -> pd.DataFrame:
        """The trials that ran to full length, the best first."""
        done = self.trials[(self.trials.state == "completed") & self.trials.score.notna()]
        return done.sort_values("score", ascending=self.sign < 0, kind="stable")


def load(
    name: str,
    tracking_uri: str = TRACKING_URI,
    experiment: str = EXPERIMENT,
    metrics: Sequence[str] = CURVES,
) -> Sweep:
    """Read the latest sweep with this name from MLflow.

    Args:
        name: The name of the sweep.
        tracking_uri: The address of the MLflow database or server.
        experiment: The MLflow experiment that holds the sweep.
        metrics: The metrics whose curves are read, in addition to the score.

    Raises:
        UserError: There is no such store, experiment or sweep.
    """
    keys = list(dict.fromkeys([*SCORE, *metrics]))
    if tracking_uri.startswith(SERVERS):
        from analysis.reading.store_rest import read_from_server as read
    else:
        from analysis.reading.store_sql import read_from_database as read
    found = read(tracking_uri, experiment, name, keys)
    space = parse_space(found.space, "space.yaml")
    curves, notes = _tidy_curves(found), tuple(found.notes.splitlines())
    return Sweep(name, found.run_id, found.state, space, _tidy_trials(found, curves), curves, found.figures, notes)


def _tidy_curves(found: Found) -> pd.DataFrame:
    """The points of all metrics in one table, with a row for each trial and epoch."""
    numbers = found.tags["trial"].astype(int)
    keys = {key: (numbers.loc[ids].to_numpy(), steps) for key, (ids, steps, _) in found.points.items()}
    width = max((int(steps.max()) for _, steps in keys.values() if len(steps)), default=0) + 1
    codes = {key: trials * width + steps for key, (trials, steps) in keys.items()}
    rows = np.unique(np.concatenate([*codes.values(), np.empty(0, int)])).astype(int)
    columns: dict[str, np.ndarray] = {"trial": rows // width, "epoch": rows % width}
    for key, (_, _, values) in found.points.items():
        columns[key] = np.full(len(rows), np.nan)
        columns[key][np.searchsorted(rows, codes[key])] = values
    curves = pd.DataFrame(columns)
    if parts := [name for name in COST if name in curves]:
        curves["seconds"] = curves[parts].sum(axis=1, min_count=1)
    return curves


def _tidy_trials(found: Found, curves: pd.DataFrame) -> pd.DataFrame:
    tags, last = found.tags, curves.groupby("trial").last()
    trials = pd.DataFrame({"trial": tags["trial"].astype(int), "state": tags["state"]})
    trials["reason"] = tags["reason"].fillna("") if "reason" in tags else ""
    trials["origin"] = tags["origin"]
    trials["is_baseline"] = trials.origin == "baseline"
    sources = {"score": "score", "standard_error": "standard_error", "best_epoch": "best_epoch"}
    sources |= {"seconds": "seconds", "memory_mb": "peak_memory_mb"}
    for column, source in sources.items():
        trials[column] = trials.trial.map(last[source]) if source in last else np.nan
    trials["epochs_done"] = trials.trial.map(curves.groupby("trial").epoch.max()).fillna(0).astype(int)
    trials["ece"] = _at_best(trials, curves, "val_ece")
    trials["started"], trials["ended"] = found.runs.start_time / 1000, found.runs.end_time / 1000
    recipes = found.params.apply(_parse_column)
    return trials[FACTS].join(recipes).sort_values("trial").reset_index(drop=True)


def _at_best(trials: pd.DataFrame, curves: pd.DataFrame, metric: str) -> np.ndarray | float:
    """The values of a metric at the epoch whose weights are kept; NaN if the metric was not read."""
    if metric not in curves:
        return np.nan
    values = curves.set_index(["trial", "epoch"])[metric]
    wanted = pd.MultiIndex.from_arrays([trials.trial, trials.best_epoch.fillna(0).astype(int)])
    return values.reindex(wanted).to_numpy()


def _parse_column(column: pd.Series) -> pd.Series:
    """Parse the values of a column: MLflow stores parameters as text."""
    return column.map({text: _parse(text) for text in column.dropna().unique()})


def _parse(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
