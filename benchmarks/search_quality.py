"""Replay recorded learning curves with this project's search and with stock ones, and compare the found recipes."""

import argparse
import heapq
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import optuna

from benchmarks.simulated_curves import LEVEL, SETS, synthesise
from search.core.asha import Asha, Decision
from search.core.sampler import Sampler
from spaces.search import AshaScheduler


@dataclass(frozen=True)
class Configuration:
    params: dict[str, Any]
    length: int
    scores: list[float]
    seconds: list[float] = field(default_factory=list)  # of each unit, also of one that diverges; not in all sets
    test: float | None = None

    @property
    def best(self) -> float:
        return max(self.scores, default=-math.inf)


class Curves:
    """One set of curves: its domains, its configurations, and the nearest configuration to a point."""

    def __init__(self, header: dict[str, Any], configurations: list[Configuration]) -> None:
        self.name: str = header["name"]
        self.domains: dict[str, dict[str, Any]] = header["domains"]
        self.configurations = configurations
        self.lengths = np.array([c.length for c in configurations])
        self.optimum = max(c.best for c in configurations if len(c.scores) == c.length)
        self._points = np.stack([self._scale(c.params) for c in configurations])

    @classmethod
    def load(cls, path: Path) -> "Curves":
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        known = [each.name for each in fields(Configuration)]
        return cls(lines[0], [Configuration(**{name: c[name] for name in known if name in c}) for c in lines[1:]])

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Draw from the set's domains as a define-by-run space."""
        return {name: self._draw(trial, name, domain) for name, domain in self.domains.items()}

    def distances(self, params: dict[str, Any]) -> np.ndarray:
        return ((self._points - self._scale(params)) ** 2).sum(axis=1)

    @staticmethod
    def _draw(trial: Any, name: str, domain: dict[str, Any]) -> Any:
        ((kind, of),) = domain.items()
        if kind == "choice":
            return trial.suggest_categorical(name, of)
        if kind == "int_uniform":
            return trial.suggest_int(name, *of)
        return trial.suggest_float(name, *of, log=kind == "log_uniform")

    def _scale(self, params: dict[str, Any]) -> np.ndarray:
        """Scale domains to [0, 1], logarithmic ones in the logarithm; two options of a choice have the distance 1."""
        values: list[float] = []
        for name, domain in self.domains.items():
            ((kind, of),) = domain.items()
            if kind == "choice":
                values += [math.sqrt(0.5) * (params.get(name) == option) for option in of]
            else:
                low, high, x = (math.log(v) if kind == "log_uniform" else v for v in (*of, params[name]))
                values.append((x - low) / (high - low))
        return np.array(values)


class Search(Protocol):
    """The interface of a method in a replay. Scores are raw; each method uses them as its users would."""

    def next(self, trial: int) -> dict[str, Any] | None:
        """Return the point of a new trial."""

    def start(self, trial: int, configuration: Configuration) -> None: ...

    def report(self, trial: int, epoch: int, score: float) -> Decision: ...

    def end(self, trial: int, state: str) -> None: ...


@dataclass
class Found:
    """The result when one budget was spent."""

    regret: float
    level: Any
    trials: int
    completed: int


@dataclass(frozen=True)
class Moment:
    """The state of a replay after an event. `winner` has the best score so far, whose trial may have been stopped."""

    time: float
    epochs: int
    winner: Configuration | None
    trials: int
    completed: int


def replay(curves: Curves, search: Search, units: Sequence[float], workers: int = 8) -> list[Found]:
    """Run `search` on `curves`, and return the result after each of the increasing `units` of fidelity."""
    found: list[Found] = []
    worst = min(c.best for c in curves.configurations if c.scores)

    def conclude(moment: Moment) -> Found:
        regret = curves.optimum - (moment.winner.best if moment.winner else worst)
        level = moment.winner.params.get(LEVEL) if moment.winner else None
        return Found(regret, level, moment.trials, moment.completed)

    last = Moment(0.0, 0, None, 0, 0)
    for moment in walk(curves, search, workers):
        while len(found) < len(units) and moment.time * workers > units[len(found)] + 1e-9:
            found.append(conclude(last))
        if len(found) == len(units):
            return found
        last = moment
    # The set was used up before the budget.
    return found + [conclude(last)] * (len(units) - len(found))


