"""Stratified splits: every class is in every part, in proportion. The seed of the data fixes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.data.files.images import ImageData
from training.errors import UserError


def split_stratified(labels: np.ndarray, sizes: tuple[int, ...], seed: int) -> list[np.ndarray]:
    """Draw disjoint sets of positions of the given sizes; the last set contains the rest. Each is in ascending order.

    Every class gets at least one place in each set, so it needs at least one image more than there are sizes.
    """
    orders = [
        np.random.default_rng([seed, int(label)]).permutation(np.flatnonzero(labels == label))
        for label in np.unique(labels)
    ]
    parts = []
    for size in sizes:
        counts = allocate(np.array([len(order) for order in orders]), size)
        parts.append(np.sort(np.concatenate([order[:n] for order, n in zip(orders, counts, strict=True)])))
        orders = [order[n:] for order, n in zip(orders, counts, strict=True)]
    return [*parts, np.sort(np.concatenate(orders))]


def allocate(counts: np.ndarray, total: int) -> np.ndarray:
    """Divide `total` places among classes in proportion to their counts (largest remainders), at least one each."""
    quotas = counts * total / counts.sum()
    places = np.maximum(np.floor(quotas).astype(int), 1)
    while places.sum() != total:
        step = 1 if places.sum() < total else -1
        # A class can lose a place only if it keeps one, and gain a place only if it has images left.
        open_to = places < counts if step > 0 else places > 1
        if not open_to.any():
            break
        places[np.argmax(np.where(open_to, (quotas - places) * step, -np.inf))] += step
    return places


def take(data: ImageData, train_size: int | None, seed: int) -> ImageData:
    """Return the data with `train_size` training images, stratified; None means all."""
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
    labels = data.in_order().train.labels
    return replace(data, train=data.train.select(split_stratified(labels, (train_size,), seed)[0]))


def split_groups(labels: np.ndarray, groups: Sequence[str], shares: tuple[float, ...], seed: int) -> list[np.ndarray]:
    """Draw disjoint sets of positions with about these shares of each class (greedy, like StratifiedGroupKFold).

    The last set contains the rest. No group is in two sets, and the last set has an image of every class. The positions
    of a set are in ascending order.

    Args:
        labels: The class of each image (N,).
        groups: The group of each image (N).
        shares: The share of each set except the last.
        seed: The seed of the order in which groups of the same size are placed.
    """
    names, group = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    members = np.split(labels[np.argsort(group, kind="stable")], np.cumsum(np.bincount(group))[:-1])
    totals = np.bincount(labels).astype(float)
    wanted = np.outer([*shares, 1 - sum(shares)], totals)
    held = np.zeros_like(wanted)
    owner = np.empty(len(names), int)
    # Place the largest groups first, while there is most room; the seed decides the order of groups of the same size.
    order = np.random.default_rng(seed).permutation(len(names))
    for name in order[np.argsort(-np.bincount(group)[order], kind="stable")]:
        # One row at a time: a table of all groups and classes takes gigabytes for many of both.
        count = np.bincount(members[name], minlength=len(totals)).astype(float)
        owner[name] = _choose_part(count, held, wanted)
        held[owner[name]] += count
    return [np.flatnonzero(owner[group] == part) for part in range(len(wanted))]


def _choose_part(count: np.ndarray, held: np.ndarray, wanted: np.ndarray) -> int:
    """Return the part that lacks most of what this group has, or the last part if it lacks one of the group's classes."""
    if (held[-1][count > 0] == 0).any():
        return len(held) - 1
    lacking = np.maximum(wanted - held, 0) / np.maximum(wanted, 1e-9)
    too_much = np.maximum(held + count - wanted, 0).sum(axis=1) / count.sum()
    return int(np.argmax((lacking * count).sum(axis=1) / count.sum() - too_much))
