"""What `sweep data` takes and what it finds: the recipe that its word means, and its results as plain values."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from training.errors import UserError

if TYPE_CHECKING:
    from training.recipe import Recipe


@dataclass(frozen=True)
class ClassRow:
    """The images of one class in each part."""

    name: str
    train: int
    val: int
    test: int


@dataclass(frozen=True)
class InputRow:
    """What the model gets: side in pixels, resizing, and the mean and deviation of red, green and blue."""

    image_size: int
    interpolation: str
    crop: float
    mean: Sequence[float]
    std: Sequence[float]
    random_crop: str
    flip: float
    augmentation: str
    backend: str


@dataclass(frozen=True)
class NearCopyRow:
    """A validation or test image that almost equals one of another part."""

    name: str
    part: str
    other_name: str
    other_part: str


@dataclass(frozen=True)
class DataResult:
    """What `sweep data` found: `mean` and `std` are those of the training images, `picture` is the file that it wrote."""

    name: str
    classes: list[ClassRow]
    remarks: list[str]
    shorter_side: int
    mean: Sequence[float]
    std: Sequence[float]
    input: InputRow
    picture: str
    near_copies: list[NearCopyRow] = field(default_factory=list)


@dataclass(frozen=True)
class FileRow:
    """A file that cannot be read."""

    path: str
    reason: str


@dataclass(frozen=True)
class FilesResult:
    """What `sweep data --check` found in `images` files."""

    name: str
    images: int
    unreadable: list[FileRow]
    remarks: list[str]
    near_copies: list[NearCopyRow] = field(default_factory=list)


_KINDS = {
    "image_folder": "the folder itself, as in sweep data photos",
    "manifest": "its file, as in sweep data list.csv",
    "parquet": "the folder of its files, as in sweep data photos",
    "webdataset": "the folder of its files, as in sweep data photos",
}


def find_recipe(source: str, overrides: Sequence[str]) -> Recipe:
    """Return a recipe from a data set's name, a folder, a manifest, a recipe's file or a space.

    For a space it is the one of some random draws that augments most: by a crop, by flips and by a policy.
    """
    from spaces.load import bundled_names, load_recipe, load_space
    from spaces.parameters.domains import find_parameters
    from spaces.parameters.draws import RandomTrial
    from spaces.reading.document import did_you_mean
    from training.data.files.listing import is_image_name
    from training.recipe import read_recipe

    if data := _name_data(source):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{Path(source).stem or 'data'}.yaml"
            file.write_text(f"format: 1\nrecipe:\n  backbone: {{weights: none}}\n  data: {data}\n", encoding="utf-8")
            return load_recipe(file, overrides)
    if not os.path.exists(source) and source in _KINDS:
        raise UserError(f"{source} is a kind of data, not a data set: give {_KINDS[source]}.")
    if is_image_name(source):
        raise UserError(f"{source}: one image is not a data set. Give the folder that has one subfolder per class.")
    if not os.path.exists(source) and source not in (names := bundled_names()):
        raise UserError(
            f"{source}: there is no such space, data set, folder or file.{did_you_mean(source, [*names, *_list_named()])}"
        )
    space = load_space(source, overrides)
    if not list(find_parameters(space.recipe, ("recipe",))):
        return read_recipe(space.recipe)
    draws = [read_recipe(space.suggest(RandomTrial(seed))) for seed in range(50)]
    return max(
        draws,
        key=lambda r: (r.random_crop.name != "none") + (r.flip.probability > 0) + (r.augmentation.policy != "none"),
    )


def _list_named() -> list[str]:
    from training.recipe import Recipe

    return [name for name in Recipe.kinds("data") if name not in _KINDS]


def _name_data(source: str) -> str | None:
    """Return the value of `data`, in YAML, for a word on the command line; None for a recipe or a space."""
    from training.data.load_data import kind_of

    path = os.path.abspath(os.path.expanduser(source))
    if source in _list_named():
        return f"{{name: {source}}}"
    if os.path.isdir(path):
        return f"{{name: {kind_of(path)}, root: {json.dumps(path, ensure_ascii=False)}}}"
    if source.lower().endswith(".csv"):
        return f"{{name: manifest, path: {json.dumps(path, ensure_ascii=False)}}}"
    return None
