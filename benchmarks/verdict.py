"""Accuracy of the report: it is applied to sweeps of a simulated objective whose effects are known.

Each seed plants other effects, speeds and interactions, and runs the project's own Controller (sampler, ASHA, baselines)
on simulated curves. A curve approaches the planted score at the speed of its techniques, so a recipe that wins late may
lose early. The true effect of a level is the noise-free mean difference between it and the baseline's choice over the
recipes that ran to full length, with the level's own hyperparameters drawn from the domain.
"""

import argparse
import heapq
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.effects.design import make_design
from analysis.effects.lead import judge_lead
from analysis.effects.search_parameters import Level, encode, encode_draw, list_levels, list_parameters, matches
from analysis.effects.technique_effects import NOT_ENOUGH, fit_sweep, judge, measure_effects
from ledger.events import AnyEvent
from ledger.tables import Sweep
from ledger.trials import Trial
from search.core.asha import Decision
from search.core.controller import Controller
from spaces.load import load_space
from training.loop.epoch_report import Report

SPACE = """
format: 1
recipe:
  data: {name: digits}
  epochs: 27
  unfreeze: {level: {choice: [last, most, full]}}
  augmentation: {choice: [{policy: none}, {policy: affine_colour}]}
  mixup: {choice: [{alpha: 0.0}, {alpha: {log_uniform: [0.1, 2.0]}}]}
  label_smoothing: {choice: [{alpha: 0.0}, {alpha: {uniform: [0.01, 0.3]}}]}
  optimizer: {name: momentum, lr: {log_uniform: [0.003, 0.3]}}
  schedule: {choice: [{name: constant}, {name: cosine}]}
  batch_size: {choice: [16, 32, 64]}
  accumulation: {batches: {choice: [1, 2]}}
  gradient_clipping: {choice: [{value: 0.0}, {algorithm: norm, value: {log_uniform: [0.1, 10.0]}}]}
  precision: {mode: {choice: [32-true, bf16-mixed]}}
search: {trials: 64, sampler: tpe}
"""
WORKERS = 8
JITTER = 0.004  # standard deviation of one epoch's score
ERROR = 0.01  # standard error of a score on its images
LEAST = 0.01  # smallest effect that a report should find


@dataclass
class Memory:
    """A ledger that keeps its events and writes nothing."""

    events: list[AnyEvent] = field(default_factory=list)
    path: Path = Path("memory")

    def append(self, event: AnyEvent) -> AnyEvent:
        self.events.append(event)
        return event


class Objective:
    """Planted effects: a final score and a speed for every point of the space."""

    def __init__(self, parameters: list[Any], seed: int, noise: float, additive: bool = False) -> None:
        self.noise = noise  # standard deviation between trainings that differ only in the seed
        self.rng = np.random.default_rng((7, seed))
        self.parameters = {parameter.name: parameter for parameter in parameters}
        self.effects: dict[tuple[str, str], float] = {}
        self.speeds: dict[tuple[str, str], float] = {}
        for parameter in parameters:
            for level in [
                level for level in list_levels(parameter) if not level.detail and parameter.name != "optimizer.lr"
            ]:
                key = (parameter.name, level.option)
                self.effects[key] = self.rng.choice([0.0, 0.0, 1.0, -1.0]) * self.rng.uniform(0.005, 0.03)
                self.speeds[key] = math.exp(self.rng.choice([0.0, 0.0, 1.0]) * self.rng.normal(0, 0.7))
        # Two pairs of options with a positive or a negative interaction.
        keys = list(self.effects)
        self.pairs = {}
        for _ in range(0 if additive else 2):
            one, other = (keys[i] for i in self.rng.choice(len(keys), 2, replace=False))
            if one[0] != other[0]:
                self.pairs[one, other] = self.rng.choice([1.0, -1.0]) * self.rng.uniform(0.01, 0.03)
        self.peak, self.width = self.rng.uniform(0.3, 0.8), self.rng.uniform(0.3, 0.6)
        self.slope = self.rng.normal(0, 0.01)  # slope of mixup's effect in its alpha

    def final(self, point: dict[str, Any]) -> float:
        """Return the final score without noise."""
        taken = {(name, point.get(name)) for name in self.parameters}
        score = 0.8 + sum(self.effects.get(key, 0.0) for key in taken)
        score += sum(worth for (one, other), worth in self.pairs.items() if one in taken and other in taken)
        score -= 0.05 * ((point["optimizer.lr"] - self.peak) / self.width) ** 2
        inner = [value for name, value in point.items() if name.startswith("mixup[") and not pd.isna(value)]
        return score + self.slope * sum(value - 0.5 for value in inner)

    def curve(self, point: dict[str, Any], epochs: int) -> np.ndarray:
        speed = 4.0 * math.prod(self.speeds.get((name, point.get(name)), 1.0) for name in self.parameters)
        share = np.arange(1, epochs + 1) / epochs
        rise = (1 - np.exp(-speed * share)) / (1 - math.exp(-speed))
        end = self.final(point) + self.rng.normal(0, self.noise)
        return 0.3 + (end - 0.3) * rise + self.rng.normal(0, JITTER, epochs)


