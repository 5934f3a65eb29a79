"""Plans against what the sweeps took: `sweep plan`, then `sweep run` of the same space, for demos and for photographs.

    python benchmarks/plan.py [--sweeps 20] [--photos FOLDER] [--json FILE]

FOLDER has a folder of images for each class, or parts with such folders. With it, every second sweep is one of
photographs. The factor is the larger of planned and real time over the smaller; the machine should do nothing else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from rich.console import Console
from rich.table import Table

from ledger.file import read_events
from ledger.trials import Trials

SWEEP = Path(sys.executable).parent / "sweep"
AIM = 1.5
DEMOS = (
    ["search.trials=16"],
    ["search.trials=24", "epochs=18"],
    ["data.train_size=800", "search.trials=12"],
    ["search.trials=12", "search.scheduler={name: none}"],
)
PHOTOS = """
format: 1
recipe:
  data: {{name: image_folder, root: {root}, train_size: {size}}}
  backbone: {{name: test_resnet, weights: letters}}
  preprocessing: {{image_size: {{choice: [32, 64]}}}}
  epochs: {epochs}
  unfreeze: {{level: {{choice: [last, most, full]}}}}
  random_crop: {{choice: [{{name: none}}, {{name: padded, padding: {{uniform: [0.05, 0.25]}}}}]}}
  augmentation: {{choice: [{{policy: none}}, {{policy: affine_colour, probability: {{uniform: [0.2, 1.0]}}}}]}}
  batch_size: {{choice: [32, 64, 128]}}
  optimizer: {{name: momentum, lr: {{log_uniform: [0.003, 0.3]}}}}
  precision: {{mode: {{choice: [32-true, bf16-mixed]}}}}
search: {{trials: {trials}}}
"""
SIZES = ((1000, 9, 12), (2000, 9, 16), (3000, 6, 12))  # training images, epochs, trials


def compare(number: int, photos: Path | None) -> dict[str, Any]:
    """Plan and run one sweep in a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        if photos is not None and number % 2:
            size, epochs, trials = SIZES[number // 2 % len(SIZES)]
            space = Path(folder) / "photos.yaml"
            space.write_text(PHOTOS.format(root=photos.absolute(), size=size, epochs=epochs, trials=trials))
            arguments, title = [str(space)], f"photographs, {size} images, {trials} trials of {epochs} epochs"
        else:
            overrides = DEMOS[number // (1 + (photos is not None)) % len(DEMOS)]
            arguments, title = ["quick", *overrides], f"demo, {', '.join(overrides)}"
        plan = json.loads(call(folder, "plan", *arguments, "--json"))
        call(folder, "run", *arguments, "--name", "real", "--seed", str(number))
        trials_done = Trials("val_accuracy", read_events(Path(folder) / "sweeps" / "real" / "ledger.jsonl"))
    peaks = [report.metrics.get("peak_memory_mb") or 0 for trial in trials_done for report in trial.reports]
    real = trials_done.elapsed_seconds
    return {
        "sweep": title,
        "planned_seconds": plan["seconds"],
        "seconds": real,
        "factor": max(real, plan["seconds"]) / min(real, plan["seconds"]),
        "planned_memory_mb": plan["train_memory_mb"],
        "memory_mb": max(peaks),
        "planned_epochs": plan["epochs"],
        "epochs": sum(trial.epoch for trial in trials_done),
        "time_factor": plan["time_factor"],
    }


def call(folder: str, *arguments: str) -> str:
    done = subprocess.run([SWEEP, *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"sweep {' '.join(arguments)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    for number in range(given.sweeps):
        rows.append(compare(number, given.photos))
        print(json.dumps(rows[-1]), flush=True)
        if given.json:
            given.json.write_text(json.dumps(rows, indent=2))
    show(rows)


def show(rows: list[dict[str, Any]]) -> None:
    table = Table("sweep", "planned", "real", "factor", "epochs planned", "real", "MB planned", "real")
    for row in rows:
        numbers = [f"{row['planned_seconds']:.0f} s", f"{row['seconds']:.0f} s", f"{row['factor']:.2f}"]
        numbers += [f"{row[name]:.0f}" for name in ("planned_epochs", "epochs", "planned_memory_mb", "memory_mb")]
        table.add_row(row["sweep"], *numbers)
    Console().print(table)
    factors = [row["factor"] for row in rows]
    within = sum(factor <= AIM for factor in factors)
    print(f"{within} of {len(rows)} within a factor of {AIM}; geometric mean {geometric_mean(factors):.2f}")


if __name__ == "__main__":
    main()
