"""From what a recipe says of its data to images in three parts."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from training.data.digits import load_digits
from training.data.images import ImageData, ImagePart
from training.data.specs import Cifar10, Data, Digits, ImageFolder
from training.data.splits import split_stratified
from training.errors import UserError


def load_data(spec: Data) -> ImageData:
    """Load the data that a recipe names; the split depends on `split_seed` alone.

    Raises:
        UserError: the data is missing, broken, or too small for what is asked.
    """
    data = _load_whole(spec)
    return replace(data, train=_take(data, spec.train_size, spec.split_seed))


@lru_cache(maxsize=2)
def _load_whole(spec: Data) -> ImageData:
    match spec:
        case Digits():
            return load_digits(spec)
        case Cifar10() | ImageFolder():
            raise NotImplementedError(spec.name)


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
