"""The rules of the presets, and the facts on which they decide. docs/presets.md has them as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from search.runner.machines.capacity import plan_demand
from search.runner.machines.cluster import this_machine
from search.runner.machines.preparation import load_checked
from search.runner.worker import share_resources
from spaces.reading.document import did_you_mean
from training.contract.specs import Backbone, Data
from training.data.load_data import load_data
from training.data.preprocessing.defaults import USUAL_SIDE, usual_side
from training.errors import UserError
from training.process.resources import Resources, find_device, has_bfloat16
from training.recipe import Recipe

FEWEST_TESTED = 1000  # images from which a part is kept for a test that nobody asked for
FEW_IMAGES = 2000  # of the training part
FEWEST_VAL = 10  # with fewer validation images, one image is worth more than 10 points of accuracy


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


def choose_test(spec: Data) -> Data:
    """Keep no images for a test where they are few and no test part was asked for: each one more trains a better model."""
    if "split_test" in spec.model_fields_set:
        return spec
    without = spec.model_copy(update={"split_test": False})
    data = load_data(without)
    return spec if len(data.test) or len(data.train) + len(data.val) >= FEWEST_TESTED else without


def read_data(spec: Data, preset: str) -> DataFacts:
    """Count the images."""
    data = load_checked(spec)
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
    precision = "bf16-mixed" if has_bfloat16("cuda" if used else "cpu") else "16-mixed" if used else "32-true"
    return LocalMachine(
        int(node.cpus), used, min(memory, default=0.0), demand.count_slots([node]), resources, precision
    )


@dataclass(frozen=True)
class Preset:
    """One preset. The time is used unless the user gives another one."""

    name: str
    level: int  # a higher one searches more techniques, and begins with a larger backbone
    seconds: float
    steps: int  # optimizer steps of a full training
    epochs: tuple[int, int]
    trials: tuple[int, int]


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("fast", 0, 600, 300, (3, 15), (6, 12)),
        Preset("good", 1, 3600, 1000, (5, 40), (10, 40)),
        Preset("best", 2, 6 * 3600, 3000, (10, 80), (16, 120)),
    )
}

# From small to large; each takes two to ten times as long as the one before it, and is more accurate on ImageNet.
LADDER = ("mobilenetv3_large_100", "convnext_nano", "convnext_tiny", "convnext_small")
EMBEDDED = Backbone(name="test_resnet", weights="letters")  # needs no download

LARGE_GPU_GIB = 12.0
SMALL_SIDE = 96  # images with a shorter side below this many pixels are called small
ENLARGED, MOST_ENLARGED = 4, 6  # times the side of an image; the second where there is time
LEAST_SIDE, MOST_LETTERS_SIDE, SIDE_STEP = 64, 64, 32  # pixels
LEAST_TUNED_SIDE = 96  # with 64, even the probe on 96 is better (docs/benchmarks.md, "Minutes")
LEAST_BATCH, MOST_BATCH = 8, 64
MOST_ON_CPU = 32  # images of a batch with pretrained weights: a larger one is no quicker there, and makes fewer steps
STEPS_PER_EPOCH = 8  # that an epoch has at least, if the images are enough for it
STEPS_WITH_WEIGHTS = 16  # with pretrained weights, as few epochs follow
ENOUGH_STEPS = 300  # in all, with few images and pretrained weights: twice as many gain nothing
IMBALANCE = 5  # the largest class has so many times the images of the smallest one
START_SECONDS = 20.0  # until the workers have imported the libraries
USED_SHARE = 0.8  # of the time after it; the rest is for trials of unequal length
STOPPED_SHARE = 0.5  # of its epochs that a trial trains, as early stopping ends many of them


def find_preset(name: str) -> Preset:
    """Return a preset by its name."""
    if name not in PRESETS:
        raise UserError(
            f"--preset={name}: there is no such preset.{did_you_mean(name, PRESETS)} Choose {', '.join(PRESETS)}."
        )
    return PRESETS[name]


def first_rung(preset: Preset, machine: LocalMachine) -> int:
    """Return the place on the ladder of the largest backbone for this preset and device."""
    step = -1 if not machine.gpus else 0 if machine.gpu_gib < LARGE_GPU_GIB else 1
    return max(0, preset.level + step)


def choose_batch(data: DataFacts, steps: int = STEPS_PER_EPOCH, most: int = MOST_BATCH) -> int:
    """Return a power of two that gives an epoch some steps."""
    fitting = max(LEAST_BATCH, min(most, data.train_images // steps))
    return 1 << (fitting.bit_length() - 1)


def choose_epochs(preset: Preset, data: DataFacts, batch: int, has_weights: bool = False) -> int:
    """Return the epochs for the steps of the preset, within its limits; fewer with few images and pretrained weights."""
    low, high = preset.epochs
    steps = min(preset.steps, ENOUGH_STEPS) if has_weights and data.train_images < FEW_IMAGES else preset.steps
    return min(high, max(low, math.ceil(steps * batch / data.train_images)))


def choose_side(data: DataFacts, backbone: Backbone, weights_side: int | None, enlarged: int = ENLARGED) -> int:
    """Return the largest side of the model's input, in pixels; `weights_side` is that of the pretrained weights, if any.

    Small images are enlarged, because pretrained filters see little in them.
    """
    if weights_side is not None:
        return min(weights_side, max(LEAST_SIDE, enlarged * data.side // SIDE_STEP * SIDE_STEP))
    most = MOST_LETTERS_SIDE if backbone.weights == "letters" else USUAL_SIDE
    return min(most, max(SIDE_STEP, data.side // SIDE_STEP * SIDE_STEP))
