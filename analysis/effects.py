"""What each technique and each value was worth at full length, against the baseline's choice, with intervals.

The effect of a level is the mean difference in final score between taking it and taking the baseline's choice, all else
as in the recipes that ran to full length: scientific against fixed hyperparameters in the words of the deep learning
tuning playbook (Godbole et al. 2023). `staged.py` says how trials stopped early count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.holes import Hole, Level, encode, encode_draw, is_interval, likeness, list_holes, list_levels, matches
from analysis.staged import Alike, Contrast, draw_effects

if TYPE_CHECKING:
    from analysis.load import Sweep

CONFIDENCE = 0.90
REFERENCES = 64  # recipes that an effect is averaged over
FEWEST = 4  # trials of full length without which nothing can be said
RUNGS = 5  # told apart; where trials stop at more places, these are merged at powers of two
TRIALS = 600  # that enter the model, those that came furthest first; the time it takes grows with their cube
LOST = ("diverged", "failed", "out_of_memory")


@dataclass(frozen=True)
class Design:
    """The trials of a sweep as points, and how far each came; of n trials and h holes."""

    holes: list[Hole]
    points: pd.DataFrame  # (n, parameters)
    recipes: pd.DataFrame  # flat
    stages: list[np.ndarray]  # scores at each rung and at the end, each (n,); higher is better
    baseline: pd.Series  # the point that effects are measured from

    @property
    def full(self) -> np.ndarray:
        """Which trials ran to full length, (n,)."""
        return ~np.isnan(self.stages[-1])


def measure_effects(sweep: Sweep, seed: int = 0) -> pd.DataFrame:
    """A row for each level of each hole.

    `effect`, `low`, `high` are in the score's unit, positive is better, NaN where nothing can be said; `low` to `high`
    holds the truth nine times in ten. `full` and `full_off` count trials of full length with the level and with the
    baseline's choice, `best` and `best_off` are the best scores among them.
    """
    design = make_design(sweep)
    levels = [level for hole in design.holes for level in list_levels(hole) if not _is_baseline(design, level)]
    draws = _draw(design, [_contrast_of(design, level, seed) for level in levels], seed)
    rows = [_describe(sweep, design, level, draws[:, i]) for i, level in enumerate(levels)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


COLUMNS = ("technique", "hole", "level", "detail", "verdict", "effect", "low", "high", "sure", "full", "full_off")
COLUMNS += ("best", "best_off", "trials")


def measure_interactions(sweep: Sweep, seed: int = 0) -> pd.DataFrame:
    """A row for each pair of options: what both bring beyond the sum of each alone, clearest first."""
    design = make_design(sweep)
    options = [
        level
        for hole in design.holes
        for level in list_levels(hole)
        if not is_interval(hole.domain) and not level.detail and not _is_baseline(design, level)
        if _is_seen(design, level)
    ]
    pairs = [(a, b) for i, a in enumerate(options) for b in options[i + 1 :] if a.hole != b.hole]
    pairs = [pair for pair in pairs if _is_seen(design, *pair)]
    effects = {id(option): _Change.make(design, option, seed) for option in options}
    draws = _draw(design, [_Change.cross(effects[id(a)], effects[id(b)]) for a, b in pairs], seed)
    rows = []
    for (a, b), values in zip(pairs, draws.T, strict=True):
        low, high = interval(values)
        names = {"one": f"{a.hole.name}={a.label}", "other": f"{b.hole.name}={b.label}"}
        rows.append(names | {"effect": float(np.mean(values)), "low": low, "high": high, "clear": clearness(values)})
    columns = ["one", "other", "effect", "low", "high", "clear"]
    return pd.DataFrame(rows, columns=columns).sort_values("clear", ascending=False, ignore_index=True)


def make_design(sweep: Sweep) -> Design:
    trials = sweep.trials[~sweep.trials.state.isin(LOST) & sweep.trials.score.notna()]
    furthest = trials.epochs_done / trials.epochs
    trials = trials.loc[furthest.sort_values(ascending=False, kind="stable").index[:TRIALS]].sort_index()
    recipes = sweep.recipes.loc[trials.trial]
    holes = list_holes(sweep.space.recipe)
    points = encode(holes, recipes)
    base = trials[trials.is_baseline]
    base = base if len(base) else trials
    best = base.trial[(sweep.sign * base.score).where(base.state == "completed", -np.inf).idxmax()]
    return Design(holes, points, recipes, find_stages(sweep, trials), points.loc[best])


def find_stages(sweep: Sweep, trials: pd.DataFrame) -> list[np.ndarray]:
    """The scores of these trials where trials were stopped, and at the end; NaN for those that did not come so far."""
    share = (trials.epochs_done / trials.epochs).to_numpy()
    ended = (trials.state == "completed").to_numpy()
    stops = np.unique(share[~ended])
    if len(stops) > RUNGS:
        stops = np.unique(2.0 ** np.ceil(np.log2(stops)))
    curves = sweep.curves.merge(trials[["trial", "epochs"]], on="trial")
    curves["share"] = curves.epoch / curves.epochs
    stages, before = [], 0.0
    for stop in stops[stops < 1]:
        reached = curves[curves.share <= stop + 1e-9].groupby("trial").score.last()
        scores = sweep.sign * trials.trial.map(reached).to_numpy()
        # One that was stopped between the rungs merged here is taken as it was there.
        stages.append(np.where(share > before + 1e-9, scores, np.nan))
        before = stop
    stages.append(np.where(ended, sweep.sign * trials.score.to_numpy(), np.nan))
    return stages


def interval(draws: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def clearness(draws: np.ndarray) -> float:
    """How sure the sign is, 0 to 1."""
    return float(abs(2 * np.mean(draws > 0) - 1))


def _draw(design: Design, contrasts: list[Contrast], seed: int) -> np.ndarray:
    if design.full.sum() < FEWEST:
        return np.full((1, len(contrasts)), np.nan)
    sums, squares = np.zeros((2, 2, len(design.points), len(design.points)))
    for hole in design.holes:
        alike = likeness(hole, design.points, design.points)
        sums[_kind(hole)] += alike
        squares[_kind(hole)] += alike**2
    return draw_effects(design.stages, Alike(sums, squares), contrasts, np.random.default_rng(seed))


def _kind(hole: Hole) -> int:
    return 0 if is_interval(hole.domain) else 1


def _references(design: Design) -> pd.DataFrame:
    """The recipes that ran to full length, the best first, repeated where they are few."""
    full = design.points[design.full]
    order = np.argsort(-design.stages[-1][design.full], kind="stable")[:REFERENCES]
    return full.iloc[np.resize(order, REFERENCES)]


@dataclass(frozen=True)
class _Change:
    """What taking a level instead of the baseline's choice changes in likeness, for each reference."""

    hole: Hole
    to_trials: np.ndarray  # (references, n)
    to_itself: np.ndarray  # (references, references)

    @staticmethod
    def make(design: Design, level: Level, seed: int) -> _Change:
        hole = level.hole
        on = pd.DataFrame([encode_draw(hole, level.part, seed + number) for number in range(REFERENCES)])
        own = [name for name in design.points if name == hole.name or name.startswith((f"{hole.name}[", f"{hole.name}."))]
        off = pd.DataFrame([design.baseline[own]] * REFERENCES)
        to_trials = likeness(hole, on, design.points) - likeness(hole, off, design.points)
        between = likeness(hole, on, off)
        to_itself = likeness(hole, on, on) - between - between.T + likeness(hole, off, off)
        return _Change(hole, to_trials, to_itself)

    @staticmethod
    def cross(one: _Change, other: _Change) -> Contrast:
        kinds = (_kind(one.hole), _kind(other.hole))
        pair = (one.to_trials * other.to_trials).mean(axis=0)
        return Contrast(kinds, None, pair, 0.0, np.mean(one.to_itself * other.to_itself))


