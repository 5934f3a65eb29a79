"""A sweep as two tidy data frames, its trials and their curves, made from its ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from html import escape

import pandas as pd

from ledger.columns import list_columns
from ledger.formatting import format_score, format_seconds, plural
from ledger.record import SweepRecord
from spaces.space import Space
from training.loop.epoch_report import Answers
from training.score_metrics import COST, MAXIMISED, MINIMISED

SHOWN = 10  # trials in the HTML of a notebook
SCORE = ("score", "standard_error", "best_epoch")
CURVES = (*MAXIMISED, *MINIMISED, "train_loss", "train_accuracy", "lr", *COST, "peak_memory_mb")


@dataclass(frozen=True)
class Sweep:
    """A sweep as recorded.

    `trials` has a row for each trial: the columns that `ledger.columns` declares, then the recipe flat (`optimizer.lr`).
    `seconds` is the training time with that of the range test for `optimizer.lr: auto`, `ece` the calibration error of
    the kept weights; `started` and `ended` are in seconds since 1970.
    `curves` has a row for each epoch of each trial: `trial`, `epoch`, `score` (the best so far, or the
    last one if the space says so), then the metrics, and `seconds`.
    `copies` are the trials that repeat the recipe and seed of another one; `different` leaves them out.
    `answers` has what trials that ran to full length say of the validation images, as in their last report.
    `id` is the random id of its ledger, and `called` its name as a command here finds it, with `--storage` if need be.
    """

    name: str
    state: str
    space: Space
    trials: pd.DataFrame
    curves: pd.DataFrame
    copies: frozenset[int] = frozenset()
    id: str = ""
    called: str = ""
    answers: dict[int, Answers] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """The metric used as the score."""
        return self.space.search.metric

    @property
    def sign(self) -> int:
        """Multiply a score by this; higher is then better."""
        return 1 if self.metric in MAXIMISED else -1

    @property
    def recipes(self) -> pd.DataFrame:
        """The flat recipes, by trial."""
        facts = [column.name for column in list_columns("frame")]
        # Tables that were made up may lack a fact.
        return self.trials.set_index("trial", drop=False).drop(columns=facts, errors="ignore")

    def _repr_html_(self) -> str:
        done = self.completed.head(SHOWN)
        scores = [format_score(self.metric, row.score, row.standard_error) for row in done.itertuples()]
        times = [format_seconds(seconds) for seconds in done.seconds.fillna(0)]
        table = pd.DataFrame({"trial": done.trial.map("{:04d}".format).to_numpy(), "score": scores, "training": times})
        counts = self.trials.state.value_counts()
        states = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in counts.items())
        return f"<p><b>{escape(self.name)}</b>: {plural(len(self.trials), 'trial')} ({states})</p>{table.to_html(index=False)}"

    @cached_property
    def different(self) -> pd.DataFrame:
        """The trials without those that repeat another one: the same training twice is no more evidence than once."""
        return self.trials[~self.trials.trial.isin(self.copies)]

    @cached_property
    def completed(self) -> pd.DataFrame:
        """The different trials that ran to full length, the best first, in the order of `Trials.ranked`."""
        trials, curves = self.different, self.curves
        done = trials[(trials.state == "completed") & trials.score.notna()]
        kept = curves[curves.epoch == curves.groupby("trial").best_epoch.transform("last")]
        loss = done.trial.map(kept.drop_duplicates("trial").set_index("trial").val_loss)
        order = pd.DataFrame({"score": -self.sign * done.score, "loss": loss})
        return done.loc[order.sort_values(["score", "loss"], kind="stable").index]

    @cached_property
    def baselines(self) -> pd.DataFrame:
        """The baselines among them: what is compared with the baseline is compared with the first."""
        return self.completed[self.completed.is_baseline]


def make_tables(record: SweepRecord) -> Sweep:
    """Return the tables of a sweep."""
    recorded = sorted(record.trials, key=lambda trial: trial.number)
    epochs = [
        {
            "trial": trial.number,
            **{name: getattr(report, name) for name in ("epoch", *SCORE)},
            **{name: report.metrics.get(name) for name in CURVES},
        }
        for trial in recorded
        for report in trial.reports
    ]
    numbers = dict.fromkeys((*SCORE, *CURVES), float)
    curves = pd.DataFrame(epochs, columns=["trial", "epoch", *numbers]).astype({"trial": int, "epoch": int, **numbers})
    curves["seconds"] = curves[list(COST)].sum(axis=1, min_count=1)
    facts = list_columns("frame")
    values = [[column.value(trial) for column in facts] for trial in recorded]
    trials = pd.DataFrame(values, columns=[column.name for column in facts])
    trials = trials.astype({column.name: float for column in facts if column.kind == float | None})  # None becomes NaN
    flat = pd.DataFrame([trial.recipe.flat() for trial in recorded], dtype=object)
    # Among numbers, pandas would make null the NaN of a field that a recipe does not have.
    recipes = flat.apply(lambda column: column if any(value is None for value in column) else column.infer_objects())
    return Sweep(
        record.name,
        record.state,
        record.space,
        trials.join(recipes),
        curves,
        frozenset(record.trials.copies()),
        record.header.id,
        record.called,
        {trial.number: trial.answers for trial in recorded},
    )