def walk(curves: Curves, search: Search, workers: int, timed: bool = False) -> Iterator[Moment]:
    """Run `search` on `curves` until the set is used up; a unit takes 1, or with `timed` its measured seconds."""
    taken = np.zeros(len(curves.configurations), bool)
    trials: list[Configuration] = []
    epochs: dict[int, int] = {}
    best, winner = -math.inf, None
    trained = completed = 0
    clock = [(0.0, worker) for worker in range(workers)]  # time at which each worker's unit ends
    holds: dict[int, int] = {}  # worker -> trial

    while clock:
        now, worker = heapq.heappop(clock)
        if worker in holds:
            trial = holds[worker]
            configuration = trials[trial]
            trained += 1
            epochs[trial] += 1
            epoch = epochs[trial]
            diverged = epoch > len(configuration.scores)
            score = math.nan if diverged else configuration.scores[epoch - 1]
            if score > best:
                best, winner = score, configuration
            decision = search.report(trial, epoch, score)
            over = diverged or epoch == configuration.length
            if over or decision is Decision.STOP:
                completed += over and not diverged
                search.end(trial, "diverged" if diverged else "completed" if over else "stopped")
                del holds[worker]
        if worker not in holds:
            chosen = search.next(len(trials))
            if chosen is not None and not taken.all():
                holds[worker] = len(trials)
                nearest = int(np.argmin(np.where(taken, np.inf, curves.distances(chosen))))
                taken[nearest] = True
                trials.append(curves.configurations[nearest])
                epochs[holds[worker]] = 0
                search.start(holds[worker], trials[holds[worker]])
        if worker in holds:  # else the set is used up, so this worker is idle
            trial = holds[worker]
            heapq.heappush(clock, (now + (trials[trial].seconds[epochs[trial]] if timed else 1.0), worker))
        yield Moment(now, trained, winner, len(trials), completed)


class Ours:
    """This project's scheduler and sampler, called as in a sweep."""

    def __init__(self, curves: Curves, seed: int, asha: Asha | None, sampler: str = "tpe") -> None:
        self.asha = asha
        self.sampler = Sampler(curves.suggest, name=sampler, seed=seed)  # type: ignore[arg-type]
        self.lengths: dict[int, int] = {}
        self.best: dict[int, float] = {}

    def next(self, trial: int) -> dict[str, Any] | None:
        asked = self.sampler.ask(trial, dict)
        return asked and asked[0]

    def start(self, trial: int, configuration: Configuration) -> None:
        self.lengths[trial] = configuration.length
        if self.asha:
            self.asha.start(trial, configuration.length, group=configuration.params.get(LEVEL))

    def report(self, trial: int, epoch: int, score: float) -> Decision:
        if math.isnan(score):
            return Decision.STOP  # a sweep ends such a trial without a report
        score = self.best[trial] = max(self.best.get(trial, -math.inf), score)
        self.sampler.report(trial, epoch / self.lengths[trial], score)
        return self.asha.report(trial, epoch, score) if self.asha else Decision.CONTINUE

    def end(self, trial: int, state: str) -> None:
        self.sampler.tell(trial, state)
        if self.asha:
            self.asha.end(trial, state)


