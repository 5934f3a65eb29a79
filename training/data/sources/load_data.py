"""Load the data of a recipe as images in three parts."""

from __future__ import annotations

import os
from functools import lru_cache

from training.contract.specs import Cifar10, Cifar100, Data, Digits, ImageFolder, Manifest, OwnData, Parquet, WebDataset
from training.data.files.images import ImageData
from training.data.sources.cifar import load_cifar
from training.data.sources.digits import load_digits
from training.data.sources.folders.image_folder import load_image_folder
from training.data.sources.folders.manifest import load_manifest
from training.data.sources.own_data import load_own
from training.data.sources.packed.parquet import load_parquet
from training.data.sources.packed.webdataset import load_webdataset
from training.data.sources.subset import take


def load_data(spec: Data) -> ImageData:
    """Load the data of a recipe; the split depends on `split_seed` alone.

    Raises:
        UserError: the data is missing, broken or too small.
    """
    if isinstance(spec, OwnData):
        return take(load_own(spec), spec.train_size, spec.split_seed)
    if isinstance(spec, Cifar10 | Cifar100):
        return _load_cifar_once(absolute(spec).model_copy(update={"epoch_size": None}))
    # Files are listed each time, because they may have changed.
    data = _load_digits_once(spec.split_seed) if isinstance(spec, Digits) else _list(spec)
    return take(data, spec.train_size, spec.split_seed)


def _list(spec: ImageFolder | Manifest | Parquet | WebDataset) -> ImageData:
    match spec:
        case ImageFolder():
            return load_image_folder(spec)
        case Manifest():
            return load_manifest(spec)
        case Parquet():
            return load_parquet(spec)
        case WebDataset():
            return load_webdataset(spec)


def absolute(spec: Data) -> Data:
    """Return the spec with absolute paths, so that it is valid in every process."""
    paths = {name: value for name in ("path", "root") if (value := getattr(spec, name, None)) and "://" not in value}
    return spec.model_copy(update={name: os.path.abspath(os.path.expanduser(value)) for name, value in paths.items()})


@lru_cache(maxsize=1)
def _load_cifar_once(spec: Cifar10 | Cifar100) -> ImageData:
    return load_cifar(spec)


@lru_cache(maxsize=1)
def _load_digits_once(split_seed: int) -> ImageData:
    return load_digits(Digits(split_seed=split_seed))
