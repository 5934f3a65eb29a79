"""Replays real learning curves through this project's search and through stock ones, and compares what each finds."""

import argparse
import heapq
import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import optuna

from search.asha import Asha, Decision
from search.sampler import Sampler

LEVEL = "unfreeze.level"  # the parameter that the effect reports judge, where a set has it
RESUME_COST = 0.25  # units of fidelity charged for every resume of a paused trial: start-up and checkpoint


@dataclass(frozen=True)
class Configuration:
    params: dict[str, Any]
    length: int
    scores: list[float]

    @property
    def best(self) -> float:
        return max(self.scores, default=-math.inf)


class Curves:
    """One set: its domains, its configurations, and the nearest configuration to a point."""

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
        return cls(lines[0], [Configuration(c["params"], c["length"], c["scores"]) for c in lines[1:]])

    def suggest(self, trial: Any) -> dict[str, Any]:
        """The set's domains as a define-by-run space."""
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
        """Domains scaled to [0, 1], log where log; two options of a choice are at distance 1."""
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
    """What a method must answer in a replay. Scores are raw; each method makes of them what its users would."""

    def next(self, trial: int) -> dict[str, Any] | int | None:
        """The point of a new trial, or the number of a paused one to resume."""

    def start(self, trial: int, configuration: Configuration) -> None: ...

    def report(self, trial: int, epoch: int, score: float) -> Decision: ...

    def end(self, trial: int, state: str) -> None: ...


@dataclass
class Found:
    """What was known when one budget was spent."""

    regret: float
    level: Any
    trials: int
    completed: int


def replay(curves: Curves, search: Search, units: Sequence[float], workers: int = 8) -> list[Found]:
    """Run `search` on `curves`; what it had found when each of the increasing `units` of fidelity was spent."""
    taken = np.zeros(len(curves.configurations), bool)
    trials: list[Configuration] = []
    epochs: dict[int, int] = {}
    best, winner = -math.inf, None
    completed = 0
    found: list[Found] = []
    clock = [(0.0, worker) for worker in range(workers)]  # when each worker's unit ends
    holds: dict[int, int] = {}  # worker -> trial

    while True:
        now, worker = heapq.heappop(clock)
        while len(found) < len(units) and now * workers > units[len(found)] + 1e-9:
            regret = curves.optimum - (winner.best if winner else min(c.best for c in curves.configurations if c.scores))
            found.append(Found(regret, winner.params.get(LEVEL) if winner else None, len(trials), completed))
        if len(found) == len(units):
            return found
        if worker in holds:
            trial = holds[worker]
            configuration = trials[trial]
            epochs[trial] += 1
            epoch = epochs[trial]
            diverged = epoch > len(configuration.scores)
            score = math.nan if diverged else configuration.scores[epoch - 1]
            if score > best:
                best, winner = score, configuration
            decision = search.report(trial, epoch, score)
            over = diverged or epoch == configuration.length
            if over or decision is not Decision.CONTINUE:
                if diverged:
                    search.end(trial, "diverged")
                elif over:
                    completed += 1
                    search.end(trial, "completed")
                elif decision is Decision.STOP:
                    search.end(trial, "stopped")
                del holds[worker]
        cost = 1.0
        if worker not in holds:
            chosen = search.next(len(trials))
            if isinstance(chosen, int):
                trial = chosen
                cost += RESUME_COST
            elif chosen is None or taken.all():
                continue  # the set is used up: this worker rests
            else:
                trial = len(trials)
                nearest = int(np.argmin(np.where(taken, np.inf, curves.distances(chosen))))
                taken[nearest] = True
                trials.append(curves.configurations[nearest])
                epochs[trial] = 0
            search.start(trial, trials[trial])
            holds[worker] = trial
        heapq.heappush(clock, (now + cost, worker))
