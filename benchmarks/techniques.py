"""The cost of each single technique: time, peak memory and accuracy, relative to the baseline of the same round.

    python benchmarks/techniques.py [--rounds 3] [--only unfreeze lora] [--lines FILE] [--busy] [--save]

There are two set-ups: a ResNet-18 on 32×32 images in batches of 128, where kernels take most of the time, and a small
model on 200 digits, with six times as many rounds, the first sixth of them timed. Rounds are interleaved, each with its
own seed. The time is that of one training image, without the first epoch, relative to a baseline trained just before. The
memory is the peak of torch's allocations, also in the validation: on a GPU from its allocator, on a CPU from a profile of
one epoch up to its report, which other processes cannot disturb; with several devices, that of one. The accuracy is
measured on the small model only, on the validation images after the last epoch, paired by seed with the baseline, because
a ResNet-18 without pretraining learns little in three epochs.

--save writes the costs that the cards show; `make docs` puts them on their page. With --lines, each training is kept in a
file, and a second call goes on after an interrupted one. --busy trains only what does not depend on time, on a machine
that also does other work. It needs no network.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from analysis.effects.seed_intervals import Interval, paired_interval
from analysis.report.technique_cards import COSTS, describe_gain, describe_times, technique_names
from ledger.formatting import plural
from training.errors import UserError
from training.examples import list_examples
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
DEMO = "the demo"
BESIDE = 8  # variants that are compared with the same training of the baseline
TEACHER_SEED = 1000
DEMO_ROUNDS = 6  # rounds of the demo for each round of the other model: they are short, and accuracy needs many seeds
# The first part in each is the technique; it needs the others.
VARIANTS: list[Values] = [example for name in technique_names() for example in list_examples(name)]


def read_variant(model: str, variant: Values, seed: int = 0) -> Recipe:
    """Return the recipe of a variant on a model; the teacher of distillation is the baseline of that model."""
    values = {**MODELS[model], "seed": seed, **variant}
    if "distillation" in variant:
        values["distillation"] = {**variant["distillation"], "teacher": train_teacher(model).name}
    return read_recipe(values)


@cache
def train_teacher(model: str) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    train(read_recipe({**MODELS[model], "seed": TEACHER_SEED}), Path(folder.name))
    return folder


def measure(recipe: Recipe, resources: Resources) -> dict[str, float]:
    """Return the seconds per training image, and the validation accuracy after the last epoch."""
    with tempfile.TemporaryDirectory() as folder:
        reports = train(recipe, Path(folder), resources=resources).reports
    if len(reports) < recipe.epochs:
        raise UserError(f"seed={recipe.seed}: this training diverged after {plural(len(reports), 'epoch')}.")
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


@dataclass
class Line:
    """One training: its time relative to the baseline beside it (null on a busy machine), or the reason to leave it out."""

    model: str
    values: str  # of the variant; empty for the baseline
    seed: int
    time: float | None = None
    accuracy: float | None = None
    left_out: str = ""


class Lines:
    """The trainings so far. Each is appended to a file, so that a second call goes on after an interrupted one."""

    def __init__(self, file: Path) -> None:
        self.file = file
        written = file.read_text().splitlines() if file.exists() else []
        self.lines = {
            (line.model, line.values, line.seed): line for line in (Line(**json.loads(one)) for one in written)
        }

    def add(self, line: Line) -> None:
        self.lines[line.model, line.values, line.seed] = line
        with self.file.open("a") as opened:
            opened.write(json.dumps(asdict(line)) + "\n")

    def has(self, model: str, values: str, seed: int, *, timed: bool) -> bool:
        line = self.lines.get((model, values, seed))
        return line is not None and bool(line.left_out or not timed or line.time is not None)

    def read(self, model: str, values: str) -> list[Line]:
        """Return the trainings of a variant that was not left out, by seed."""
        found = [line for key, line in self.lines.items() if key[:2] == (model, values) and not line.left_out]
        return sorted(found, key=lambda line: line.seed)


def name_of(variant: Values) -> str:
    return " ".join(f"{path}={value}" for path, value in flatten(variant).items())


def measure_round(
    model: str, seed: int, variants: list[Values], resources: Resources, lines: Lines, *, timed: bool
) -> None:
    """Train the variants that this seed does not have yet; the baseline is trained again before every few of them."""
    common = {**MODELS[model], "seed": seed}
    # Others need pretrained weights, and another model would not compare.
    usual = [one for one in variants if one.get("backbone", common["backbone"]) == common["backbone"]]
    missing = [one for one in usual if not lines.has(model, name_of(one), seed, timed=timed)]
    for first in range(0, len(missing), BESIDE):
        base = measure(read_recipe(common), resources)
        lines.add(Line(model, "", seed, 1.0 if timed else None, base["accuracy"]))
        for variant in missing[first : first + BESIDE]:
            try:
                one = measure(read_variant(model, variant, seed), resources)
            except UserError as error:
                lines.add(Line(model, name_of(variant), seed, left_out=str(error)))
                print(f"left out: {error}")
                continue
            time = one["time"] / base["time"] if timed else None
            lines.add(Line(model, name_of(variant), seed, time, one["accuracy"]))


def run(rounds: int, variants: list[Values], resources: Resources, lines: Lines, *, busy: bool) -> None:
    """Train every variant on both models, round by round; on a busy machine only what does not depend on time."""
    for model, common in MODELS.items():
        if busy and model != DEMO:
            continue
        measure(read_recipe(common), resources)  # a process trains its first recipe more slowly
        for seed in range(rounds * DEMO_ROUNDS if model == DEMO else rounds):
            print(f"{model}: round {seed + 1}", flush=True)
            measure_round(model, seed, variants, resources, lines, timed=not busy and seed < rounds)


def summarise(variants: list[Values], resources: Resources, lines: Lines) -> list[dict[str, Any]]:
    """Return the costs of each variant on each model; the peaks of memory are measured here."""
    costs: list[dict[str, Any]] = []
    for model, common in MODELS.items():
        peak = measure_peak_mb(read_recipe(common), resources)
        found = {name_of(variant): lines.read(model, name_of(variant)) for variant in variants}
        base = {line.seed: line.accuracy for line in lines.read(model, "")}
        for variant in variants:
            if not (trained := found[name_of(variant)]):
                continue
            memory = measure_peak_mb(read_variant(model, variant), resources) / peak
            # A technique may diverge with some seeds; the others are compared with the baseline of the same seeds.
            pair = [(line.accuracy, base[line.seed]) for line in trained if line.seed in base]
            gain = _find_gain(pair) if model == DEMO and len(pair) > 1 else None
            costs.append(
                {
                    "technique": next(iter(variant)),
                    "values": name_of(variant),
                    "model": model,
                    "time": [round(line.time, 3) for line in trained if line.time is not None],
                    "memory": round(memory, 3),
                    "accuracy": gain and {name: round(value, 4) for name, value in asdict(gain).items()},
                }
            )
    return costs


def _find_gain(pairs: list[tuple[float | None, float | None]]) -> Interval:
    ours, base = zip(*((one, other) for one, other in pairs if one is not None and other is not None), strict=True)
    return paired_interval({"variant": list(ours), "": list(base)}, "variant", "")


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
    parser.add_argument("--lines", type=Path)
    parser.add_argument("--busy", action="store_true")
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
    with tempfile.TemporaryDirectory() as folder:
        lines = Lines(arguments.lines or Path(folder) / "lines.jsonl")
        run(arguments.rounds, variants, resources, lines, busy=arguments.busy)
    if arguments.busy:
        return
    costs = summarise(variants, resources, lines)
    show(costs)
    result = {
        "machine": f"{machine}, torch {torch.__version__.split('+')[0]}, {plural(arguments.rounds, 'round')}, of the demo "
        f"{arguments.rounds * DEMO_ROUNDS}",
        "costs": costs,
    }
    if arguments.save:
        COSTS.write_text(json.dumps(merge(result, arguments.only), indent=1, ensure_ascii=False) + "\n")


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


if __name__ == "__main__":
    main()
