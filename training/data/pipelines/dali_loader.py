"""DALI as a loader: batches in the sampler's order, one made ahead; memory does not grow with the data."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import numpy as np
import torch
from torch.utils.data import BatchSampler

from training.data.files.decode import printable, read_image
from training.data.files.encoded import read_encoded
from training.data.files.images import ImageFiles, ImagePart
from training.data.pipelines.dali_pipeline import make_inputs, make_pipeline
from training.data.pipelines.sampling import Draw, ShareSampler
from training.data.preprocessing.transform import is_fitting
from training.errors import UserError
from training.recipe import Recipe

Batch = tuple[torch.Tensor, torch.Tensor]


class DaliLoader:
    """Yields what a DataLoader would, float32 (N, 3, side, side) and int64 (N,), on `device`.

    The pipeline lives from the first batch to `close`; each epoch feeds it anew, also after one that was broken off.
    """

    def __init__(self, part: ImagePart, recipe: Recipe, batches: BatchSampler, threads: int, device: str) -> None:
        self.images, self.labels = part.images, torch.from_numpy(part.labels)
        self.recipe, self.threads, self.device = recipe, threads, device
        self.batch_sampler: Any = batches  # of draws, where torch's type says positions
        assert isinstance(batches.sampler, ShareSampler)
        self.sampler = batches.sampler  # Lightning tells it the epoch
        self.encoded: bool = isinstance(part.images, ImageFiles)
        self.fitting: bool = not self.encoded and is_fitting(part.images[0], recipe.preprocessing)
        self.pipeline: Any = None
        self.readers: ThreadPoolExecutor | None = None
        self.ahead: list[Draw] = []  # the batch that DALI works on, or has made
        self._start()  # a machine that cannot is told before the training starts

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Batch]:
        self._start()
        if self.ahead:  # of an epoch that was broken off
            self._take()
        for draws in self.batch_sampler:
            if self.ahead:
                batch = self._take()
                self._feed(draws)
                yield batch
            else:
                self._feed(draws)
        if self.ahead:
            yield self._take()

    def close(self) -> None:
        """End DALI's threads and free its memory now; another epoch would start it anew."""
        self.pipeline, self.ahead = None, []
        if self.readers is not None:
            self.readers.shutdown(cancel_futures=True)
            self.readers = None
        gc.collect()

    def _start(self) -> None:
        if self.pipeline is None:
            self.pipeline = make_pipeline(
                self.recipe, encoded=self.encoded, fitting=self.fitting, threads=self.threads, device=self.device
            )
            self.readers = ThreadPoolExecutor(self.threads)

    def _feed(self, draws: list[Draw]) -> None:
        """Start on a batch: the files' bytes or the arrays, and what is drawn for each."""
        positions = [position for position, _ in draws]
        seeds = np.array([seed for _, seed in draws], dtype=np.uint64)
        if isinstance(self.images, ImageFiles):
            assert self.readers is not None
            read = list(self.readers.map(read_encoded, [self.images.paths[position] for position in positions]))
            images: Any = [content for content, _ in read]
            sizes = np.array([size for _, size in read])
        else:
            images = list(self.images[positions])
            sizes = np.tile(np.array(self.images.shape[1:3]), (len(draws), 1))
        self.pipeline.feed_input("images", images)
        for name, values in make_inputs(self.recipe, seeds, sizes, self.fitting).items():
            self.pipeline.feed_input(name, list(values))
        self.pipeline.schedule_run()
        self.ahead = draws

    def _take(self) -> Batch:
        """Wait for the batch that was made ahead, and copy it out of DALI's memory."""
        draws, self.ahead = self.ahead, []
        try:
            (output,) = self.pipeline.share_outputs()
            images = _copy(output)
            self.pipeline.release_outputs()
        except RuntimeError as error:
            self.close()  # DALI does not go on after an error
            self._name_broken(draws, error)
        labels = self.labels[[position for position, _ in draws]]
        return images, labels.to(self.device)

    def _name_broken(self, draws: list[Draw], error: RuntimeError) -> NoReturn:
        if isinstance(self.images, ImageFiles):
            paths = [self.images.paths[position] for position, _ in draws]
            for path in paths:
                read_image(path)  # raises where it is the file's fault
            raise UserError(
                f"augmentation.backend=dali: DALI cannot decode one of {len(paths)} files, {printable(paths[0])} among "
                "them, that can be read otherwise. Take augmentation.backend=albumentations."
            ) from error
        raise error


def _copy(output: Any) -> torch.Tensor:
    dense = output.as_tensor()
    # DALI writes the next batch into the same memory.
    return torch.from_dlpack(dense).clone() if hasattr(dense, "__dlpack__") else torch.from_numpy(np.array(dense))
