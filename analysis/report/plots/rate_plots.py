"""The learning rate that the best trial of a sweep logged, over the one that its schedule plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.report.plots.plot_style import BLUE, ORANGE, finish, new_figure, put_legend
from training.recipe import Recipe
from training.schema import slot_of
from training.techniques.optimization.averaging import Swa

if TYPE_CHECKING:
    from ledger.tables import Sweep

STEPS = 100  # points of the planned curve in each epoch


def plot_winner_rates(sweep: Sweep) -> Figure:
    """The rate that the best trial logged after each epoch, over the rate that its schedule plans."""
    best = sweep.completed.iloc[0]
    logged = sweep.curves[(sweep.curves.trial == best.trial) & sweep.curves["lr"].notna()]
    figure, axes = new_figure(8.2, 2.6)
    epochs, factors = plan_factors(best)
    at_ends = factors[np.minimum(logged.epoch.to_numpy() * STEPS, len(factors) - 1)]
    if at_ends.max(initial=0) > 0:
        # The plan is relative: the base rate may have been found in training, or scaled with the batch.
        top = int(at_ends.argmax())
        axes.plot(epochs, factors * logged["lr"].iloc[top] / at_ends[top], color=BLUE, label="planned")
    axes.plot(logged.epoch, logged["lr"], "o", color=ORANGE, markersize=4, label="logged")
    axes.set(xlabel="epochs done", ylabel="learning rate", ylim=(0, None))
    put_legend(figure, {"planned": (BLUE, 1.4, "-"), "logged": (ORANGE, 1.4, ":")})
    return finish(figure)


def plan_factors(trial: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return epochs done, in steps of 0.01, and the factor on the base rate there, by the trial's schedule and averaging."""
    epoch_steps = [STEPS] * int(trial["epochs"])
    curve = _read_part(trial, "schedule").curve(epoch_steps)
    averaging = _read_part(trial, "averaging")
    if isinstance(averaging, Swa) and averaging.lr_factor is not None:
        curve = averaging.change_curve(curve, epoch_steps)
    steps = np.arange(sum(epoch_steps) + 1)
    return steps / STEPS, np.array([curve(step) for step in steps])


def _read_part(trial: pd.Series, name: str) -> Any:
    """Read a part of the recipe from a row of the table, in which whole numbers may be floats and other options are NaN."""
    values = {
        column.removeprefix(f"{name}."): value
        for column, value in trial.items()
        if str(column).startswith(f"{name}.") and not (isinstance(value, float) and np.isnan(value))
    }
    slot = slot_of(Recipe, name)
    return slot.part(values).model_validate(values, strict=False)
