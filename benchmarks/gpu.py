"""What a GPU makes of each technique for speed and memory, and our training beside the same network in a bare loop.

    make gpu                                      # tests marked gpu, then this; PYTHON=... names another interpreter
    PYTHONPATH=. python benchmarks/gpu.py [--images 50000] [--batch 512] [--rounds 2] [--json FILE]

It needs PyTorch, torchvision, Lightning, timm, peft, albumentations, pydantic and ruamel.yaml, but neither the other
libraries of this project nor a network. The images are random, in the form of CIFAR-10, because only speed and memory are
measured. Each line is a training of ResNet-18 without pretraining on 32×32 images; the first epoch is left out. The bare
loop holds all images on the device, normalises each batch, trains with SGD and momentum and does nothing else; rounds are
interleaved. Without a GPU it runs too, to try the script: give it few images, because bfloat16 is slow on most CPUs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torchvision.datasets import CIFAR10

from training.errors import UserError
from training.model.build import build_model
from training.recipe import read_recipe
from training.train import Resources, train

Values = dict[str, Any]
FAST: Values = {"precision": {"mode": "bf16-mixed"}, "channels_last": {"enabled": True}}
VARIANTS: dict[str, Values] = {
    "float32": {"precision": {"float32": "highest"}},
    "TF32": {"precision": {"float32": "high"}},
    "float16 with loss scaling": {"precision": {"mode": "16-mixed"}},
    "bf16": {"precision": {"mode": "bf16-mixed"}},
    "bf16, channels-last": FAST,
    # Not with channels-last: at 32 pixels the last maps of ResNet-18 are 1×1, where inductor fails (PyTorch #171622).
    "bf16, compiled": {"precision": {"mode": "bf16-mixed"}, "compilation": {"backend": "inductor"}},
    "bf16, augmented on the device": {**FAST, "augmentation": {"policy": "affine_colour", "backend": "tensor"}},
    "bf16, activation checkpointing": {**FAST, "activation_checkpointing": {"enabled": True}},
    "8-bit Adam": {"optimizer": {"name": "adam8bit", "lr": 0.001}},
    "batch size auto": {**FAST, "batch_size": "auto"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    machine = torch.cuda.get_device_name() if device == "cuda" else "no GPU"
    print(f"{machine}, torch {torch.__version__}, ResNet-18, {arguments.images:,} images of 32×32")
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), arguments.images)
        common = {
            "data": {"name": "cifar10", "root": folder},
            "preprocessing": {"image_size": 32},
            "backbone": {"name": "resnet18", "weights": "none"},
            "batch_size": arguments.batch,
            "epochs": arguments.epochs,
            "optimizer": {"name": "momentum", "lr": 0.01},
        }
        ratios = compare(common, device, arguments.rounds)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(
            f"our training against a bare loop, bf16: {median(ratios):.2f} × its images/s ({spread}, "
            f"{len(ratios)} rounds)",
            flush=True,
        )
        found = {}
        for name, values in VARIANTS.items():
            found[name] = line = attempt({**common, **values}, device)
            print(f"{name:34} {line if isinstance(line, str) else describe(line)}", flush=True)
    if arguments.json:
        result = {"machine": machine, "torch": torch.__version__, "variants": found, "against_a_bare_loop": ratios}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


def write_images(root: Path, count: int) -> None:
    """Write random images as CIFAR-10's official files, and give torchvision their checksums."""
    folder = root / CIFAR10.base_folder
    folder.mkdir()
    random = np.random.default_rng(0)

    def write(name: str, values: Values) -> str:
        content = pickle.dumps(values)
        (folder / name).write_bytes(content)
        return hashlib.md5(content).hexdigest()

    def batch(name: str, size: int) -> list[str]:
        pixels = random.integers(0, 256, (size, 3072), dtype=np.uint8)
        return [name, write(name, {"data": pixels, "labels": [number % 10 for number in range(size)]})]

    CIFAR10.train_list = [batch(f"data_batch_{number}", count // 5) for number in range(1, 6)]
    CIFAR10.test_list = [batch("test_batch", max(100, count // 50))]
    classes = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    CIFAR10.meta = {**CIFAR10.meta, "md5": write(CIFAR10.meta["filename"], {CIFAR10.meta["key"]: classes})}


def attempt(values: Values, device: str) -> dict[str, float] | str:
    """Return what a training measured, or the sentence of a refusal."""
    try:
        return measure(values, device)
    except UserError as error:
        return f"refused: {error}"


def measure(values: Values, device: str) -> dict[str, float]:
    """Train, and return images/s and times after the first epoch, the peaks of memory in MB, and the batch size."""
    resources = Resources(threads=4, device="cuda" if device == "cuda" else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        outcome = train(read_recipe(values), Path(folder), resources=resources)
        seconds = time.perf_counter() - began
    metrics = [report.metrics for report in outcome.reports]
    later = metrics[1:] or metrics
    peaks = {name: metrics[-1][name] for name in ("peak_memory_mb", "evaluation_memory_mb") if name in metrics[-1]}
    return {
        "images_per_second": median(one["images_per_second"] for one in later),
        "seconds": seconds,
        "batch_size": float(outcome.recipe.batch_size),
        **peaks,
    }


def describe(found: dict[str, float]) -> str:
    peak = found.get("peak_memory_mb")
    memory = "" if peak is None else f", peak {peak:,.0f} MB"
    size, seconds = found["batch_size"], found["seconds"]
    return f"{found['images_per_second']:>9,.0f} images/s{memory}, batch {size:.0f}, {seconds:.0f} s in all"


def compare(common: Values, device: str, rounds: int) -> list[float]:
    """Return our images/s divided by those of a bare loop, for each round."""
    ratios = []
    for _ in range(rounds):
        ours = measure({**common, **FAST}, device)["images_per_second"]
        ratios.append(ours / time_bare_loop(common, device))
    return ratios


def time_bare_loop(common: Values, device: str) -> float:
    """Return the images/s of a bare PyTorch loop after its first epoch."""
    from training.data.load_data import load_data

    recipe = read_recipe(common)
    part = load_data(recipe.data).train
    batch, on_gpu = int(recipe.batch_size), device == "cuda"
    images = torch.from_numpy(np.ascontiguousarray(part.images)).permute(0, 3, 1, 2).to(device)
    labels = torch.from_numpy(part.labels).to(device)
    model = build_model(recipe.backbone, 10, 32).to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    speeds = []
    for _ in range(recipe.epochs):
        began = time.perf_counter()
        order = torch.randperm(len(labels), device=device)
        for chosen in order.split(batch):
            pixels = images[chosen].to(memory_format=torch.channels_last)
            with torch.autocast(device, torch.bfloat16):
                loss = F.cross_entropy(model((pixels.float() / 255 - 0.5) / 0.25), labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        if on_gpu:
            torch.cuda.synchronize()
        speeds.append(len(labels) / (time.perf_counter() - began))
    return median(speeds[1:] or speeds)


if __name__ == "__main__":
    main()
