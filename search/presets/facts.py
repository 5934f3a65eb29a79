"""What a preset looks at: the images and this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from search.runner.machines.capacity import plan_demand
from search.runner.machines.cluster import this_machine
from search.runner.worker import share_resources
from training.contract.specs import Data
from training.data.files.check import check_images
from training.data.load_data import load_data
from training.data.preprocessing.defaults import usual_side
from training.errors import UserError
from training.process.resources import Resources, find_device
from training.recipe import Recipe

FEWEST_VAL = 20  # with fewer validation images, one image is worth more than 5 points of accuracy


@dataclass(frozen=True)
class DataFacts:
    """The images of a data set: their numbers, and the median of their shorter sides in pixels."""

    train_images: int  # in one epoch
    val_images: int
    classes: int
    most: int  # training images of the largest class
    least: int  # and of the smallest
    side: int

    def describe(self) -> str:
        return (
            f"{self.train_images:,} training and {self.val_images:,} validation images in {self.classes:,} classes, "
            f"{self.side:,} pixels on the shorter side"
        )


@dataclass(frozen=True)
class LocalMachine:
    """This machine: its devices, the trials at the same time, and what one trial gets."""

    cpus: int
    gpus: int
    gpu_gib: float  # memory of the smallest GPU; 0 without GPUs
    slots: int
    resources: Resources
    precision: str  # the fastest mode that trains as well as 32-true on this device

    def describe(self) -> str:
        gpus = f"{self.gpus} GPU{'s' * (self.gpus != 1)} of {self.gpu_gib:.0f} GiB" if self.gpus else "no GPU"
        return f"{self.cpus} CPU{'s' * (self.cpus != 1)} and {gpus}"


def read_data(spec: Data, preset: str) -> DataFacts:
    """Count the images."""
    data = load_data(spec)
    check_images(data)
    train, val = spec.epoch_size or len(data.train), len(data.val)
    if val < FEWEST_VAL:
        raise UserError(
            f"--preset={preset}: the data has {len(data.train):,} training and {val:,} validation images, and with fewer "
            f"than {FEWEST_VAL} validation images a search would choose by luck. Add images, or train one recipe with "
            "sweep train."
        )
    counts = np.bincount(data.train.labels, minlength=len(data.classes))
    return DataFacts(train, val, len(data.classes), int(counts.max()), int(counts.min()), usual_side(data.train))


def read_machine(spec: Data, cpus: float | None, gpus: float | None) -> LocalMachine:
    """Return what this machine has; `cpus` and `gpus` are those of one trial, if the user names them."""
    import torch

    node = this_machine()
    if node.gpus:
        node = replace(node, gpus=torch.cuda.device_count())  # the files of devices are not exact on every system
    demand = plan_demand([node], cpus, gpus)
    used = int(node.gpus) if demand.gpus and find_device() == "cuda" else 0
    resources = share_resources(Recipe(data=spec), demand.cpus, demand.gpus if used else 0.0, uses_share=False)
    memory = [torch.cuda.get_device_properties(index).total_memory / 2**30 for index in range(used)]
    can_bf16 = bool(used) and torch.cuda.is_bf16_supported(including_emulation=False)
    precision = "bf16-mixed" if can_bf16 else "16-mixed" if used else "32-true"
    return LocalMachine(
        int(node.cpus), used, min(memory, default=0.0), demand.count_slots([node]), resources, precision
    )
