"""The study's search with Ray Tune alone: `ASHAScheduler` and `OptunaSearch`, as in their documentation."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

from benchmarks.demo import score_test
from benchmarks.study_parts.recording import list_domains, load_study_space
from benchmarks.study_parts.searching import WORKERS
from spaces.parameters.domains import Scalar
from training.recipe import Recipe, read_recipe
from training.train import train

RESULTS = "stock.json"


@dataclass(frozen=True)
class Given:
    """Draws given values; where a value conflicts with those drawn before it, the first option that fits."""

    params: dict[str, Any]

    def suggest_categorical(self, name: str, choices: Sequence[Scalar]) -> Scalar:
        value = self.params[name.partition(" of ")[0]]
        return value if value in choices else choices[0]

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return float(self.params[name])

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return int(self.params[name])


def run_stock(folder: Path, overrides: list[str], trials: int, searches: int) -> None:
    """Search with as many trials as the real sweep has, once with each seed that the folder does not have yet."""
    kept = folder / RESULTS
    results = json.loads(kept.read_text()) if kept.exists() else []
    for seed in range(len(results), searches):
        results.append(_search(folder, overrides, trials, seed))
        kept.write_text(json.dumps(results))


def _search(folder: Path, overrides: list[str], trials: int, seed: int) -> dict[str, Any]:
    space = load_study_space(folder, overrides)
    longest = space.baselines()[0].epochs

    def fit(config: dict[str, Any]) -> None:
        recipe = read_recipe(space.suggest(Given(config)))
        with tempfile.TemporaryDirectory() as own:
            train(recipe, Path(own), on_report=lambda report: tune.report({"score": report.score}) or True)

    ray.shutdown()  # a sweep of this process leaves its own
    began = time.perf_counter()
    ray.init(address="local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    tuner = tune.Tuner(
        tune.with_resources(fit, {"cpu": 1}),
        param_space={name: _to_tune(domain) for name, domain in list_domains(space).items()},
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            num_samples=trials,
            search_alg=OptunaSearch(seed=seed),
            scheduler=ASHAScheduler(max_t=longest, grace_period=1, reduction_factor=3),
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(name=f"seed-{seed}", storage_path=str(folder / "ray-stock"), verbose=0),
    )
    try:
        found = tuner.fit()
    finally:
        ray.shutdown()
    seconds = time.perf_counter() - began
    frames = [result.metrics_dataframe for result in found if result.metrics_dataframe is not None]
    best = max(found, key=lambda result: max(result.metrics_dataframe.score, default=0.0))
    return {
        "trials": len(frames),
        "epochs": sum(map(len, frames)),
        "seconds": seconds,
        "trial_seconds": float(sum(frame.time_total_s.max() for frame in frames)),
        "best": float(best.metrics_dataframe.score.max()),
        "test": _score_best(read_recipe(space.suggest(Given(best.config)))),
    }


def _score_best(recipe: Recipe) -> float:
    """Train a recipe once more, because the search kept no weights, and return its test accuracy."""
    with tempfile.TemporaryDirectory() as own:
        train(recipe, Path(own))
        return score_test(Path(own) / "best.ckpt")


def _to_tune(domain: dict[str, Any]) -> Any:
    ((kind, of),) = domain.items()
    if kind == "choice":
        return tune.choice(of)
    return {"log_uniform": tune.loguniform, "uniform": tune.uniform, "int_uniform": tune.randint}[kind](*of)