def run_sweep(
    space: Any, seed: int, noise: float, exempt: float = 0.0, additive: bool = False
) -> tuple[Sweep, Objective]:
    """Run a sweep on simulated workers; a random share `exempt` of the trials is never stopped."""
    parameters = list_parameters(space.recipe)
    objective = Objective(parameters, seed, noise, additive)
    controller = Controller(space, Memory(), seed=seed)  # type: ignore[arg-type]
    spared = np.random.default_rng((3, seed)).random(10_000) < exempt

    def simulate(trial: Trial) -> np.ndarray:
        if spared[trial.number]:
            controller.asha._trials[trial.number].protected = True  # type: ignore[union-attr]
        point = encode(parameters, pd.DataFrame([trial.recipe.flat()])).iloc[0].to_dict()
        return objective.curve(point, trial.epochs)

    drive(controller, simulate)
    return as_sweep(space, controller.trials), objective


def drive(controller: Controller, curve_of: Callable[[Trial], np.ndarray], workers: int = WORKERS) -> None:
    """Run a sweep whose trials have known curves: `curve_of` gives the score of each epoch of a new trial."""
    clock = [(0, worker) for worker in range(workers)]
    curves: dict[int, np.ndarray] = {}
    held: dict[int, int] = {}
    while clock:
        now, worker = heapq.heappop(clock)
        if worker not in held:
            trial = controller.propose()
            if trial is None:
                continue
            curves[trial.number] = np.maximum.accumulate(curve_of(trial))
            held[worker] = trial.number
        number = held[worker]
        trial = controller.trials.by_number[number]
        epoch = trial.epoch + 1
        score = float(curves[number][epoch - 1])
        report = Report(epoch, metrics={}, score=score, standard_error=ERROR, best_epoch=epoch, steps=[], time=now)
        if controller.report(number, report) is Decision.STOP or trial.state != "running":
            del held[worker]
        heapq.heappush(clock, (now + 1, worker))


def as_sweep(space: Any, trials: Iterable[Trial]) -> Sweep:
    """Return the tables that `analysis.load` would read."""
    trials = list(trials)
    facts = [
        {"trial": t.number, "state": t.state, "reason": "", "origin": t.origin, "is_baseline": t.origin == "baseline"}
        | {"score": t.score, "standard_error": ERROR, "best_epoch": t.epoch, "epochs_done": t.epoch, "seconds": 1.0}
        | {"memory_mb": 1.0, "ece": 0.0, "started": 0.0, "ended": 0.0}
        for t in trials
    ]
    recipes = pd.DataFrame([trial.recipe.flat() for trial in trials])
    curves = [
        {"trial": t.number, "epoch": r.epoch, "score": r.score, "best_epoch": r.best_epoch, "val_loss": 0.0}
        for t in trials
        for r in t.reports
    ]
    return Sweep("made-up", "completed", space, pd.DataFrame(facts).join(recipes), pd.DataFrame(curves))


def find_truth(objective: Objective, sweep: Sweep, level: Level) -> float:
    """Return the true mean difference over the recipes of full length."""
    design = make_design(sweep)
    own = [
        name for name in design.points if name == level.parameter.name or name.startswith(f"{level.parameter.name}[")
    ]
    differences = []
    for number, (_, row) in enumerate(design.points.iterrows()):
        rest = {name: value for name, value in row.items() if name not in own}
        off = objective.final(rest | design.baseline[own].to_dict())
        drawn = [encode_draw(level.parameter, level.part, 10_000 + 20 * number + k) for k in range(20)]
        differences.append(np.mean([objective.final(rest | on) for on in drawn]) - off)
    return float(np.mean(differences))


