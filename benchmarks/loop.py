"""The time of our epoch, and of plain Lightning's, relative to a bare PyTorch loop: train, validate, keep the best weights.

    python benchmarks/loop.py [--rounds 5] [--json FILE] [--timm-script FILE]

The bare loop has its images as normalised tensors in memory, evaluates nothing but the accuracy, and writes the weights
when the accuracy is the best so far. Ours is `training.train` with its defaults: it also measures the loss, the other
metrics, and the accuracy on training images, and writes a checkpoint to resume from. Both train the same model on the same
images with the same optimizer, in one thread of one process, alternately. Plain Lightning is as its documentation
teaches: `Trainer` with `ModelCheckpoint`, on the tensors of the bare loop. `--timm-script` adds timm's training script
(`train.py` in its repository; it is not in timm's package), on the same images as PNG files, without augmentation. The
first epoch does not count. CPU seconds hold on a busy machine too; wall-clock seconds have the writes of checkpoints. Needs
no network.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from training.data.load_data import load_data
from training.data.pipelines.loaders import make_loaders
from training.model.build import build_model
from training.recipe import Recipe, read_recipe
from training.resolve import resolve_recipe
from training.train import train

EPOCHS = 4
MOMENTUM = 0.9
CASES: dict[str, dict[str, Any]] = {
    "the demo, 200 images": {
        "data": {"name": "digits", "train_size": 200},
        "backbone": {"name": "test_resnet", "weights": "letters"},
    },
    "ResNet-18, 32 px, 512 images": {
        "data": {"name": "digits", "train_size": 512},
        "preprocessing": {"image_size": 32},
        "backbone": {"source": "timm", "name": "resnet18", "weights": "none"},
    },
    "ResNet-18, 64 px, 256 images": {
        "data": {"name": "digits", "train_size": 256},
        "preprocessing": {"image_size": 64},
        "backbone": {"source": "timm", "name": "resnet18", "weights": "none"},
    },
    "ViT-tiny, 32 px, 256 images": {
        "data": {"name": "digits", "train_size": 256},
        "preprocessing": {"image_size": 32},
        "backbone": {"source": "timm", "name": "vit_tiny_patch16_224", "weights": "none"},
    },
}


@dataclass(frozen=True)
class Epoch:
    """The seconds of one epoch with its validation and its checkpoint."""

    wall: float
    cpu: float


class Clock:
    """Measures the time between its calls."""

    def __init__(self) -> None:
        self.epochs: list[Epoch] = []
        self.last = self.read()

    def read(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def __call__(self, report: object = None) -> bool:
        now = self.read()
        self.epochs.append(Epoch(now[0] - self.last[0], now[1] - self.last[1]))
        self.last = now
        return True


def make_recipe(case: dict[str, Any], seed: int) -> Recipe:
    optimizer = {"name": "momentum", "lr": 0.01, "momentum": MOMENTUM}
    return read_recipe({**case, "epochs": EPOCHS, "batch_size": 32, "optimizer": optimizer, "seed": seed})


def time_ours(recipe: Recipe) -> list[Epoch]:
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        train(recipe, Path(folder), on_report=clock)
    return clock.epochs[1:]


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_parts(recipe: Recipe) -> tuple[torch.nn.Module, DataLoader[Any], DataLoader[Any]]:
    """Return the model, and loaders of training and validation images that are tensors in memory."""
    data = load_data(recipe.data)
    recipe = resolve_recipe(recipe, data, "cpu")
    loaders = make_loaders(data, recipe, workers=0)
    parts = [TensorDataset(*map(torch.cat, zip(*loader, strict=True))) for loader in (loaders.train, loaders.val)]
    loaders.close()
    model = build_model(recipe.backbone, len(data.classes), recipe.preprocessing.image_size)
    return model, DataLoader(parts[0], recipe.batch_size, shuffle=True), DataLoader(parts[1], 64)


class Classifier(pl.LightningModule):
    def __init__(self, model: torch.nn.Module, rate: float) -> None:
        super().__init__()
        self.model, self.rate = model, rate

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = cross_entropy(self.model(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_accuracy", (self.model(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self.rate, momentum=MOMENTUM)


class EpochClock(pl.Callback):
    def on_train_start(self, *_: Any) -> None:
        self.clock = Clock()

    def on_train_epoch_end(self, *_: Any) -> None:
        self.clock()


@one_thread()
def time_lightning(recipe: Recipe) -> list[Epoch]:
    model, training, validation = make_parts(recipe)
    with tempfile.TemporaryDirectory() as folder:
        clock = EpochClock()
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=EPOCHS,
            default_root_dir=folder,
            callbacks=[clock, ModelCheckpoint(monitor="val_accuracy", mode="max")],
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(Classifier(model, recipe.optimizer.lr), training, validation)
    return clock.clock.epochs[1:]


def write_images(recipe: Recipe, folder: Path) -> None:
    """Write the images as PNG files, one folder per class, which is what timm's script reads."""
    data = load_data(recipe.data)
    for name, part in (("train", data.train), ("validation", data.val)):
        for number, (image, label) in enumerate(zip(part.images, part.labels, strict=True)):
            path = folder / name / data.classes[label] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)


