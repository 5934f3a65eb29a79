"""Stratified splits: every class in every part, in proportion; fixed by the data's own seed."""

from __future__ import annotations

import numpy as np


def split_stratified(labels: np.ndarray, sizes: tuple[int, ...], seed: int) -> list[np.ndarray]:
    """Draw disjoint sets of positions of the given sizes; what is left comes last. Each is in ascending order.

    Every class needs at least one image more than there are sizes. A class gets at least one place in each set.
    """
    orders = [np.random.default_rng([seed, label]).permutation(of) for label, of in _by_class(labels)]
    parts = []
    for size in sizes:
        counts = allocate(np.array([len(order) for order in orders]), size)
        parts.append(np.sort(np.concatenate([order[:n] for order, n in zip(orders, counts, strict=True)])))
        orders = [order[n:] for order, n in zip(orders, counts, strict=True)]
    return [*parts, np.sort(np.concatenate(orders))]


def allocate(counts: np.ndarray, total: int) -> np.ndarray:
    """Share `total` places over classes in proportion to their counts (largest remainders), none left without one."""
    quotas = counts * total / counts.sum()
    places = np.maximum(np.floor(quotas).astype(int), 1)
    while places.sum() != total:
        step = 1 if places.sum() < total else -1
        # Only a class that keeps one place may give, only one that has images left may take.
        open_to = places < counts if step > 0 else places > 1
        if not open_to.any():
            break
        places[np.argmax(np.where(open_to, (quotas - places) * step, -np.inf))] += step
    return places


def _by_class(labels: np.ndarray) -> list[tuple[int, np.ndarray]]:
    return [(int(label), np.flatnonzero(labels == label)) for label in np.unique(labels)]
