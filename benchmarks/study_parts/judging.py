"""Compare the report's effects of ordinary sweeps with those of the whole random design, fully trained.

An ordinary sweep is replayed: the project's own Controller proposes and stops, and a trial has the recipe and the curve
of the nearest recorded training. The truth about a level is the effect that the report's model gives it when it is
fitted to all recorded trainings, over the same recipes and relative to the same baseline as in the sweep.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.effects.design import make_contrast, make_design
from analysis.effects.search_parameters import list_levels
from analysis.effects.technique_effects import NOT_ENOUGH, Fitted, fit_sweep, interval, measure_effects
from analysis.effects.technique_effects import judge as judge_interval
from benchmarks.search_quality import Curves
from benchmarks.study_parts.recording import params_of, recipe_of
from benchmarks.verdict import LEAST, Memory, as_sweep, drive, naive
from ledger.events import EpochReported
from ledger.tables import Sweep
from ledger.trials import Trial
from search.core.controller import Controller
from spaces.space import Space

RATE = "optimizer.lr"  # its best value is searched, and the report compares techniques
LARGEST_SHARE = (
    1 / 3
)  # a sweep uses at most this share of the recorded trainings, because the truth comes from them too
REPORT, MEANS = "the report", "means of the finished trials"


def judge_all(set_file: Path, space: Space, sweeps: int, trials: int) -> pd.DataFrame:
    """Return a row for each sweep, method and level: the truth, the interval and the verdict."""
    curves = Curves.load(set_file)
    trials = min(trials, round(LARGEST_SHARE * len(curves.configurations)))
    space = replace(space, search=space.search.model_copy(update={"trials": trials}))
    whole = fit_sweep(as_sweep(space, _record_trials(curves, space)))
    return pd.DataFrame([row for seed in range(sweeps) for row in _judge_one(curves, space, whole, seed)])


def _record_trials(curves: Curves, space: Space) -> list[Trial]:
    """Return the recorded trainings as completed trials of one sweep."""
    done = [c for c in curves.configurations if len(c.scores) == c.length]
    trials = []
    for number, configuration in enumerate(done):
        score = configuration.best
        report = EpochReported(
            trial=number, epoch=configuration.length, score=score, standard_error=0.01, best_epoch=configuration.length
        )
        recipe = recipe_of(space, configuration.params)
        trials.append(Trial(number, recipe, None, "sampler", 0.0, state="completed", reports=[report]))
    return trials


def replay_sweep(curves: Curves, space: Space, seed: int) -> Sweep:
    """Run an ordinary sweep whose trials are recorded trainings, each used once; those that diverged are left out."""
    controller = Controller(space, Memory(), seed=seed)  # type: ignore[arg-type]
    taken = np.array([len(configuration.scores) < configuration.length for configuration in curves.configurations])

    def look_up(trial: Trial) -> np.ndarray:
        distances = curves.distances(params_of(space, trial.recipe))
        nearest = int(np.argmin(np.where(taken, np.inf, distances)))
        taken[nearest] = True
        found = curves.configurations[nearest]
        trial.recipe = recipe_of(space, found.params)
        return np.array(found.scores)

    drive(controller, look_up)
    return as_sweep(space, controller.trials)


def _judge_one(curves: Curves, space: Space, whole: Fitted, seed: int) -> Iterator[dict[str, Any]]:
    sweep = replay_sweep(curves, space, seed)
    own = make_design(sweep)
    effects = measure_effects(fit_sweep(sweep)).set_index(["parameter", "level"])
    levels = [
        level
        for parameter in own.parameters
        for level in list_levels(parameter)
        if (parameter.name, level.label) in effects.index and not level.detail and parameter.name != RATE
    ]
    design = replace(whole.design, baseline=own.baseline)
    draws = whole.draw([make_contrast(design, level, seed, elsewhere=own) for level in levels])
    for level, truth in zip(levels, draws.T, strict=True):
        found = effects.loc[level.parameter.name, level.label]
        low, high = naive(sweep, level, full_length=True)
        facts = {"seed": seed, "level": level.name, "trials": len(sweep.trials), "full": int(found.full)}
        facts |= {"truth": float(truth.mean())} | dict(zip(("truth_low", "truth_high"), interval(truth), strict=True))
        verdicts = {REPORT: (found.low, found.high, found.verdict)}
        verdicts[MEANS] = (low, high, judge_interval(low, high) if np.isfinite([low, high]).all() else NOT_ENOUGH)
        for method, (low, high, verdict) in verdicts.items():
            yield facts | {"method": method, "low": low, "high": high, "verdict": verdict}


def summarise(rows: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return for each method the shares of intervals and verdicts that are right, as the study's page shows them."""
    found: dict[str, dict[str, float]] = {}
    for method, all_rows in rows.groupby("method", sort=False):
        known = all_rows[all_rows.verdict != NOT_ENOUGH]
        covered = (known.low <= known.truth) & (known.truth <= known.high)
        useless, good = known[known.truth <= 0], known[known.truth >= LEAST]
        useful = known[known.verdict == "useful"]
        found[str(method)] = {
            "covered": covered.mean(),
            "error": covered.groupby(known.seed).mean().std() / all_rows.seed.nunique() ** 0.5,
            "false": (useless.verdict == "useful").mean(),
            "false_of_useful": (useful.truth <= 0).mean(),
            "found": (good.verdict == "useful").mean(),
            "useless": len(useless),
            "good": len(good),
            "unknown": 1 - len(known) / len(all_rows),
        }
    return found