class Stock:
    """Optuna's TPE, or random points, without early stopping; scores are reported as by a plain objective function."""

    def __init__(
        self, curves: Curves, seed: int, sampler: str, pruner: optuna.pruners.BasePruner | None = None
    ) -> None:
        self.curves = curves
        self.points = Sampler(curves.suggest, name="random", seed=seed) if sampler == "random" else None
        self.study = optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=seed),
            pruner=pruner or optuna.pruners.NopPruner(),
        )
        self.trials: dict[int, optuna.Trial] = {}
        self.last: dict[int, float] = {}

    def next(self, trial: int) -> dict[str, Any]:
        if self.points:
            asked = self.points.ask(trial, dict)
            assert asked is not None
            return asked[0]
        self.trials[trial] = self.study.ask()
        return self.curves.suggest(self.trials[trial])

    def start(self, trial: int, configuration: Configuration) -> None:
        pass

    def report(self, trial: int, epoch: int, score: float) -> Decision:
        self.last[trial] = score
        if self.points or math.isnan(score):
            return Decision.CONTINUE
        self.trials[trial].report(score, epoch)
        return Decision.STOP if self.trials[trial].should_prune() else Decision.CONTINUE

    def end(self, trial: int, state: str) -> None:
        if self.points:
            return
        if state == "diverged":
            self.study.tell(self.trials[trial], state=optuna.trial.TrialState.FAIL)
        elif state == "stopped":
            self.study.tell(self.trials[trial], state=optuna.trial.TrialState.PRUNED)
        else:
            self.study.tell(self.trials[trial], self.last[trial])


class RayAsha(Stock):
    """Ray's ASHA class, with reports as by `OptunaSearch`: stopped trials are complete with their last value."""

    def __init__(self, curves: Curves, seed: int, sampler: str) -> None:
        from ray.tune.schedulers import AsyncHyperBandScheduler

        super().__init__(curves, seed, sampler)
        longest = int(curves.lengths.max())
        self.scheduler = AsyncHyperBandScheduler(
            "epoch", "score", "max", max_t=longest, grace_period=1, reduction_factor=3
        )

    def start(self, trial: int, configuration: Configuration) -> None:
        self.scheduler.on_trial_add(None, SimpleNamespace(trial_id=str(trial)))  # type: ignore[arg-type]

    def report(self, trial: int, epoch: int, score: float) -> Decision:
        super().report(trial, epoch, score)
        ray_trial = SimpleNamespace(trial_id=str(trial))
        answer = self.scheduler.on_trial_result(None, ray_trial, {"epoch": epoch, "score": score})  # type: ignore[arg-type]
        return Decision.STOP if answer == self.scheduler.STOP else Decision.CONTINUE

    def end(self, trial: int, state: str) -> None:
        if self.points is None and not math.isnan(self.last[trial]):
            self.study.tell(self.trials[trial], self.last[trial])


BASE = "random, full trainings"
STOCK: dict[str, Callable[[Curves, int], Search]] = {
    BASE: lambda curves, seed: Stock(curves, seed, "random"),
    "TPE, full trainings": lambda curves, seed: Stock(curves, seed, "tpe"),
    "Ray ASHA + random": lambda curves, seed: RayAsha(curves, seed, "random"),
    "Ray ASHA + TPE (OptunaSearch)": lambda curves, seed: RayAsha(curves, seed, "tpe"),
    "TPE + SuccessiveHalvingPruner": lambda curves, seed: Stock(
        curves, seed, "tpe", optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    ),
}
OURS: dict[str, Callable[[Curves, int], Search]] = {
    "this project": lambda curves, seed: Ours(curves, seed, Asha()),
}
VARIANTS: dict[str, Callable[[Curves, int], Search]] = {
    "adapt: false": lambda curves, seed: Ours(curves, seed, Asha(AshaScheduler(adapt=False))),
    "random points": lambda curves, seed: Ours(curves, seed, Asha(), "random"),
    "nothing stopped": lambda curves, seed: Ours(curves, seed, None),
    "rungs in epochs, η 3": lambda curves, seed: Ours(
        curves, seed, Asha(AshaScheduler(rungs="epochs", reduction_factor=3))
    ),
    "η 3, shares 1/27, 1/9, 1/3": lambda curves, seed: Ours(
        curves, seed, Asha(AshaScheduler(reduction_factor=3, first_share=1 / 27, last_share=1 / 3))
    ),
    "rungs up to 1/8": lambda curves, seed: Ours(curves, seed, Asha(AshaScheduler(last_share=1 / 8))),
    "rungs up to 1/2": lambda curves, seed: Ours(curves, seed, Asha(AshaScheduler(last_share=1 / 2))),
}


def run_seed(path: Path, method: str, budgets: Sequence[float], workers: int, seed: int) -> list[Found]:
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    curves = Curves.load(path)
    units = [budget * float(curves.lengths.mean()) for budget in budgets]
    return replay(curves, (STOCK | OURS | VARIANTS)[method](curves, seed), units, workers)


