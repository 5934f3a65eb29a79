"""Splits that keep groups whole, each class in proportion as far as that allows (greedy, as StratifiedGroupKFold)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def split_groups(labels: np.ndarray, groups: Sequence[str], shares: tuple[float, ...], seed: int) -> list[np.ndarray]:
    """Draw disjoint sets of positions that hold about these shares of each class; what is left comes last.

    No group is in two of them, and the last keeps an image of every class. Each is in ascending order.
    """
    names, group = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    counts = np.zeros((len(names), labels.max() + 1))
    np.add.at(counts, (group, labels), 1)
    wanted = np.outer([*shares, 1 - sum(shares)], counts.sum(axis=0))
    held = np.zeros_like(wanted)
    owner = np.empty(len(names), int)
    # The largest first, when there is most room for them; alike ones in an order drawn from the seed.
    order = np.random.default_rng(seed).permutation(len(names))
    for name in order[np.argsort(-counts[order].sum(axis=1), kind="stable")]:
        owner[name] = _choose_part(counts[name], held, wanted)
        held[owner[name]] += counts[name]
    return [np.flatnonzero(owner[group] == part) for part in range(len(wanted))]


def _choose_part(count: np.ndarray, held: np.ndarray, wanted: np.ndarray) -> int:
    """The part that lacks most of what this group has; the last one, while a class of it is not there yet."""
    if (held[-1][count > 0] == 0).any():
        return len(held) - 1
    lacking = np.maximum(wanted - held, 0) / np.maximum(wanted, 1e-9)
    too_much = np.maximum(held + count - wanted, 0).sum(axis=1) / count.sum()
    return int(np.argmax((lacking * count).sum(axis=1) / count.sum() - too_much))
