"""Rates that range tests have found, in a folder that the trainings of a sweep share."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import torch
from filelock import FileLock

from training.data.files.images import ImageData
from training.data.identity import identify
from training.distributed.rank import Rank
from training.model.teacher import find_file
from training.process.resources import Resources
from training.process.text_files import keep_json, recall_json
from training.recipe import Recipe

logger = logging.getLogger(__name__)


class FoundRates:
    """One small file for each set-up. Trainings that need the same rate at the same time wait for the first of them."""

    def __init__(self, folder: Path | None, rank: Rank) -> None:
        self.folder = folder if rank.leads else None  # None: every rate is found anew
        self.rank = rank

    def recall(self, identify: Callable[[], str], find: Callable[[], float]) -> float:
        """Return the stored rate of a set-up; if there is none, find and store it. All ranks must call this."""
        key = identify() if self.folder else ""
        with self._locked(key):
            if (known := self.rank.gather(self._read(key))[0]) is not None:
                return known
            rate = find()
            self._write(key, rate)
            return rate

    def _locked(self, key: str) -> AbstractContextManager[object]:
        """Return the lock of a set-up, which the system releases when a process dies."""
        if self.folder is None:
            return nullcontext()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return FileLock(self.folder / f"{key}.lock").acquire()
        except (OSError, NotImplementedError) as error:
            logger.warning("%s: no lock is possible there (%s), so the rate is found again.", self.folder, error)
            self.folder = None
            return nullcontext()

    def _read(self, key: str) -> float | None:
        rate = recall_json(self.folder / key, float) if self.folder else None
        return rate if rate is not None and 0 < rate < math.inf else None

    def _write(self, key: str, rate: float) -> None:
        if self.folder:
            with suppress(IsADirectoryError):  # nothing of ours: each training finds the rate again
                keep_json(self.folder / key, float(rate))


def identify_setup(simple: Recipe, data: ImageData, resources: Resources, rank: Rank) -> str:
    """Return a digest of everything that can change the result of a range test.

    The epochs of its recipe do not matter. Of the data it has the pixels, or the names, sizes and times of the files.
    """
    weights, teacher = Path(simple.backbone.weights), simple.distillation.teacher
    read = [file for file in (weights, find_file(Path(teacher)) if teacher else weights) if file.is_file()]
    facts = {
        "recipe": simple.model_dump(exclude={"epochs"}),
        "data": identify(data, simple.data),
        "weights": [(file.stat().st_size, file.stat().st_mtime_ns) for file in read],
        "host": socket.gethostname(),
        "device": torch.cuda.get_device_name() if resources.device == "cuda" else "cpu",
        "threads": resources.threads,
        "ranks": rank.count,
        "torch": torch.__version__,
    }
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()
