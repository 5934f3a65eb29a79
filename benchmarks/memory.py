"""The memory of a worker over many trials, and what its peak consists of.

    python benchmarks/memory.py [--trials 200] [--json FILE]

One process trains random recipes of the demo's space one after the other, one epoch each, as a reused worker does. The
memory is the resident set of the process, in megabytes (2**20 bytes), as Linux reports it. Threads, open files and living
tensors are counted after each trial too. At the end, one training is split into its parts: images, weights, state of the
optimizer, and the peak of torch's allocations beyond these, which is mostly activations. Needs no network.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.techniques import measure_peak_mb
from spaces.load import load_space
from spaces.parameters.draws import RandomTrial
from training.data.load_data import load_data
from training.loop.checkpoint import read_checkpoint
from training.process.resources import MB
from training.recipe import Recipe, read_recipe
from training.train import Resources, train

ONE = Resources(threads=1, device="cpu", gpus=0)
WARM = 20  # trials after which everything that is loaded once is there


@dataclass(frozen=True)
class State:
    """What the process holds after a trial."""

    resident_mb: float
    threads: int
    files: int
    tensors: int


def read_state() -> State:
    gc.collect()
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return State(
        resident_mb=int(fields["VmRSS"].split()[0]) / 1024,
        threads=int(fields["Threads"]),
        files=len(os.listdir("/proc/self/fd")),
        tensors=sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()),
    )


def train_many(trials: int) -> list[State]:
    """Train random recipes, and return the state of the process after each of them."""
    space, states = load_space("quick", ["epochs=1", "search.scheduler={name: none}"]), []
    for number in range(trials):
        with tempfile.TemporaryDirectory() as folder:
            train(read_recipe(space.suggest(RandomTrial(number))), Path(folder), resources=ONE)
        states.append(read_state())
        if (number + 1) % 20 == 0:
            print(f"{number + 1} trials: {states[-1]}", flush=True)
    return states


def split(recipe: Recipe) -> dict[str, float]:
    """Return the megabytes of the parts of one training."""
    with tempfile.TemporaryDirectory() as folder:
        train(recipe, Path(folder), resources=ONE)
        saved = read_checkpoint(Path(folder) / "last.ckpt", ("state_dict", "optimizer_states"))
    data = load_data(recipe.data)
    weights = size_of(saved["state_dict"])
    optimizer = size_of(saved["optimizer_states"])
    peak = measure_peak_mb(recipe, ONE)
    return {
        "images": sum(part.images[:].nbytes for part in (data.train, data.val, data.test)) / MB,
        "weights": weights,
        "state of the optimizer": optimizer,
        "peak of torch beyond weights and optimizer": peak - weights - optimizer,
    }


def size_of(value: object) -> float:
    """Return the megabytes of all tensors in a nested value."""
    if isinstance(value, torch.Tensor):
        return value.nbytes / MB
    if isinstance(value, dict):
        return sum(size_of(one) for one in value.values())
    return sum(size_of(one) for one in value) if isinstance(value, list | tuple) else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.trials <= 2 * WARM:
        raise SystemExit(f"--trials must be above {2 * WARM}: the first {WARM} do not count.")
    imported = read_state()
    states = train_many(arguments.trials)
    parts = split(load_space("quick").baselines()[0])
    table = Table(title=f"One worker over {arguments.trials} trials")
    for name in ("", "resident, MB", "threads", "open files", "tensors"):
        table.add_column(name, justify="right" if name else "left")
    rows = {
        "after the imports": [imported],
        f"after trials {WARM} to {2 * WARM}, mean": states[WARM : 2 * WARM],
        f"after the last {WARM}, mean": states[-WARM:],
    }
    for name, some in rows.items():
        means = [fmean(getattr(one, field) for one in some) for field in asdict(imported)]
        table.add_row(name, *(f"{mean:.0f}" for mean in means))
    Console().print(table)
    shares = Table("part of one training of the demo's baseline", "MB")
    for name, megabytes in parts.items():
        shares.add_row(name, f"{megabytes:.1f}")
    Console().print(shares)
    if arguments.json:
        arguments.json.write_text(json.dumps({"states": [asdict(one) for one in states], "parts": parts}, indent=1))


if __name__ == "__main__":
    main()
