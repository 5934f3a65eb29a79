"""The effect of each technique and each value at full length, relative to the baseline's choice, with intervals.

The effect of a level is the mean difference in final score between the level and the baseline's choice, with everything
else as in the recipes that ran to full length. In the deep learning tuning playbook (Godbole et al. 2023) these are
scientific and fixed hyperparameters. Techniques learn at different speeds, so only scores at full length count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.effects.design import Change, Design, make_contrast, make_design
from analysis.effects.effect_model import Contrast, Mixed, Model, Scales, fit_model
from analysis.effects.search_parameters import Level, SearchParameter, list_levels, matches
from spaces.parameters.domains import Interval

if TYPE_CHECKING:
    from ledger.tables import Sweep

CONFIDENCE = 0.90
SEED = 0  # of all draws from a model
# The model is not exact: with this factor, 90 % intervals contain the true effect at least 90 % of the time
# with 8 to 64 trials and with little or much noise (benchmarks/verdict.py).
WIDER = 1.2
FEWEST = 4  # With fewer full-length trials, no model is fitted.
FEWEST_OF_LEVEL = 3  # With fewer full-length trials with a level, or with the baseline's choice, it gets no verdict.
NOT_ENOUGH = "not enough trials"
EFFECTS = ["technique", "parameter", "level", "detail", "verdict", "effect", "low", "high", "full", "full_off"]
EFFECTS += ["best", "best_off", "trials"]
INTERACTIONS = ["one", "other", "effect", "low", "high", "clear"]


@dataclass(frozen=True)
class Fitted:
    """A design with the model fitted to it; the model is None if too few trials ran to full length."""

    design: Design
    model: Model | None

    def draw(self, contrasts: Sequence[Contrast]) -> np.ndarray:
        """Draws from the posterior of each contrast, shape (draws, contrasts); NaN without a model."""
        rng = np.random.default_rng(SEED)
        return self._draw(len(contrasts), lambda scales: scales.mix_contrasts(contrasts), rng)

    def draw_leads(self, first: int, others: Sequence[int], errors: np.ndarray) -> np.ndarray:
        """Draws of the expected score of a trial minus those of others, shape (draws, others); NaN without a model.

        The trials are places in the design. `errors`, shape (others,), are the standard errors of the differences on the
        validation images.
        """
        rng, alike = np.random.default_rng(SEED), self.design.similarities
        draws = self._draw(len(others), lambda scales: scales.mix_leads(alike, first, others), rng)
        return draws + errors * rng.standard_normal(draws.shape)

    def _draw(self, count: int, mix: Callable[[Scales], Mixed], rng: np.random.Generator) -> np.ndarray:
        return np.full((1, count), np.nan) if self.model is None else self.model.draw(count, mix, rng)


def fit_sweep(sweep: Sweep) -> Fitted:
    """Fit a model to a sweep."""
    design = make_design(sweep)
    if len(design.scores) < FEWEST or not design.parameters:
        return Fitted(design, None)
    is_choice = np.array([not isinstance(parameter.domain, Interval) for parameter in design.parameters])
    errors = design.errors[np.isfinite(design.errors)]
    noise = float(np.sqrt(np.mean(errors**2))) if len(errors) else 0.0
    return Fitted(design, fit_model(design.scores, design.similarities, is_choice, noise))


def measure_effects(fitted: Fitted, trial: int | None = None) -> pd.DataFrame:
    """A row for each level of each search parameter, with the columns `EFFECTS`; with `trial`, only for its choices.

    `effect`, `low` and `high` are in the score's unit, positive is better, and NaN without enough trials; `low` to `high`
    contains the true effect nine times in ten. `full` and `full_off` count the full-length trials with the level
    and with the baseline's choice; `best` and `best_off` are the best scores among them. `trials` counts all with the
    level.
    """
    design = fitted.design
    levels = _list_alternatives(design)
    if trial is not None:
        levels = [it for it in levels if not it.detail and matches(it, design.tried.loc[[trial]]).all()]
    draws = fitted.draw([make_contrast(design, level, SEED) for level in levels])
    return pd.DataFrame([_describe(design, *pair) for pair in zip(levels, draws.T, strict=True)], columns=EFFECTS)


def measure_interactions(fitted: Fitted) -> pd.DataFrame:
    """A row for each pair of options that ran to full length together: their effect minus the sum of the single effects.

    The clearest come first; `clear` is the certainty of the sign, from 0 to 1.
    """
    design = fitted.design
    alternatives = _list_alternatives(design)
    options = [level for level in alternatives if not (level.detail or isinstance(level.parameter.domain, Interval))]
    taken = [matches(level, design.recipes) for level in options]
    changes = [Change.make(design, level, SEED) for level in options]
    pairs = [(i, j) for i, j in combinations(range(len(options)), 2) if (taken[i] & taken[j]).any()]
    pairs = [(i, j) for i, j in pairs if options[i].parameter is not options[j].parameter]
    draws = fitted.draw([changes[i].cross(changes[j], design.parameters) for i, j in pairs])
    rows = []
    for (i, j), values in zip(pairs, draws.T, strict=True):
        names = (options[i].name, options[j].name)
        rows.append((*names, float(np.mean(values)), *interval(values), float(abs(2 * np.mean(values > 0) - 1))))
    return pd.DataFrame(rows, columns=INTERACTIONS).sort_values("clear", ascending=False, ignore_index=True)


def interval(draws: np.ndarray) -> tuple[float, float]:
    """The ends of the interval around the mean of draws, shape (n,)."""
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    middle = np.mean(draws)
    return float(middle + WIDER * (low - middle)), float(middle + WIDER * (high - middle))


def judge(low: float, high: float) -> str:
    """The verdict on an effect, from the ends of its interval."""
    return "useful" if low > 0 else "harmful" if high < 0 else "no effect seen"


def _list_alternatives(design: Design) -> list[Level]:
    """The levels of all search parameters, without those that are the baseline's choice."""
    levels = [level for parameter in design.parameters for level in list_levels(parameter)]
    return [it for it in levels if it.detail or design.baseline.get(it.parameter.name) != it.option]


