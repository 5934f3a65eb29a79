"""The order of training images: an endless stream of passes, of which each epoch is a window; no state to restore."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler

Draw = tuple[int, int]  # position of the image, seed of its augmentation

_ORDER, _AUGMENTATION = 0, 1  # two streams of random numbers from one seed


class EpochSampler(Sampler[Draw]):
    """Yield the draws of one epoch: positions `epoch · size` to `(epoch + 1) · size` of the stream.

    Each pass over the images is a fresh permutation. Everything follows from (seed, epoch), so that training resumed
    at an epoch sees the batches it would have seen; Lightning calls `set_epoch` at the start of each.
    """

    def __init__(self, image_count: int, epoch_size: int | None, seed: int) -> None:
        self.image_count = image_count
        self.epoch_size = epoch_size or image_count
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.epoch_size

    def __iter__(self) -> Iterator[Draw]:
        seeds = np.random.SeedSequence([self.seed, _AUGMENTATION, self.epoch])
        draws = seeds.generate_state(self.epoch_size, np.uint64)
        return iter(list(zip(self._positions().tolist(), draws.tolist(), strict=True)))

    def _positions(self) -> np.ndarray:
        start = self.epoch * self.epoch_size
        first, last = start // self.image_count, (start + self.epoch_size - 1) // self.image_count
        passes = [
            np.random.default_rng([self.seed, _ORDER, number]).permutation(self.image_count)
            for number in range(first, last + 1)
        ]
        skipped = start - first * self.image_count
        return np.concatenate(passes)[skipped : skipped + self.epoch_size]
