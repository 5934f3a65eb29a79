"""Stratified splits: every class is in every part, in proportion. The seed of the data fixes them."""

from __future__ import annotations

import numpy as np


def split_stratified(labels: np.ndarray, sizes: tuple[int, ...], seed: int) -> list[np.ndarray]:
    """Draw disjoint sets of positions of the given sizes; the last set contains the rest. Each is in ascending order.

    Every class gets at least one place in each set, so it needs at least one image more than there are sizes.
    """
    orders = [np.random.default_rng([seed, label]).permutation(of) for label, of in _by_class(labels)]
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


def _by_class(labels: np.ndarray) -> list[tuple[int, np.ndarray]]:
    return [(int(label), np.flatnonzero(labels == label)) for label in np.unique(labels)]
