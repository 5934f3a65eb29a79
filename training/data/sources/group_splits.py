"""Split groups without dividing them, stratified as far as possible (greedy, like StratifiedGroupKFold)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def split_groups(labels: np.ndarray, groups: Sequence[str], shares: tuple[float, ...], seed: int) -> list[np.ndarray]:
    """Draw disjoint sets of positions with about these shares of each class; the last set contains the rest.

    No group is in two sets, and the last set has an image of every class.

    Args:
        labels: The class of each image (N,).
        groups: The group of each image (N).
        shares: The share of each set except the last.
        seed: The seed of the order in which groups of the same size are placed.

    Returns:
        The positions of each set, in ascending order.
    """
    names, group = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    counts = np.zeros((len(names), labels.max() + 1))
    np.add.at(counts, (group, labels), 1)
    wanted = np.outer([*shares, 1 - sum(shares)], counts.sum(axis=0))
    held = np.zeros_like(wanted)
    owner = np.empty(len(names), int)
    # Place the largest groups first, while there is most room; the seed decides the order of groups of the same size.
    order = np.random.default_rng(seed).permutation(len(names))
    for name in order[np.argsort(-counts[order].sum(axis=1), kind="stable")]:
        owner[name] = _choose_part(counts[name], held, wanted)
        held[owner[name]] += counts[name]
    return [np.flatnonzero(owner[group] == part) for part in range(len(wanted))]


def _choose_part(count: np.ndarray, held: np.ndarray, wanted: np.ndarray) -> int:
    """Return the part that lacks most of what this group has, or the last part if it lacks one of the group's classes."""
    if (held[-1][count > 0] == 0).any():
        return len(held) - 1
    lacking = np.maximum(wanted - held, 0) / np.maximum(wanted, 1e-9)
    too_much = np.maximum(held + count - wanted, 0).sum(axis=1) / count.sum()
    return int(np.argmax((lacking * count).sum(axis=1) / count.sum() - too_much))
