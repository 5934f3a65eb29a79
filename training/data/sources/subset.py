"""A smaller training part with the class proportions of the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from training.data.files.images import ImageData
from training.data.sources.splits import split_stratified
from training.errors import UserError


def take(data: ImageData, train_size: int | None, seed: int) -> ImageData:
    """Return the data with `train_size` training images, stratified; None means all.

    Raises:
        UserError: there are fewer images than `train_size`, or more classes.
    """
    if train_size is None or train_size == len(data.train):
        return data
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
    return replace(data, train=data.train.select(split_stratified(data.train.labels, (train_size,), seed)[0]))
