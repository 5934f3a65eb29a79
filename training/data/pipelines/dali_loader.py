"""A loader with DALI: batches in the sampler's order, one of them prepared in advance, with bounded memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch

from training.data.files.decode import open_image, read_image
from training.data.files.images import ImageFiles, ImagePart
from training.data.files.metadata import upright_size
from training.data.pipelines.dali_pipeline import make_inputs, make_pipeline
from training.data.pipelines.sampling import Draw, ShareBatches
from training.data.preprocessing.transform import is_fitting
from training.errors import UserError, printable
from training.process.text_files import refuse_irregular
from training.recipe import Recipe

if TYPE_CHECKING:
    from nvidia.dali import Pipeline

Batch = tuple[torch.Tensor, torch.Tensor]
_START, _END = b"\xff\xd8\xff", b"\xff\xd9"
_USUAL_MODES = ("RGB", "L")  # modes of JPEG files; some decoders invert CMYK


class DaliLoader:
    """Yields the same batches as a DataLoader, float32 (N, 3, side, side) and int64 (N,), on `device`.

    The pipeline exists until `close`. Every epoch starts with new inputs, also after an interrupted epoch.
    """

    def __init__(self, part: ImagePart, recipe: Recipe, batches: ShareBatches, threads: int, device: str) -> None:
        self.images, self.labels = part.images, torch.from_numpy(part.labels)
        self.recipe, self.threads, self.device = recipe, threads, device
        self.batch_sampler = batches
        self.encoded: bool = isinstance(part.images, ImageFiles)
        self.fitting: bool = not self.encoded and is_fitting(part.images[0], recipe.preprocessing)
        self.pipeline: Pipeline | None = None
        self.readers: ThreadPoolExecutor | None = None
        self.ahead: list[Draw] = []  # the batch that DALI prepares or has prepared
        self._start()  # start now, so that a machine without DALI is refused before the training

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Batch]:
        self._start()
        if self.ahead:  # left from an interrupted epoch
            self._take()
        for draws in self.batch_sampler:
            if self.ahead:
                batch = self._take()
                self._start_batch(draws)
                yield batch
            else:
                self._start_batch(draws)
        if self.ahead:
            yield self._take()

    def close(self) -> None:
        """End DALI's threads and free its memory. Another epoch would start it again."""
        self.pipeline, self.ahead = None, []
        if self.readers is not None:
            self.readers.shutdown(cancel_futures=True)
            self.readers = None

    def _start(self) -> None:
        if self.pipeline is None:
            self.pipeline = make_pipeline(
                self.recipe, encoded=self.encoded, fitting=self.fitting, threads=self.threads, device=self.device
            )
            self.readers = ThreadPoolExecutor(self.threads)

    def _start_batch(self, draws: list[Draw]) -> None:
        """Start a batch: give DALI the bytes of the files or the arrays, and the draws of each image."""
        positions = [position for position, _ in draws]
        seeds = np.array([seed for _, seed in draws], dtype=np.uint64)
        assert self.pipeline is not None
        assert self.readers is not None
        if isinstance(self.images, ImageFiles):
            read = list(self.readers.map(read_encoded, [self.images.paths[position] for position in positions]))
            images = [content for content, _ in read]
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
        """Wait for the batch that was prepared in advance, and copy it out of DALI's memory."""
        draws, self.ahead = self.ahead, []
        assert self.pipeline is not None
        try:
            (output,) = self.pipeline.share_outputs()
            images = torch.from_dlpack(output.as_tensor()).clone()  # DALI writes the next batch into the same memory
            self.pipeline.release_outputs()
        except RuntimeError as error:
            self.close()  # DALI cannot continue after an error
            self._name_broken(draws, error)
        return images, self.labels[[position for position, _ in draws]].to(self.device)

    def _name_broken(self, draws: list[Draw], error: RuntimeError) -> NoReturn:
        if isinstance(self.images, ImageFiles):
            paths = [self.images.paths[position] for position, _ in draws]
            for path in paths:
                read_image(path)  # raises if this file is broken
            raise UserError(
                f"augmentation.backend=dali: DALI cannot decode one of {len(paths)} files, {printable(paths[0])} among "
                "them, that other backends can read. Use augmentation.backend=albumentations."
            ) from error
        raise error


def read_encoded(path: str) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the bytes of a file, uint8 (N,), and height and width of the upright image in pixels."""
    try:
        refuse_irregular(path)
        with open(path, "rb") as file:
            content = file.read()
        if content.startswith(_START) and _END in content[-1024:]:  # DALI decodes a truncated file with a grey rest
            with open_image(io.BytesIO(content)) as image:
                if image.mode in _USUAL_MODES:
                    return np.frombuffer(content, np.uint8), upright_size(image)
    except Exception:  # noqa: BLE001, S110 - read_image below raises an error with the reason, or reads the pixels
        pass
    pixels = read_image(path)
    height, width = pixels.shape[:2]
    return np.frombuffer(b"P6 %d %d 255\n" % (width, height) + pixels.tobytes(), np.uint8), (height, width)