@one_thread()
def time_timm(recipe: Recipe, script: Path) -> list[Epoch]:
    clock = Clock()
    size = resolve_recipe(recipe, load_data(recipe.data), "cpu").preprocessing.image_size
    options = {
        "model": recipe.backbone.name,
        "num-classes": 10,
        "input-size": ["3", str(size), str(size)],
        "epochs": EPOCHS,
        "batch-size": recipe.batch_size,
        "validation-batch-size": 64,
        "opt": "momentum",
        "momentum": MOMENTUM,
        "lr": recipe.optimizer.lr,
        "sched": "step",
        "decay-epochs": 100,
        "warmup-epochs": 0,
        "cooldown-epochs": 0,
        "smoothing": 0,
        "checkpoint-hist": 1,
        "workers": 0,
    }
    if recipe.backbone.name.startswith("vit"):  # the others take any size
        options["model-kwargs"] = f"img_size={size}"
    with tempfile.TemporaryDirectory() as folder:
        write_images(recipe, Path(folder))
        words = [script.name, folder, "--device", "cpu", "--no-aug", "--output", folder]
        for name, value in options.items():
            words += [f"--{name}", *(value if isinstance(value, list) else [str(value)])]
        # It calls this at the end of an epoch, before its checkpoint; so a second checkpoint counts, the last does not.
        with patch.object(sys, "argv", words), patch("timm.utils.update_summary", lambda *_, **__: clock()):
            runpy.run_path(str(script), run_name="__main__")
    return clock.epochs[1:]


@one_thread()
def time_bare(recipe: Recipe) -> list[Epoch]:
    model, training, validation = make_parts(recipe)
    optimizer = torch.optim.SGD(model.parameters(), recipe.optimizer.lr, momentum=MOMENTUM)
    best, clock = -1.0, Clock()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(EPOCHS):
            model.train()
            for images, labels in training:
                loss = cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            accuracy = rate(model, validation)
            if accuracy > best:
                best = accuracy
                torch.save(model.state_dict(), Path(folder) / "best.pt")
            clock()
    return clock.epochs[1:]


@torch.inference_mode()
def rate(model: torch.nn.Module, validation: DataLoader[Any]) -> float:
    model.eval()
    right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in validation)
    return right / len(validation.dataset)  # type: ignore[arg-type]


Contenders = dict[str, Callable[[Recipe], list[Epoch]]]


def measure(case: dict[str, Any], contenders: Contenders, rounds: int) -> dict[str, Any]:
    """Return the seconds of a bare epoch, and the ratios of the others to it: for each kind of seconds, one a round."""
    found: dict[str, Any] = {name: {"wall": [], "cpu": []} for name in contenders}
    seconds = []
    for seed in range(rounds):
        recipe = make_recipe(case, seed)
        bare = time_bare(recipe)
        seconds.append(median(epoch.wall for epoch in bare))
        for name, time_epochs in contenders.items():
            epochs = time_epochs(recipe)
            for kind, ratios in found[name].items():
                own, base = (median(getattr(epoch, kind) for epoch in each) for each in (epochs, bare))
                ratios.append(own / base)
    return {"seconds": median(seconds), **found}


def describe(ratios: list[float]) -> str:
    return f"×{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--timm-script", type=Path, metavar="FILE", help="train.py of timm's repository")
    arguments = parser.parse_args()
    contenders: Contenders = {"ours": time_ours, "plain Lightning": time_lightning}
    if arguments.timm_script:
        contenders["timm's script"] = partial(time_timm, script=arguments.timm_script)
    found = {}
    columns = [f"{name}, {kind}" for name in contenders for kind in ("wall clock", "CPU")]
    table = Table("case", "bare epoch", *columns, title="An epoch, median and range of the rounds")
    for name, case in CASES.items():
        time_ours(make_recipe(case, 0))  # a process trains its first recipe more slowly
        result = found[name] = measure(case, contenders, arguments.rounds)
        cells = [describe(ratios) for way in contenders for ratios in result[way].values()]
        table.add_row(name, f"{result['seconds']:.2f} s", *cells)
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
