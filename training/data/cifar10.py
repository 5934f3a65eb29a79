"""CIFAR-10 (Krizhevsky 2009) through torchvision: its official test set is the test part."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from filelock import FileLock

from training.data.images import ImageData, ImagePart
from training.data.specs import Cifar10
from training.data.splits import split_stratified
from training.errors import UserError

HELD_OUT = 5000
_ANSWER_SECONDS = 5
_STALL_SECONDS = 30


def load_cifar10(spec: Cifar10) -> ImageData:
    """Load CIFAR-10 from `root`, downloading it first when it is not there.

    Raises:
        UserError: not there, and the download fails.
    """
    from torchvision.datasets import CIFAR10

    root = Path(spec.root)
    try:
        official = CIFAR10(root, train=True)
    except RuntimeError:  # torchvision's word for "not found or damaged"
        _download(spec, root)
        official = CIFAR10(root, train=True)
    known = _part(official)
    # A tenth at most, so that a small extract in the same form works as well.
    held_out = min(HELD_OUT, len(known) // 10)
    val, train = split_stratified(known.labels, (held_out,), spec.split_seed)
    return ImageData(
        spec.name, tuple(official.classes), known.select(train), known.select(val), _part(CIFAR10(root, train=False))
    )


def _part(dataset) -> ImagePart:  # type: ignore[no-untyped-def]
    return ImagePart(np.array(dataset.targets, dtype=np.int64), np.ascontiguousarray(dataset.data))


def _download(spec: Cifar10, root: Path) -> None:
    from torchvision.datasets import CIFAR10

    way_out = (
        "Connect to the network, or get the folder cifar-10-batches-py elsewhere and set data.root to the folder "
        "that holds it."
    )
    where = f"data.root={spec.root}: there is no complete cifar-10-batches-py in {root.absolute()}"
    if not (root / CIFAR10.filename).exists() and not _answers(CIFAR10.url):
        raise UserError(f"{where}, and the server it is downloaded from does not answer. {way_out}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".cifar10.lock"), _stalls_end():  # one process downloads, the others wait for it
            CIFAR10(root, download=True)
    except (OSError, RuntimeError) as error:
        raise UserError(f"{where}, and the download failed ({' '.join(str(error).split())}). {way_out}") from None


def _answers(address: str) -> bool:
    """Say within seconds whether a server answers; a name server that is silent would hold us up for a minute."""
    answers: list[bool] = []

    def ask() -> None:
        request = urllib.request.Request(address, method="HEAD", headers={"User-Agent": "technique-search"})
        with suppress(OSError), urllib.request.urlopen(request, timeout=_ANSWER_SECONDS):
            answers.append(True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    return bool(answers)


@contextmanager
def _stalls_end() -> Iterator[None]:
    """Let a download that stalls fail; torchvision sets no limit of its own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_STALL_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