def naive(sweep: Sweep, level: Level, full_length: bool) -> tuple[float, float]:
    """Return a simple estimate: the difference of two means and its 90 % interval, over all or the finished trials."""
    from scipy.stats import t as student

    trials = sweep.completed if full_length else sweep.trials[sweep.trials.score.notna()]
    recipes = sweep.recipes.loc[trials.trial]
    off = encode([level.parameter], recipes)[level.parameter.name] == make_design(sweep).baseline[level.parameter.name]
    scores = trials.score.to_numpy()
    a, b = scores[matches(level, recipes)], scores[off.to_numpy()]
    if min(len(a), len(b)) < 2:
        return -math.inf, math.inf
    error = math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    reach = student.ppf(0.95, len(a) + len(b) - 2) * error
    return a.mean() - b.mean() - reach, a.mean() - b.mean() + reach


def judge_seed(
    seed: int, noise: float, exempt: float, sampler: str, trials: int, additive: bool = False
) -> list[dict[str, Any]]:
    """Return a row for each method and level of one sweep, and one for the headline."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "made-up.yaml").write_text(SPACE)
        space = load_space(Path(folder, "made-up.yaml"), [f"search.sampler={sampler}", f"search.trials={trials}"])
    began = time.perf_counter()
    sweep, objective = run_sweep(space, seed, noise, exempt, additive)
    ran = time.perf_counter()
    fitted = fit_sweep(sweep)
    effects, lead = measure_effects(fitted).set_index(["parameter", "level"]), judge_lead(sweep, fitted)
    took = time.perf_counter() - ran
    rows = []
    if lead and lead.verdict in ("open", "clear") and not math.isnan(lead.mean):
        assert lead.baseline is not None
        points = fitted.design.points.set_axis(fitted.design.recipes.index)
        best, base = (objective.final(points.loc[int(name)].to_dict()) for name in (lead.best, lead.baseline))
        row = {"seed": seed, "method": "headline", "truth": best - base, "observed": lead.observed, "mean": lead.mean}
        rows.append(
            row | {"low": lead.low, "high": lead.high, "verdict": lead.verdict, "took": took, "ran": ran - began}
        )
    for parameter in objective.parameters.values():
        for level in list_levels(parameter):
            if (parameter.name, level.label) not in effects.index or level.detail or parameter.name == "optimizer.lr":
                continue
            found, truth = effects.loc[parameter.name, level.label], find_truth(objective, sweep, level)
            methods = {"report": (found.low, found.high, found.verdict)}
            for name, full_length in (("means of finished trials", True), ("means of last reports", False)):
                low, high = naive(sweep, level, full_length)
                methods[name] = (low, high, judge(low, high) if math.isfinite(low) else NOT_ENOUGH)
            for method, (low, high, verdict) in methods.items():
                row = {
                    "seed": seed,
                    "method": method,
                    "parameter": parameter.name,
                    "level": level.label,
                    "truth": truth,
                }
                row |= {"low": low, "high": high, "verdict": verdict, "full": int(found.full), "took": took}
                rows.append(row | {"ran": ran - began, "completed": int((sweep.trials.state == "completed").sum())})
    return rows


def summarise(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the coverage with its standard error over seeds, because only seeds are independent."""
    for method, found in rows[rows.method != "headline"].groupby("method", sort=False):
        known = found[found.verdict != NOT_ENOUGH].copy()
        known["covered"] = (known.low <= known.truth) & (known.truth <= known.high)
        coverage = known.groupby("seed").covered.mean()
        null = found[found.truth.abs() < 1e-3]
        good = found[found.truth > LEAST]
        bad = found[found.truth < -LEAST]
        real = len(good) + len(bad)
        yield {
            "method": method,
            "coverage": known.covered.mean(),
            "error": coverage.std() / math.sqrt(len(coverage)),
            "null_useful": (null.verdict == "useful").mean(),
            "nulls": len(null),
            "found": ((good.verdict == "useful").sum() + (bad.verdict == "harmful").sum()) / real,
            "wrong": ((good.verdict == "harmful").sum() + (bad.verdict == "useful").sum()) / real,
            "unknown": (found.verdict == NOT_ENOUGH).mean(),
            "width": (known.high - known.low).median(),
        }