def compare(ours: np.ndarray, base: np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of mean regrets on the same seeds, and its 95 % interval (bootstrap over seeds)."""
    picks = np.random.default_rng(0).integers(len(base), size=(4000, len(base)))
    ratios = ours[picks].mean(axis=1) / np.maximum(base[picks].mean(axis=1), 1e-12)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(ours.mean() / max(base.mean(), 1e-12)), float(low), float(high)


def judge(path: Path, methods: Sequence[str], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Replay every method on one set; returns one row per budget and method."""
    curves = Curves.load(path)
    short = curves.lengths.mean() < 20
    budgets = sorted(args.budgets or ([8, 16] if short else [16, 32]))
    finals = {c.params.get(LEVEL): c.best for c in sorted(curves.configurations, key=lambda c: c.best)}
    level = max(finals, key=lambda name: finals[name]) if LEVEL in curves.domains else None
    rows: list[dict[str, Any]] = []
    base: list[np.ndarray] = []
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    for method in methods:
        began = time.perf_counter()
        one = partial(run_seed, path, method, budgets, args.workers)
        if args.jobs > 1:
            with ProcessPoolExecutor(args.jobs) as pool:
                found = list(pool.map(one, seeds))
        else:
            found = [one(seed) for seed in seeds]
        regrets = np.array([[f.regret for f in run] for run in found]).T
        base = base or list(regrets)
        for k, budget in enumerate(budgets):
            ratio, low, high = compare(regrets[k], base[k])
            row = {"set": path.stem, "budget": budget, "method": method, "regret": float(regrets[k].mean())}
            row |= {"ratio": ratio, "low": low, "high": high, "trials": float(np.mean([r[k].trials for r in found]))}
            row["level_won"] = None if level is None else float(np.mean([r[k].level == level for r in found]))
            row["seconds"] = (time.perf_counter() - began) / args.seeds
            rows.append(row)
            won = "" if row["level_won"] is None else f"{row['level_won']:.0%}"
            start = f"| {path.stem} | {budget:g} | {method} | {row['regret']:.4f}"
            print(f"{start} | {ratio:.2f} [{low:.2f}, {high:.2f}] | {won} |", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", type=Path, required=True, help="folder of sets, *.jsonl")
    parser.add_argument("--synthesise", action="store_true", help="first write simulated sets into that folder")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument(
        "--first-seed", type=int, default=0, help="first seed; use other seeds to confirm a choice than to make it"
    )
    parser.add_argument("--sets", nargs="+", metavar="NAME", help="only these files of the folder, without .jsonl")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument(
        "--budgets",
        type=float,
        nargs="+",
        help="budgets in mean trainings; default 16 32, and 8 16 for short trainings",
    )
    parser.add_argument("--json", type=Path, help="write the rows here as well")
    parser.add_argument("--variants", action="store_true", help="also run the variants that were tried without success")
    parser.add_argument("--only", nargs="+", help="methods to run besides the base")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    args = parser.parse_args()
    for name in SETS if args.synthesise else ():
        args.curves.mkdir(parents=True, exist_ok=True)
        text = "\n".join(json.dumps(line) for line in synthesise(name))
        (args.curves / f"synthetic-{name}.jsonl").write_text(text + "\n")
    paths = [path for path in sorted(args.curves.glob("*.jsonl")) if args.sets is None or path.stem in args.sets]
    if not paths:
        parser.error(f"--curves {args.curves}: no *.jsonl there. Give the folder that holds the sets.")
    methods = [*STOCK, *OURS, *(VARIANTS if args.variants else [])]
    if args.only:
        methods = [BASE, *(method for method in [*STOCK, *OURS, *VARIANTS] if method in args.only)]
    print(f"Mean regret; ratio to {BASE!r} on the same {args.seeds} seeds [95 %].\n")
    print("| set | budget | method | regret | ratio [95 %] | best level won |\n|---|---|---|---|---|---|")
    rows = [row for path in paths for row in judge(path, methods, args)]
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
