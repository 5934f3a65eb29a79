"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) through torchvision: their official test set is the test split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from pydantic import Field

from training.contract.specs import Data
from training.data.files.images import PARTS, ImageData, ImagePart
from training.errors import UserError
from training.process.network import answers

if TYPE_CHECKING:
    import numpy as np
    from torchvision.datasets import CIFAR10

HELD_OUT_SHARE = 0.1
_STALL_SECONDS = 30


class _Description(TypedDict):
    classes: list[str]
    labels: dict[str, list[int]]  # by part
    shape: list[int]  # height, width and colours of an image


class _Cifar(Data):
    root: str = Field("data", min_length=1, description="Folder of the download.")

    def load(self) -> ImageData:
        """Load the images from `root`; download them first if they are missing. All processes of a machine share one copy."""
        import numpy as np

        from training.data.files.cache import cached, key_of_files
        from training.data.files.pixel_store import shared_array

        root = Path(self.root)
        files = _list_files(self, root)
        whole = cache(partial(_read, self, root))
        if files is None:
            whole()  # this downloads the files
            files = _list_files(self, root) or []
        key = key_of_files([str(file) for file in files], self.name, 1, self.split_seed, self.train_size)
        known = cached("cifar", key, lambda: _describe(whole()))
        parts = {}
        for name, labels in known["labels"].items():
            # All trials map this array; the pixels are put into the order of the split once.
            pixels = shared_array(f"{key}-{name}", (len(labels), *known["shape"]), partial(_fill, whole, name))
            parts[name] = ImagePart(np.array(labels, dtype=np.int64), pixels)
        return ImageData(self.name, tuple(known["classes"]), parts["train"], parts["val"], parts["test"])


class Cifar10(_Cifar):
    """CIFAR-10 (Krizhevsky 2009) through torchvision; downloaded into `root` if it is missing."""

    name: Literal["cifar10"] = "cifar10"


class Cifar100(_Cifar):
    """CIFAR-100 (Krizhevsky 2009) with its 100 fine labels; downloaded into `root` if it is missing."""

    name: Literal["cifar100"] = "cifar100"


def _fill(whole: Callable[[], ImageData], name: str, pixels: np.ndarray) -> None:
    pixels[:] = getattr(whole(), name).images


def _describe(data: ImageData) -> _Description:
    labels = {name: getattr(data, name).labels.tolist() for name in PARTS}
    return {"classes": list(data.classes), "labels": labels, "shape": list(data.train.images[0].shape)}


def _list_files(spec: _Cifar, root: Path) -> list[Path] | None:
    official = _dataset(spec)
    folder = root / official.base_folder
    names = [name for name, _ in (*official.train_list, *official.test_list)]
    files = [folder / name for name in (*names, official.meta["filename"])]
    return files if all(file.is_file() for file in files) else None


def _read(spec: _Cifar, root: Path) -> ImageData:
    from training.data.splits import split_stratified, take

    dataset = _dataset(spec)
    try:
        official = dataset(root, train=True)
    except RuntimeError:  # torchvision raises it if the files are missing or damaged
        _download(spec, root)
        official = dataset(root, train=True)
    classes, known, test = tuple(official.classes), _part(official), _part(dataset(root, train=False))
    # At least one image of each class is held out, so that a small extract in the same form works too.
    held_out = max(round(len(known) * HELD_OUT_SHARE), len(classes))
    val, train = split_stratified(known.labels, (held_out,), spec.split_seed)
    data = ImageData(spec.name, classes, known.select(train), known.select(val), test)
    return take(data, spec.train_size, spec.split_seed)


def _dataset(spec: _Cifar) -> type[CIFAR10]:
    from torchvision.datasets import CIFAR10, CIFAR100

    return CIFAR10 if isinstance(spec, Cifar10) else CIFAR100


def _part(dataset: CIFAR10) -> ImagePart:
    import numpy as np

    return ImagePart(np.array(dataset.targets, dtype=np.int64), np.ascontiguousarray(dataset.data))


def _download(spec: _Cifar, root: Path) -> None:
    from filelock import FileLock

    dataset = _dataset(spec)
    way_out = (
        f"Connect to the network, or get the folder {dataset.base_folder} elsewhere and set data.root to the folder "
        "that holds it. Your own images, in a folder for each class, are data.name=image_folder."
    )
    where = f"data.root={spec.root}: there is no complete {dataset.base_folder} in {root.absolute()}"
    if not (root / dataset.filename).exists() and not answers(dataset.url):
        raise UserError(f"{where}, and the server it is downloaded from does not answer. {way_out}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{spec.name}.lock"), _stalls_end():  # one process downloads while the others wait
            dataset(root, download=True)
    except (OSError, RuntimeError) as error:
        raise UserError(f"{where}, and the download failed ({' '.join(str(error).split())}). {way_out}") from None


@contextmanager
def _stalls_end() -> Iterator[None]:
    """Let a stalled download fail after 30 seconds; torchvision sets no limit."""
    import socket

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_STALL_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
