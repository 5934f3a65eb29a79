"""Our training beside the same network in a bare loop on a GPU; speed and memory of techniques; several trials on one GPU.

    make gpu                                      # tests marked gpu, then this; PYTHON=... names another interpreter
    PYTHONPATH=. python benchmarks/gpu.py [--parts beside,techniques] [--rounds 1] [--small] [--json FILE]

It needs PyTorch, torchvision, Lightning, timm, peft, albumentations, pydantic, ruamel.yaml and platformdirs, and the tests
pytest, pytest-xdist and hypothesis, but neither the other libraries of this project nor a network; with DALI it measures
that too. The images are random, because only speed and memory are measured. The first epoch is left out.

beside      Images a second of ours and of a bare loop, interleaved, with the same model, batches, formats and optimizer.
            The bare loop holds all images on the device, normalises each batch, trains with SGD and momentum and does
            nothing else. Then one step of each: kernels that the host launches, and milliseconds of the GPU.
techniques  Each line is a training of ResNet-18 without pretraining on 32×32 images.
packing     Trainings an hour with 1, 2, 4 and 8 processes that share the GPU; only where it is named, as it takes long.

Without a GPU, `--small` tries the script.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import logging
import pickle
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from typing import Any, Literal
from unittest.mock import patch

import cv2
import lightning.pytorch as pl
import numpy as np
import torch
from torch import nn
from torch.autograd import DeviceType
from torch.multiprocessing import get_context
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torchvision.datasets import CIFAR10

import training.train as training_module
from training.data.load_data import load_data
from training.errors import UserError
from training.model.build import build_model
from training.recipe import read_recipe
from training.score_metrics import PEAKS
from training.train import Resources, train

Values = dict[str, Any]
DEVICE: Literal["cpu", "cuda"] = "cuda" if torch.cuda.is_available() else "cpu"
RESOURCES = Resources(threads=4, workers=8, device=DEVICE)
MOMENTUM: Values = {"name": "momentum", "lr": 0.01}
# bfloat16 is slow on most CPUs.
MIXED: Values = {"precision": {"mode": "bf16-mixed" if DEVICE == "cuda" else "32-true"}}
FAST: Values = {**MIXED, "channels_last": {"enabled": True}}
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


@dataclass(frozen=True)
class Sizes:
    """How much is trained: images of 32×32, photographs, epochs, and images in a batch."""

    images: int = 50_000
    photos: int = 4096
    epochs: int = 8
    batch: int = 512
    photo_batch: int = 128


FIRST_PROFILED, PROFILED = 5, 10  # steps of an epoch
REPEATS = 3
PACKED: dict[str, Values] = {
    "the demo's model": {
        "data": {"name": "digits", "train_size": 200},
        "backbone": {"name": "test_resnet", "weights": "letters"},
    },
    "ResNet-18, 64 px": {
        "data": {"name": "digits"},
        "preprocessing": {"image_size": 64},
        "backbone": {"name": "resnet18", "weights": "none"},
    },
    "ViT-S, 224 px, last": {
        "data": {"name": "digits"},
        "preprocessing": {"image_size": 224},
        "backbone": {"name": "vit_small_patch16_224", "weights": "none"},
        "unfreeze": {"level": "last"},
    },
}
SMALL = Sizes(images=100, photos=40, epochs=2, batch=5, photo_batch=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="beside,techniques")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes = SMALL if arguments.small else Sizes()
    machine = torch.cuda.get_device_name() if DEVICE == "cuda" else "no GPU"
    print(f"{machine}, torch {torch.__version__}", flush=True)
    found: Values = {"machine": machine, "torch": torch.__version__}
    logging.getLogger("training.loop.recorded_passes").addHandler(logging.StreamHandler())
    logging.getLogger("training.loop.recorded_passes").setLevel(logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        small = write_images(Path(folder) / "cifar10", sizes.images)
        for part in arguments.parts.split(","):
            began = time.perf_counter()
            if part == "beside":
                write_photos(Path(folder) / "photos", sizes.photos)
                found[part] = compare(list_cases(small, Path(folder) / "photos", sizes), arguments.rounds)
            elif part == "techniques":
                found[part] = compare_techniques({**small, "epochs": 3, "batch_size": sizes.batch})
            elif part == "packing":
                found[part] = pack()
            print(f"({part}: {time.perf_counter() - began:.0f} s)", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def write_images(root: Path, count: int) -> Values:
    """Write random images as CIFAR-10's official files, and give torchvision their checksums; return a recipe's part."""
    folder = root / CIFAR10.base_folder
    folder.mkdir(parents=True)
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
    return {
        "data": {"name": "cifar10", "root": str(root)},
        "preprocessing": {"image_size": 32},
        "backbone": {"name": "resnet18", "weights": "none"},
        "optimizer": MOMENTUM,
    }


def write_photos(root: Path, count: int) -> None:
    """Write random JPEG files of 256×256 pixels, smooth like photographs, in folders of ten classes."""
    random = np.random.default_rng(0)
    for number in range(10):
        (root / str(number)).mkdir(parents=True, exist_ok=True)

    def write(number: int, small: np.ndarray) -> None:
        cv2.imwrite(str(root / str(number % 10) / f"{number}.jpg"), cv2.resize(small, (256, 256)))

    small = random.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    with ThreadPoolExecutor() as threads:
        list(threads.map(write, range(count), small))


def list_cases(small: Values, photos: Path, sizes: Sizes) -> dict[str, Values]:
    """Return the recipe of each comparison by name."""
    on_device: Values = {"augmentation": {"policy": "none", "backend": "tensor"}}
    few = {**small, **FAST, "epochs": sizes.epochs, "batch_size": sizes.batch}
    large: Values = {
        "data": {"name": "image_folder", "root": str(photos)},
        "preprocessing": {"image_size": 224},
        "epochs": sizes.epochs,
        "batch_size": sizes.photo_batch,
        "optimizer": MOMENTUM,
    }
    resnet50 = {**large, **FAST, "backbone": {"name": "resnet50", "weights": "none"}}
    vit: Values = {**MIXED, "backbone": {"name": "vit_base_patch16_224", "weights": "none"}}
    cases = {
        "ResNet-18, 32 px": {**few, **on_device},
        "ResNet-18, 32 px, last on stored features": {**few, "unfreeze": {"level": "last"}},
        "ResNet-50, 224 px, on the device": {**resnet50, **on_device},
        "ResNet-50, 224 px, by Albumentations": resnet50,
        "ResNet-50, 224 px, by DALI": {**resnet50, "augmentation": {"policy": "none", "backend": "dali"}},
        "ViT-B/16, 224 px": {**large, **vit, **on_device},
    }
    if importlib.util.find_spec("nvidia.dali") is None:
        del cases["ResNet-50, 224 px, by DALI"]
    return cases


def compare(cases: dict[str, Values], rounds: int) -> Values:
    """Print and return the images a second of ours relative to a bare loop's, and what one step of each launches."""
    found: Values = {}
    for name, values in cases.items():
        bare = BareLoop(values)
        pairs = [(measure(values)["images_per_second"], bare.measure()) for _ in range(rounds)]
        ratios = [ours / other for ours, other in pairs]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{name:45} ×{median(ratios):.2f} ({spread}); bare {pairs[-1][1]:,.0f} images/s", flush=True)
        found[name] = {
            "pairs": pairs,
            "a step of ours": profile_ours(values),
            "a step of the bare loop": bare.profile(),
        }
        for step in ("a step of ours", "a step of the bare loop"):
            print(f"    {step}: {found[name][step]}", flush=True)
    return found


