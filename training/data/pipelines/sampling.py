"""The order of training images: each epoch is a window of an endless stream of passes; there is no state to restore."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from torch.utils.data import Sampler

from training.data.pipelines.augmentation_draws import draw_uniform
from training.distributed.rank import Rank

Draw = tuple[int, int]  # the position of the image and the seed of its augmentation

_ORDER, _AUGMENTATION, _CLASSES = 0, 1, 2  # separate streams of random numbers from one seed


class EpochSampler(Sampler[Draw]):
    """Yields the draws of one epoch: positions `epoch · size` to `(epoch + 1) · size` of the stream.

    Each pass over the images is a new permutation. With `labels` the stream is balanced: each round contains one image of
    each class in random order, and each class has separate passes. All draws depend on (seed, epoch) alone, so a resumed
    training gets the same batches. Lightning calls `set_epoch` at the start of each epoch.
    """

    def __init__(self, image_count: int, epoch_size: int | None, seed: int, labels: np.ndarray | None = None) -> None:
        self.image_count = image_count
        self.epoch_size = epoch_size or image_count
        self.seed = seed
        self.epoch = 0
        self.members = [] if labels is None else [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.epoch_size

    def __iter__(self) -> Iterator[Draw]:
        seeds = np.random.SeedSequence([self.seed, _AUGMENTATION, self.epoch])
        draws = seeds.generate_state(self.epoch_size, np.uint64)
        start = self.epoch * self.epoch_size
        positions = self._balanced(start) if self.members else self._window(start, self.epoch_size, self.image_count)
        return iter(list(zip(positions.tolist(), draws.tolist(), strict=True)))

    def _window(self, start: int, size: int, count: int, *stream: int) -> np.ndarray:
        """Return places `start` to `start + size` of an endless stream of permutations of `count` items."""
        first, last = start // count, (start + size - 1) // count
        passes = [
            np.random.default_rng([self.seed, _ORDER, number, *stream]).permutation(count)
            for number in range(first, last + 1)
        ]
        skipped = start - first * count
        return np.concatenate(passes)[skipped : skipped + size]

    def _balanced(self, start: int) -> np.ndarray:
        count = len(self.members)
        first, last = start // count, (start + self.epoch_size - 1) // count
        rounds = last - first + 1
        images = np.stack(
            [own[self._window(first, rounds, len(own), _CLASSES, label)] for label, own in enumerate(self.members)],
            axis=1,
        )
        base = np.random.SeedSequence([self.seed, _CLASSES]).generate_state(1, np.uint64)
        order = draw_uniform(base + np.arange(first, last + 1, dtype=np.uint64), count).argsort(axis=1)
        shuffled = np.take_along_axis(images, order, axis=1).ravel()
        return shuffled[start - first * count :][: self.epoch_size]


class ShareSampler(Sampler[Draw]):
    """Yields one rank's share of each batch. All ranks together draw the same batches as a single device."""

    def __init__(self, whole: EpochSampler, batch_sizes: tuple[int, ...], rank: Rank) -> None:
        self.whole, self.batch_sizes, self.rank = whole, batch_sizes, rank

    def set_epoch(self, epoch: int) -> None:
        self.whole.set_epoch(epoch)

    def __len__(self) -> int:
        return sum(len(self.rank.share(range(size))) for size in self.batch_sizes)

    def __iter__(self) -> Iterator[Draw]:
        draws = iter(self.whole)
        for size in self.batch_sizes:
            yield from self.rank.share(list(islice(draws, size)))
