"""Replay the recorded trainings with several searches: how soon is a good recipe found, in time and in epochs?"""

from __future__ import annotations

import hashlib
import json
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import optuna

from analysis.effects.seed_intervals import Interval
from benchmarks.search_quality import BASE, OURS, STOCK, Curves, Moment, compare, walk

METHODS = {
    BASE: "random search, full trainings",
    "TPE, full trainings": "Optuna's TPE, full trainings",
    "Ray ASHA + TPE (OptunaSearch)": "Ray's ASHA with OptunaSearch",
    "this project": "this project",
}
WORKERS = 2
BUDGET_SHARE = 0.25  # a search may take the time of so many of the recorded trainings
POINTS = 64  # of the picture, over that time
MARGIN = 0.01  # a recipe is good if its score is within this of the best one


@dataclass(frozen=True)
class Run:
    """One replayed search. `seconds` and `epochs` are those until a good recipe leads, or the whole budget.

    `tests` are the test accuracies of the leading recipe, fully trained, at each point of the picture.
    """

    method: str
    seed: int
    reached: bool
    seconds: float
    epochs: int
    tests: list[float]


def replay_all(set_file: Path, folder: Path, seeds: int, jobs: int = 1) -> list[Run]:
    """Replay each method with each seed. Runs that the folder has already of this set are not repeated."""
    digest = hashlib.sha256(set_file.read_bytes()).hexdigest()[:12]
    kept = folder / f"searches-{digest}.jsonl"
    runs = [Run(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {(run.method, run.seed) for run in runs}
    todo = [(method, seed) for seed in range(seeds) for method in METHODS if (method, seed) not in known]
    with kept.open("a") as file, ProcessPoolExecutor(jobs) if jobs > 1 else nullcontext() as pool:
        for run in (pool.map if pool else map)(partial(replay_one, set_file), todo):
            runs.append(run)
            file.write(json.dumps(asdict(run)) + "\n")
            file.flush()
    return [run for run in runs if run.seed < seeds]


def replay_one(set_file: Path, task: tuple[str, int]) -> Run:
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    method, seed = task
    curves = Curves.load(set_file)
    budget = budget_of(curves) * mean_seconds(curves) / WORKERS
    marks = np.linspace(0, budget, POINTS + 1)[1:]
    tests: list[float] = []
    last, good = Moment(0.0, 0, None, 0, 0), None
    for moment in walk(curves, (STOCK | OURS)[method](curves, seed), WORKERS, timed=True):
        while len(tests) < POINTS and moment.time > marks[len(tests)]:
            tests.append(_test_of(last, curves))
        if moment.time > budget:
            break
        last = moment
        if good is None and is_good(moment, curves):
            good = moment
    tests += [_test_of(last, curves)] * (POINTS - len(tests))
    end = good or last
    return Run(method, seed, good is not None, good.time if good else budget, end.epochs, tests)


def scores_after(curves: Curves, epochs: int, seeds: int) -> list[float]:
    """Return the best score that this project's search has seen after so many epochs, for each seed."""
    found = []
    for seed in range(seeds):
        moments = walk(curves, OURS["this project"](curves, seed), WORKERS, timed=True)
        at = next((moment for moment in moments if moment.epochs >= epochs), None)
        if at is not None and at.winner is not None:
            found.append(at.winner.best)
    return found


def budget_of(curves: Curves) -> int:
    """Return how many mean trainings a search may take."""
    return max(1, round(BUDGET_SHARE * len(curves.configurations)))


def mean_seconds(curves: Curves) -> float:
    """Return the mean CPU seconds of a training of the set."""
    return float(np.mean([sum(configuration.seconds) for configuration in curves.configurations]))


def is_good(moment: Moment, curves: Curves) -> bool:
    """Whether the leading recipe reaches the best one's validation accuracy, less one point, when fully trained."""
    return moment.winner is not None and moment.winner.best >= curves.optimum - MARGIN


def _test_of(moment: Moment, curves: Curves) -> float:
    """Return the test accuracy of the leading recipe; before the first score, that of an arbitrary recipe."""
    if moment.winner is None or moment.winner.test is None:
        return float(np.mean([c.test for c in curves.configurations if c.test is not None]))
    return moment.winner.test


def ratios(runs: list[Run], field: str) -> dict[str, Interval]:
    """Return the mean of a field by method, relative to random search on the same seeds, with 95 % intervals."""
    values = {
        method: np.array(
            [getattr(run, field) for run in sorted(runs, key=lambda run: run.seed) if run.method == method]
        )
        for method in METHODS
    }
    return {method: Interval(*compare(found.astype(float), values[BASE])) for method, found in values.items()}