def _describe(design: Design, level: Level, draws: np.ndarray) -> dict[str, object]:
    on, off = matches(level, design.recipes), _takes_baseline(design, level.parameter)
    low, high = interval(draws)
    # In an interval the baseline is one value; trials with values near it also show what it is worth.
    fewest_off = 1 if isinstance(level.parameter.domain, Interval) else FEWEST_OF_LEVEL
    seen = on.sum() >= FEWEST_OF_LEVEL and off.sum() >= fewest_off and not np.isnan(draws).any()
    return {
        "technique": level.parameter.technique,
        "parameter": level.parameter.name,
        "level": level.label,
        "detail": level.detail,
        "verdict": judge(low, high) if seen else NOT_ENOUGH,
        "effect": float(np.mean(draws)) if seen else np.nan,
        "low": low if seen else np.nan,
        "high": high if seen else np.nan,
        "full": int(on.sum()),
        "full_off": int(off.sum()),
        "best": design.sign * design.scores[on].max() if on.any() else np.nan,
        "best_off": design.sign * design.scores[off].max() if off.any() else np.nan,
        "trials": int(matches(level, design.tried).sum()),
    }


def _takes_baseline(design: Design, parameter: SearchParameter) -> np.ndarray:
    """A mask of the trials that have the baseline's choice in a parameter, shape (n,)."""
    name = parameter.name
    if isinstance(parameter.domain, Interval):  # a value that is no number, such as `auto`, is NaN, or has no column
        numbers = design.points.reindex(columns=[name])[name].to_numpy(dtype=float)
        return np.isclose(numbers, design.baseline.get(name, np.nan))
    return (design.points[name] == design.baseline[name]).to_numpy()
