"""From what a recipe says of its data to images in three parts."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache

import numpy as np

from training.data.cifar10 import load_cifar10
from training.data.digits import load_digits
from training.data.image_folder import load_image_folder
from training.data.images import ImageData, ImagePart
from training.data.specs import Cifar10, Data, Digits, ImageFolder
from training.data.splits import split_stratified
from training.errors import UserError


def load_data(spec: Data) -> ImageData:
    """Load the data that a recipe names; the split depends on `split_seed` alone.

    Raises:
        UserError: the data is missing, broken, or too small for what is asked.
    """
    whole = absolute(spec).model_copy(update={"train_size": None, "epoch_size": None})
    # A folder is listed each time, as it may have changed; the others stay in the process from trial to trial.
    data = load_image_folder(spec) if isinstance(spec, ImageFolder) else _load_once(whole)
    return replace(data, train=_take(data, spec.train_size, spec.split_seed))


def absolute(spec: Data) -> Data:
    """Return the spec with its root made absolute, so that it means the same in every process."""
    if isinstance(spec, Digits):
        return spec
    return spec.model_copy(update={"root": os.path.abspath(os.path.expanduser(spec.root))})


@lru_cache(maxsize=1)
def _load_once(spec: Data) -> ImageData:
    return load_cifar10(spec) if isinstance(spec, Cifar10) else load_digits(Digits(split_seed=spec.split_seed))


def _take(data: ImageData, train_size: int | None, seed: int) -> ImagePart:
    if train_size is None or train_size == len(data.train):
        return data.train
    if train_size > len(data.train):
        raise UserError(
            f"data.train_size={train_size}: the training part of {data.name} has only {len(data.train)} images. "
            "Lower it, or leave it out to train on all of them."
        )
    class_count = len(np.unique(data.train.labels))
    if train_size < class_count:
        raise UserError(
            f"data.train_size={train_size}: {data.name} has {class_count} classes, and each needs an image to learn "
            f"from. Raise it to at least {class_count}."
        )
    return data.train.select(split_stratified(data.train.labels, (train_size,), seed)[0])
