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
    each class in random order, and each class has separate passes. Only the epochs from `balanced_from` on are balanced.
    With `repeats`, each image comes so many times in a row, with another seed each time. All draws depend on (seed, epoch)
    alone, so a resumed training gets the same batches. Lightning calls `set_epoch` at the start of each epoch.
    """

    def __init__(
        self,
        image_count: int,
        epoch_size: int | None,
        seed: int,
        labels: np.ndarray | None = None,
        repeats: int = 1,
        balanced_from: int = 0,
    ) -> None:
        self.image_count = image_count
        self.epoch_size = epoch_size or image_count
        self.seed, self.repeats = seed, repeats
        self.epoch, self.balanced_from = 0, balanced_from
        self.members = [] if labels is None else [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.epoch_size

    def __iter__(self) -> Iterator[Draw]:
        seeds = np.random.SeedSequence([self.seed, _AUGMENTATION, self.epoch])
        draws = seeds.generate_state(self.epoch_size, np.uint64)
        start = self.epoch * self.epoch_size
        first, skipped = divmod(start, self.repeats)
        count = -(-(skipped + self.epoch_size) // self.repeats)
        is_balanced = bool(self.members) and self.epoch >= self.balanced_from
        images = self._balanced(first, count) if is_balanced else self._window(first, count, self.image_count)
        positions = np.repeat(images, self.repeats)[skipped:][: self.epoch_size]
        return zip(positions.tolist(), draws.tolist(), strict=True)

    def _window(self, start: int, size: int, count: int, *stream: int) -> np.ndarray:
        """Return places `start` to `start + size` of an endless stream of permutations of `count` items."""
        first, last = start // count, (start + size - 1) // count
        passes = [
            np.random.default_rng([self.seed, _ORDER, number, *stream]).permutation(count)
            for number in range(first, last + 1)
        ]
        skipped = start - first * count
        return np.concatenate(passes)[skipped : skipped + size]

    def _balanced(self, start: int, size: int) -> np.ndarray:
        count = len(self.members)
        first, last = start // count, (start + size - 1) // count
        rounds = last - first + 1
        images = [
            class_members[self._window(first, rounds, len(class_members), _CLASSES, label)]
            for label, class_members in enumerate(self.members)
        ]
        base = np.random.SeedSequence([self.seed, _CLASSES]).generate_state(1, np.uint64)
        order = draw_uniform(base + np.arange(first, last + 1, dtype=np.uint64), count).argsort(axis=1)
        shuffled = np.take_along_axis(np.stack(images, axis=1), order, axis=1).ravel()
        return shuffled[start - first * count :][:size]


class ShareBatches(Sampler[list[Draw]]):
    """Yields one rank's share of each batch. All ranks together draw the same batches as a single device."""

    def __init__(self, sampler: EpochSampler, batch_sizes: tuple[int, ...], rank: Rank) -> None:
        self.sampler, self.batch_sizes, self.rank = sampler, batch_sizes, rank  # Lightning calls sampler.set_epoch

    def __len__(self) -> int:
        return len(self.batch_sizes)

    def __iter__(self) -> Iterator[list[Draw]]:
        draws = iter(self.sampler)
        for size in self.batch_sizes:
            yield list(self.rank.share(list(islice(draws, size))))