def _contrast_of(design: Design, level: Level, seed: int) -> Contrast:
    change = _Change.make(design, level, seed)
    references = _references(design)
    to_trials = np.zeros((2, REFERENCES, len(design.points)))
    to_itself = np.zeros((2, REFERENCES, REFERENCES))
    for hole in design.holes:
        if hole is not level.hole:
            to_trials[_kind(hole)] += likeness(hole, references, design.points)
            to_itself[_kind(hole)] += likeness(hole, references, references)
    return Contrast(
        (_kind(level.hole),),
        change.to_trials.mean(axis=0),
        (change.to_trials * to_trials).mean(axis=1).T,
        float(change.to_itself.mean()),
        (change.to_itself * to_itself).mean(axis=(1, 2)),
    )


def _is_baseline(design: Design, level: Level) -> bool:
    return bool(design.baseline.get(level.hole.name) == level.label)


def _is_seen(design: Design, *levels: Level) -> bool:
    """Whether a trial with all these levels ran to full length."""
    recipes = design.recipes[design.full]
    return bool(np.all([matches(level, recipes) for level in levels], axis=0).any())


def _describe(sweep: Sweep, design: Design, level: Level, draws: np.ndarray) -> dict[str, Any]:
    full = design.recipes[design.full]
    finals = design.stages[-1][design.full]
    on, off = matches(level, full), _takes_baseline(design, level.hole)[design.full]
    low, high = interval(draws)
    seen = on.any() and off.any() and len(full) >= FEWEST
    return {
        "technique": level.hole.technique,
        "hole": level.hole.name,
        "level": level.label,
        "detail": level.detail,
        "verdict": judge(low, high) if seen else "unknown",
        "effect": float(np.mean(draws)) if seen else np.nan,
        "low": low if seen else np.nan,
        "high": high if seen else np.nan,
        "sure": clearness(draws) if seen else np.nan,
        "full": int(on.sum()),
        "full_off": int(off.sum()),
        "best": sweep.sign * finals[on].max() if on.any() else np.nan,
        "best_off": sweep.sign * finals[off].max() if off.any() else np.nan,
        "trials": int(matches(level, design.recipes).sum()),
    }


def judge(low: float, high: float) -> str:
    """The verdict on an interval that holds the effect nine times in ten."""
    return "useful" if low > 0 else "harmful" if high < 0 else "no effect seen"


def _takes_baseline(design: Design, hole: Hole) -> np.ndarray:
    """Which trials have the baseline's choice in a hole, (n,)."""
    values = design.points[hole.name]
    if is_interval(hole.domain):
        return np.isclose(values.to_numpy(dtype=float), design.baseline[hole.name])
    return (values == design.baseline[hole.name]).to_numpy()
