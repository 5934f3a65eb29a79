"""The cost of each single technique: time, peak memory and accuracy, relative to the baseline of the same round.

    python benchmarks/techniques.py [--rounds 3] [--only unfreeze lora] [--json FILE] [--save]

There are two set-ups: a ResNet-18 on 32×32 images in batches of 128, where kernels take most of the time, and the demo's
small model on 200 digits, with three times as many rounds. Rounds are interleaved, each with its own seed. The time is that
of one training image, without the first epoch. The memory is the peak of torch's allocations, also in the validation: on a
GPU from its allocator, on a CPU from a profile of one epoch up to its report, which other processes cannot disturb; with
several devices, that of one. The accuracy is measured on the demo only, on the validation images after the last epoch,
paired by seed with the baseline, because a ResNet-18 without pretraining learns little in three epochs. --save writes the
costs that the cards show; `make docs` puts them on their page. It needs no network.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from analysis.effects.intervals import paired_interval
from analysis.report.technique_cards import COSTS, technique_names
from analysis.report.technique_page import describe_gain, describe_times
from spaces.examples import list_examples
from training.errors import UserError
from training.recipe import Recipe, flatten, read_recipe
from training.train import Resources, train

Values = dict[str, Any]

MODELS: dict[str, Values] = {
    "ResNet-18, 32×32": {
        "data": {"name": "digits", "train_size": 384},
        "preprocessing": {"image_size": 32},
        "backbone": {"name": "resnet18", "weights": "none"},
        "batch_size": 128,
        "epochs": 3,
        "optimizer": {"name": "momentum", "lr": 0.03},
    },
    "the demo": {
        "data": {"name": "digits", "train_size": 200},
        "backbone": {"name": "test_resnet", "weights": "letters"},
        "batch_size": 32,
        "epochs": 9,
        "optimizer": {"name": "momentum", "lr": 0.03},
        "schedule": {"name": "cosine"},
    },
}
DEMO_ROUNDS = 3  # rounds of the demo for each round of the other model: they are short, and accuracy needs many seeds
# The first part in each is the technique; it needs the others.
VARIANTS: list[Values] = [example for name in technique_names() for example in list_examples(name)]


def measure(recipe: Recipe, resources: Resources) -> dict[str, float]:
    """Return the seconds per training image, and the validation accuracy after the last epoch."""
    with tempfile.TemporaryDirectory() as folder:
        reports = train(recipe, Path(folder), resources=resources).reports
    seconds = [1 / report.metrics["images_per_second"] for report in reports[1:]]
    return {"time": median(seconds), "accuracy": reports[-1].score}


def measure_peak_mb(recipe: Recipe, resources: Resources) -> float:
    """Return the peak of torch's allocations during one epoch of training and its validation."""
    shares = {"data": recipe.data.model_copy(update={"train_size": 2 * recipe.batch_size})}
    short = recipe.model_copy(update=shares)
    with tempfile.TemporaryDirectory() as folder:
        if resources.device == "cuda":
            return train(short, Path(folder), resources=resources).reports[-1].metrics["peak_memory_mb"]
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            (report,) = train(short, Path(folder), resources=resources, on_report=lambda report: False).reports
    # The checkpoint is made after the report, in the memory of the host.
    events = sorted(event for event in memory_events(seen) if event[0] <= report.time * 1e9)
    return max(accumulate(size for _, size in events)) / 2**20


def memory_events(seen: profile) -> Iterator[tuple[int, int]]:
    """Yield times and sizes in bytes of allocations; the size is negative when memory is freed."""
    assert seen.profiler is not None
    for event in seen.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            yield event.start_ns(), event.nbytes()