def summarise_headlines(rows: pd.DataFrame) -> dict[str, Any]:
    """Return how true the headlines were: those of sweeps whose best trial is not a baseline."""
    found = rows[rows.method == "headline"]
    clear = found[found.verdict == "clear"]
    return {
        "headlines": len(found),
        "observed": found.observed.mean(),
        "truth": found.truth.mean(),
        "mean": found["mean"].mean(),
        "coverage": ((found.low <= found.truth) & (found.truth <= found.high)).mean(),
        "clear": len(clear),
        "held": (clear.truth > 0).mean(),
    }


def find_seen(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the report's levels: the true size of each in half the median width of its sweep, and whether it was seen."""
    known = rows[(rows.method == "report") & (rows.verdict != NOT_ENOUGH)]
    reach = (known.high - known.low).groupby(known.seed).median() / 2
    is_right = known.verdict == np.where(known.truth > 0, "useful", "harmful")
    return pd.DataFrame({"size": known.truth.abs() / known.seed.map(reach), "seen": is_right})


def run_cell(trials: int, noise: float, args: argparse.Namespace) -> pd.DataFrame:
    """Return the rows of all sweeps with this number of trials and this noise."""
    one = partial(
        judge_seed, noise=noise, exempt=args.exempt, sampler=args.sampler, trials=trials, additive=args.additive
    )
    seeds = range(args.first, args.first + args.seeds)
    if args.jobs > 1:
        with ProcessPoolExecutor(args.jobs) as pool:
            parts = list(pool.map(one, seeds))
    else:
        parts = [one(seed) for seed in seeds]
    return pd.DataFrame([row for part in parts for row in part])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--trials", type=int, nargs="+", default=[8, 12, 16, 40, 64])
    parser.add_argument(
        "--noise",
        type=float,
        nargs="+",
        default=[0.005, 0.02],
        help="standard deviation between trainings that differ only in the seed",
    )
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--exempt", type=float, default=0.0, help="share of trials that are never stopped")
    parser.add_argument("--additive", action="store_true", help="plant no interactions")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    args = parser.parse_args()
    cells: list[dict[str, Any]] = []
    seen: list[pd.DataFrame] = []
    for trials, noise in product(args.trials, args.noise):
        rows = run_cell(trials, noise, args)
        seen.append(find_seen(rows))
        effects = rows[rows.method != "headline"]
        full = effects.drop_duplicates("seed").completed.mean()
        cell = {"trials": trials, "noise": noise, "full": full}
        cells.append(cell | {"table": list(summarise(rows)), "headline": summarise_headlines(rows)})
        print(
            f"{trials} trials, noise {noise}: {rows.ran.mean():.1f} s to run, {rows.took.mean():.1f} s to judge",
            flush=True,
        )
    print(f"\n{args.seeds} sweeps each\n")
    print(
        "| trials, noise, full | method | coverage of 90 % | no effect, called useful | ± 1 point or more found | wrong sign "
        "| not enough | width |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for cell in cells:
        name = f"{cell['trials']}, {cell['noise']}, {cell['full']:.1f}"
        for row in cell["table"]:
            print(
                f"| {name} | {row['method']} | {row['coverage']:.1%} ± {row['error']:.1%} | {row['null_useful']:.1%} "
                f"| {row['found']:.0%} | {row['wrong']:.1%} | {row['unknown']:.0%} | {100 * row['width']:.1f} |"
            )
    print("\n| trials, noise | leads | as scored | true | said | coverage of 90 % | clear | of them true |")
    print("|---|---|---|---|---|---|---|---|")
    for cell in cells:
        it = cell["headline"]
        points = " | ".join(f"{100 * it[name]:+.1f}" for name in ("observed", "truth", "mean"))
        print(
            f"| {cell['trials']}, {cell['noise']} | {it['headlines']} | {points} | {it['coverage']:.0%} | {it['clear']} "
            f"| {it['held']:.0%} |"
        )
    levels = pd.concat(seen)
    print("\n| true size, in half the median width of a sweep's intervals | levels | seen |\n|---|---|---|")
    for low, high in pairwise([0, 1, 1.5, 2, math.inf]):
        of = levels[(levels["size"] > low) & (levels["size"] <= high)]
        print(f"| {low} to {high} | {len(of)} | {of.seen.mean():.0%} |")
    if args.json:
        args.json.write_text(json.dumps(cells, indent=1))


if __name__ == "__main__":
    main()
