"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) through torchvision: their official test set is the test part."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from filelock import FileLock

from training.contract.specs import Cifar10, Cifar100
from training.data.files.answers import key_of_files, remember
from training.data.files.images import ImageData, ImagePart
from training.data.files.pixel_store import shared_array
from training.data.sources.cifar_binary import list_binary, read_binary
from training.data.sources.splits import split_stratified
from training.data.sources.subset import take
from training.errors import UserError

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR10

HELD_OUT_SHARE = 0.1
_ANSWER_SECONDS = 5
_STALL_SECONDS = 30


class _Description(TypedDict):
    classes: list[str]
    labels: dict[str, list[int]]  # by part
    shape: list[int]  # height, width and colours of an image


def load_cifar(spec: Cifar10 | Cifar100) -> ImageData:
    """Load CIFAR from `root`; download it first if it is missing. All processes of a machine share one copy.

    Raises:
        UserError: the download fails, or `train_size` is larger than the training part.
    """
    root = Path(spec.root)
    read: dict[str, ImageData] = {}

    def whole() -> ImageData:
        if not read:
            read["data"] = _read(spec, root)
        return read["data"]

    files = _list_files(spec, root)
    if files is None:
        whole()  # this downloads the files
        files = _list_files(spec, root) or []
    key = key_of_files(map(str, files), spec.name, 1, spec.split_seed, spec.train_size)
    known = remember("cifar", key, lambda: _describe(whole()))
    parts = {}
    for name, labels in known["labels"].items():
        # All trials map this array; the pixels are put into the order of the split once.
        pixels = shared_array(f"{key}-{name}", (len(labels), *known["shape"]), _copy_of(whole, name))
        parts[name] = ImagePart(np.array(labels, dtype=np.int64), pixels)
    return ImageData(spec.name, tuple(known["classes"]), parts["train"], parts["val"], parts["test"])


def _copy_of(whole: Callable[[], ImageData], name: str) -> Callable[[np.ndarray], None]:
    def fill(pixels: np.ndarray) -> None:
        pixels[:] = getattr(whole(), name).images

    return fill


def _describe(data: ImageData) -> _Description:
    labels = {name: getattr(data, name).labels.tolist() for name in ("train", "val", "test")}
    assert isinstance(data.train.images, np.ndarray)
    return {"classes": list(data.classes), "labels": labels, "shape": list(data.train.images.shape[1:])}


def _list_files(spec: Cifar10 | Cifar100, root: Path) -> list[Path] | None:
    """Return the files of the official Python form, else those of the binary form, else None."""
    official = _dataset(spec)
    folder = root / official.base_folder
    names = [name for name, _ in (*official.train_list, *official.test_list)]
    files = [folder / name for name in (*names, official.meta["filename"])]
    return files if all(file.is_file() for file in files) else list_binary(root, spec.name)


def _read(spec: Cifar10 | Cifar100, root: Path) -> ImageData:
    if not (root / _dataset(spec).base_folder).exists() and list_binary(root, spec.name):
        classes, known, test = read_binary(root, spec.name)
    else:
        classes, known, test = _read_official(spec, root)
    # At least one image of each class is held out, so that a small extract in the same form works too.
    held_out = max(round(len(known) * HELD_OUT_SHARE), len(classes))
    val, train = split_stratified(known.labels, (held_out,), spec.split_seed)
    data = ImageData(spec.name, classes, known.select(train), known.select(val), test)
    return take(data, spec.train_size, spec.split_seed)


def _read_official(spec: Cifar10 | Cifar100, root: Path) -> tuple[tuple[str, ...], ImagePart, ImagePart]:
    dataset = _dataset(spec)
    try:
        official = dataset(root, train=True)
    except RuntimeError:  # torchvision raises it if the files are missing or damaged
        _download(spec, root)
        official = dataset(root, train=True)
    return tuple(official.classes), _part(official), _part(dataset(root, train=False))


def _dataset(spec: Cifar10 | Cifar100) -> type[CIFAR10]:
    from torchvision.datasets import CIFAR10, CIFAR100

    return CIFAR10 if isinstance(spec, Cifar10) else CIFAR100


def _part(dataset: CIFAR10) -> ImagePart:
    return ImagePart(np.array(dataset.targets, dtype=np.int64), np.ascontiguousarray(dataset.data))


def _download(spec: Cifar10 | Cifar100, root: Path) -> None:
    dataset = _dataset(spec)
    way_out = (
        f"Connect to the network, or get the folder {dataset.base_folder} elsewhere and set data.root to the folder "
        "that holds it."
    )
    where = f"data.root={spec.root}: there is no complete {dataset.base_folder} in {root.absolute()}"
    if not (root / dataset.filename).exists() and not _answers(dataset.url):
        raise UserError(f"{where}, and the server it is downloaded from does not answer. {way_out}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{spec.name}.lock"), _stalls_end():  # one process downloads while the others wait
            dataset(root, download=True)
    except (OSError, RuntimeError) as error:
        raise UserError(f"{where}, and the download failed ({' '.join(str(error).split())}). {way_out}") from None


def _answers(address: str) -> bool:
    """Return within five seconds whether a server answers. A silent name server alone would take a minute."""
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
    """Let a stalled download fail after 30 seconds; torchvision sets no limit."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_STALL_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