def run(rounds: int, variants: list[Values], resources: Resources) -> list[dict[str, Any]]:
    """Measure every variant on every model, round by round."""
    costs: list[dict[str, Any]] = []
    for model, common in MODELS.items():
        bare: list[dict[str, float]] = []
        seen: dict[int, list[dict[str, float]]] = {}
        measure(read_recipe(common), resources)  # a process trains its first recipe more slowly
        count = rounds * DEMO_ROUNDS if model == "the demo" else rounds
        for number in range(count):
            print(f"{model}: round {number + 1} of {count}", flush=True)
            bare.append(measure(read_recipe({**common, "seed": number}), resources))
            for position, variant in enumerate(variants):
                if variant.get("backbone", common["backbone"]) != common["backbone"]:
                    continue  # it needs pretrained weights, and another model would not compare
                if position in seen or number == 0:
                    measured = attempt({**common, **variant, "seed": number}, resources, measure)
                    if measured:
                        seen.setdefault(position, []).append(measured)
        peak = measure_peak_mb(read_recipe(common), resources)
        scores = {str(position): [one["accuracy"] for one in measured] for position, measured in seen.items()}
        scores["baseline"] = [one["accuracy"] for one in bare]
        for position, measured in seen.items():
            recipe = read_recipe({**common, **variants[position]})
            ratios = [one["time"] / base["time"] for one, base in zip(measured, bare, strict=True)]
            gain = paired_interval(scores, str(position), "baseline") if model == "the demo" else None
            costs.append(
                {
                    "technique": next(iter(variants[position])),
                    "values": " ".join(f"{path}={value}" for path, value in flatten(variants[position]).items()),
                    "model": model,
                    "time": [round(ratio, 3) for ratio in ratios],
                    "memory": round(measure_peak_mb(recipe, resources) / peak, 3),
                    "accuracy": gain and {name: round(value, 4) for name, value in asdict(gain).items()},
                }
            )
    return costs


def attempt(values: Values, resources: Resources, work: Any) -> Any:
    """Return None, and print the reason, if this machine or this model does not support the variant."""
    try:
        return work(read_recipe(values), resources)
    except UserError as error:
        print(f"left out: {error}")
        return None


def show(costs: list[dict[str, Any]]) -> None:
    for model in MODELS:
        table = Table("values", "time per image", "peak memory", "accuracy", title=model)
        for cost in costs:
            if cost["model"] == model:
                times = describe_times(cost["time"])
                table.add_row(cost["values"], times, f"{cost['memory']:.2f}×", describe_gain(cost["accuracy"]))
        Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", metavar="TECHNIQUE")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    if missing := set(technique_names()) - {next(iter(variant)) for variant in VARIANTS}:
        raise SystemExit(
            f"Nothing measures {', '.join(sorted(missing))}: give each a line of examples in its own file."
        )
    variants = [v for v in VARIANTS if not arguments.only or next(iter(v)) in arguments.only]
    threads = len(os.sched_getaffinity(0))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    resources = Resources(threads=threads, device=device, gpus=torch.cuda.device_count())
    machine = torch.cuda.get_device_name() if resources.device == "cuda" else f"{threads} CPU threads"
    costs = run(arguments.rounds, variants, resources)
    show(costs)
    result = {
        "machine": f"{machine}, torch {torch.__version__.split('+')[0]}, {arguments.rounds} rounds, of the demo "
        f"{arguments.rounds * DEMO_ROUNDS}",
        "costs": costs,
    }
    if arguments.json:
        write(arguments.json, result)
    if arguments.save:
        write(COSTS, merge(result, arguments.only))


def merge(result: dict[str, Any], only: list[str] | None) -> dict[str, Any]:
    """Add the earlier costs of variants that were not measured now.

    Raises:
        SystemExit: those were measured on another machine, or with another number of rounds.
    """
    if not only:
        return result
    before = json.loads(COSTS.read_text())
    if before["machine"] != result["machine"]:
        raise SystemExit(f"Not saved: the other variants were measured on {before['machine']}.")
    names = [next(iter(variant)) for variant in VARIANTS]
    costs = [cost for cost in before["costs"] if cost["technique"] not in only] + result["costs"]
    costs.sort(key=lambda cost: (list(MODELS).index(cost["model"]), names.index(cost["technique"])))
    return {**result, "costs": costs}


def write(path: Path, result: dict[str, Any]) -> None:
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