def attempt(values: Values) -> dict[str, float] | str:
    """Return what a training measured, or the sentence of a refusal."""
    try:
        return measure(values)
    except UserError as error:
        return f"refused: {error}"


def measure(values: Values, resources: Resources = RESOURCES) -> dict[str, float]:
    """Train, and return images/s and times after the first epoch, the peaks of memory in MB, and the batch size."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        outcome = train(read_recipe(values), Path(folder), resources=resources)
        seconds = time.perf_counter() - began
    metrics = [report.metrics for report in outcome.reports]
    found = {name: metrics[-1][name] for name in PEAKS if name in metrics[-1]}
    found["images_per_second"] = median(one["images_per_second"] for one in metrics[1:] or metrics)
    return {**found, "seconds": seconds, "batch_size": float(outcome.recipe.batch_size)}


class BareLoop:
    """The steps that anyone would write, with all images, or the features of the frozen part, on the device."""

    def __init__(self, values: Values) -> None:
        recipe = read_recipe(values)
        data = load_data(recipe.data)
        side, self.batch = recipe.preprocessing.side, int(recipe.batch_size)
        layout = torch.channels_last if recipe.channels_last.enabled else torch.contiguous_format
        model = build_model(recipe.backbone, len(data.classes), side).train().to(DEVICE)
        model.to(memory_format=layout)  # type: ignore[call-overload]
        self.labels = torch.from_numpy(data.train.labels).to(DEVICE)
        pixels = np.stack([cv2.resize(np.asarray(image), (side, side)) for image in data.train.images])
        self.inputs = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().to(DEVICE)
        if list(recipe.unfreeze.levels) == ["last"]:
            model.eval()
            with torch.no_grad(), self._autocast():
                found = [self._features(model, part) for part in self.inputs.split(self.batch)]
            self.inputs, model = torch.cat(found), model.get_classifier()  # type: ignore[operator]
        self.layout, self.model = layout, model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda")

    def _features(self, model: nn.Module, images: torch.Tensor) -> torch.Tensor:
        return model.forward_head(model.forward_features(normalise(images)), pre_logits=True)  # type: ignore[operator]

    def epoch(self) -> Iterator[None]:
        for chosen in torch.randperm(len(self.labels), device=DEVICE).split(self.batch):
            inputs = self.inputs[chosen]
            if inputs.ndim == 4:
                inputs = normalise(inputs.to(memory_format=self.layout))
            with self._autocast():
                loss = F.cross_entropy(self.model(inputs), self.labels[chosen])
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            yield

    def measure(self) -> float:
        """Return the images/s of the second of two epochs."""
        for _ in range(2):
            began = time.perf_counter()
            for _ in self.epoch():
                pass
            wait()
        return len(self.labels) / (time.perf_counter() - began)

    def profile(self) -> str:
        """Describe some steps in the middle of an epoch."""
        recorder = StepProfile()
        for number, _ in enumerate(self.epoch()):
            recorder.see(number)
        return recorder.found


def normalise(images: torch.Tensor) -> torch.Tensor:
    return (images.float() / 255 - 0.5) / 0.25


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


class StepProfile(pl.Callback):
    """Counts what the host launches in some steps of the last epoch, and how long the GPU takes for it."""

    def __init__(self) -> None:
        self.found, self.profile = "too few steps", None

    def see(self, number: int) -> None:
        """To be called at the end of each step."""
        if number == FIRST_PROFILED:
            wait()
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if DEVICE == "cuda" else [])]
            self.profile = profile(activities=activities).__enter__()
        elif number == FIRST_PROFILED + PROFILED and self.profile is not None:
            wait()
            self.profile.__exit__(None, None, None)
            self.found, self.profile = describe_steps(self.profile), None

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: object, outputs: object, batch: object, index: int
    ) -> None:
        if trainer.current_epoch == (trainer.max_epochs or 0) - 1:
            self.see(index)


def describe_steps(recorded: profile) -> str:
    averages = recorded.key_averages()
    kinds = {"kernels": "LaunchKernel", "graphs": "GraphLaunch", "copies and fills": "Mem"}
    counts = {
        kind: sum(one.count for one in averages if one.key.startswith("cu") and part in one.key) / PROFILED
        for kind, part in kinds.items()
    }
    # The host's events have the time of the kernels that they launch once more.
    kernels = (one for one in averages if one.device_type == DeviceType.CUDA)
    gpu = sum(one.self_device_time_total for one in kernels) / PROFILED / 1000
    return ", ".join(f"{count:.0f} {kind}" for kind, count in counts.items()) + f", {gpu:.2f} ms on the GPU"


def profile_ours(values: Values) -> str:
    """Describe some steps of our training."""
    recorder, make = StepProfile(), training_module.make_trainer
    with patch.object(
        training_module,
        "make_trainer",
        lambda classifier, callbacks, **options: make(classifier, [recorder, *callbacks], **options),
    ):
        measure(values)
    return recorder.found


def compare_techniques(common: Values) -> Values:
    """Print and return the speed and the memory of each variant."""
    found: Values = {}
    for name, values in VARIANTS.items():
        found[name] = line = attempt({**common, **values})
        print(f"{name:34} {line if isinstance(line, str) else describe(line)}", flush=True)
    return found


def describe(found: dict[str, float]) -> str:
    peak = found.get("peak_memory_mb")
    memory = "" if peak is None else f", peak {peak:,.0f} MB"
    size, seconds = found["batch_size"], found["seconds"]
    return f"{found['images_per_second']:>9,.0f} images/s{memory}, batch {size:.0f}, {seconds:.0f} s in all"


def pack() -> Values:
    """Print and return the trainings an hour with several processes that share one GPU, for each packed recipe."""
    found: Values = {}
    for name, values in PACKED.items():
        found[name] = {count: time_together(values, count) for count in (1, 2, 4, 8)}
        line = ", ".join(f"{count}: {hourly:,.0f}" for count, hourly in found[name].items())
        print(f"{name:34} trainings an hour by processes: {line}", flush=True)
    return found


def time_together(values: Values, processes: int) -> float:
    """Return the trainings an hour of some processes that train a recipe at the same time, one after another each."""
    context = get_context("spawn")
    ready, started = context.Barrier(processes + 1), []
    for _ in range(processes):
        started.append(context.Process(target=train_repeatedly, args=(values, 1 / processes, ready)))
        started[-1].start()
    ready.wait()
    began = time.perf_counter()
    for process in started:
        process.join()
    if any(process.exitcode for process in started):
        return 0.0
    return 3600 * processes * REPEATS / (time.perf_counter() - began)


def train_repeatedly(values: Values, share: float, ready: Barrier) -> None:
    resources = Resources(threads=1, device=RESOURCES.device, gpu_share=share)
    values = {**values, "epochs": 9, "optimizer": MOMENTUM}
    measure(values, resources)  # what is loaded once for all trials of a process
    ready.wait()
    for _ in range(REPEATS):
        measure(values, resources)


if __name__ == "__main__":
    main()
