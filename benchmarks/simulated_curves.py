"""Simulated learning curves for benchmarks/search_quality.py: each set has one property that is hard for a search."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

LEVEL = "unfreeze.level"  # the parameter whose best level is reported, if a set has it
LEVELS = ["last", "most", "full"]


def _make_smooth(name: str, rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """Return curves that approach a smooth function of the parameters."""
    domains: dict[str, Any] = {"lr": {"log_uniform": [1e-4, 1.0]}, "decay": {"log_uniform": [1e-6, 1e-1]}}
    domains |= {"alpha": {"uniform": [0.0, 0.5]}, "batch_size": {"choice": [16, 32, 64]}}
    if name == "crossing":
        domains[LEVEL] = {"choice": LEVELS}
    if name == "unequal":
        domains["epochs"] = {"int_uniform": [10, 90]}
    lines: list[dict[str, Any]] = [{"name": f"synthetic-{name}", "domains": domains}]
    for _ in range(count):
        lr, decay, alpha = 10 ** rng.uniform(-4, 0), 10 ** rng.uniform(-6, -1), rng.uniform(0, 0.5)
        params = {"lr": lr, "decay": decay, "alpha": alpha, "batch_size": int(rng.choice([16, 32, 64]))}
        length = int(rng.integers(10, 91)) if name == "unequal" else {"crossing": 12}.get(name, 30)
        distance = (math.log10(lr) + 1.5) ** 2 / 2 + (math.log10(decay) + 3) ** 2 / 12 + (alpha - 0.2) ** 2
        end = 0.9 - 0.12 * distance - 0.01 * (params["batch_size"] == 64) + rng.normal(0, 0.008)
        speed = 4.0 + 3 * alpha + 1.5 * (math.log10(lr) + 2)
        if name == "crossing":
            level = int(rng.integers(3))
            params[LEVEL] = LEVELS[level]
            end, speed = end - [0.12, 0.02, 0.0][level], speed * [4.0, 1.2, 0.5][level]
        if name == "unequal":
            params["epochs"] = length
            end += 0.03 * math.log(length / 90)
        if name == "flat":
            speed = 10 ** rng.uniform(-0.5, 1.2)
        shares = np.arange(1, length + 1) / length
        rise = (1 - np.exp(-max(0.3, speed) * shares)) / (1 - math.exp(-max(0.3, speed)))
        scores = 0.1 + (max(0.12, end) - 0.1) * rise + rng.normal(0, 0.006, length) * (1 - shares)
        if name == "loss":
            scores = -(0.2 + 30 * (1 - scores) ** 3) * (1 + 50 * max(0.0, lr - 0.3))
        diverges = name in ("loss", "unequal") and rng.random() < 1 / (1 + 0.1 / lr)
        kept = int(rng.integers(0, length // 2)) if diverges else length
        lines.append({"params": params, "length": length, "scores": [round(float(v), 5) for v in scores[:kept]]})
    return lines


def _make_early(name: str, rng: np.random.Generator, count: int, length: int = 50) -> list[dict[str, Any]]:
    """Return negated losses of equal length that keep their order from the first epoch on, but for some noise."""
    domains: dict[str, Any] = {"lr": {"log_uniform": [1e-4, 1.0]}, "decay": {"log_uniform": [1e-6, 1e-1]}}
    domains |= {"alpha": {"uniform": [0.0, 0.5]}, "width": {"int_uniform": [1, 64]}}
    domains |= {"batch_size": {"choice": [16, 32, 64]}}
    lines: list[dict[str, Any]] = [{"name": f"synthetic-{name}", "domains": domains}]
    for _ in range(count):
        lr, decay, alpha = 10 ** rng.uniform(-4, 0), 10 ** rng.uniform(-6, -1), rng.uniform(0, 0.5)
        params = {"lr": lr, "decay": decay, "alpha": alpha, "width": int(rng.integers(1, 65))}
        params["batch_size"] = int(rng.choice([16, 32, 64]))
        distance = (math.log10(lr) + 1.7) ** 2 / 2 + (math.log10(decay) + 3.5) ** 2 / 15 + 2 * (alpha - 0.15) ** 2
        distance += abs(math.log(params["width"] / 40)) / 6
        end = (0.15 + 0.12 * distance**1.2 + 0.01 * (params["batch_size"] == 64)) * math.exp(rng.normal(0, 0.04))
        epochs = np.arange(1, length + 1)
        fall = rng.uniform(0.64, 0.96) * np.exp(-epochs / (length * rng.uniform(0.1, 0.2))) + 0.3 / np.sqrt(epochs)
        scores = -end * (1 + fall) * np.exp(rng.normal(0, 0.01, length))
        lines.append({"params": params, "length": length, "scores": [round(float(v), 5) for v in scores]})
    return lines


def _make_delayed(name: str, rng: np.random.Generator, count: int, length: int = 30) -> list[dict[str, Any]]:
    """Return accuracies where unfreezing, mixing and a small rate help in the end, and all make a recipe slow."""
    domains: dict[str, Any] = {"lr": {"log_uniform": [1e-4, 1.0]}, "decay": {"log_uniform": [1e-6, 1e-1]}}
    domains |= {"mixing": {"uniform": [0.0, 1.0]}, "smoothing": {"uniform": [0.0, 0.3]}}
    domains |= {LEVEL: {"choice": LEVELS}, "batch_size": {"choice": [16, 32, 64]}}
    lines: list[dict[str, Any]] = [{"name": f"synthetic-{name}", "domains": domains}]
    for _ in range(count):
        lr, decay, mixing = 10 ** rng.uniform(-4, 0), 10 ** rng.uniform(-6, -1), rng.uniform()
        smoothing, level = rng.uniform(0, 0.3), int(rng.integers(3))
        params = {"lr": lr, "decay": decay, "mixing": mixing, "smoothing": smoothing, LEVEL: LEVELS[level]}
        params["batch_size"] = int(rng.choice([16, 32, 64]))
        distance = (math.log10(lr) + 2) ** 2 / 3 + (math.log10(decay) + 3) ** 2 / 14
        end = 0.86 - 0.1 * distance + 0.05 * mixing + 0.02 * (smoothing > 0.05) + [0, 0.05, 0.08][level]
        end = max(0.12, end + rng.normal(0, 0.008))
        speed = max(0.3, 6 * [2, 1, 0.5][level] * math.exp(0.5 * (math.log10(lr) + 2) - 1.2 * mixing))
        shares = np.arange(1, length + 1) / length
        scores = 0.1 + (end - 0.1) * (1 - np.exp(-speed * shares)) / (1 - math.exp(-speed))
        scores += rng.normal(0, 0.006, length) * (1 - shares)
        lines.append({"params": params, "length": length, "scores": [round(float(v), 5) for v in scores]})
    return lines


SETS: dict[str, Callable[[str, np.random.Generator, int], list[dict[str, Any]]]] = {
    "crossing": _make_smooth,  # the level with the best end learns slowest
    "loss": _make_smooth,  # negated losses of equal length, which may diverge
    "unequal": _make_smooth,  # trials of 10 to 90 units
    "flat": _make_smooth,  # early scores hardly predict the end
    "early": _make_early,  # early scores predict the final ones nearly exactly
    "delayed": _make_delayed,  # early scores mislead
}


def synthesise(name: str, seed: int = 0, count: int = 400) -> list[dict[str, Any]]:
    """Return the lines of the simulated set `name` of SETS."""
    return SETS[name](name, np.random.default_rng((seed, len(name), sum(map(ord, name)))), count)
