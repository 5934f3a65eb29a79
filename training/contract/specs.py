"""The data, preprocessing and backbone of a recipe: the images, the model's input and the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypedDict

from pydantic import Field, model_validator

from training.contract.part import CODE, Part

if TYPE_CHECKING:
    import torch
    from torch import nn

FILE_DATA = ("image_folder", "manifest", "parquet", "webdataset")  # loader workers read these from files
MOST_IMAGES = 100_000_000
LARGEST_SIDE = 4096  # side of the model's input, in pixels
Auto = Literal["auto"]
Share = Annotated[float, Field(ge=0, le=1)]
_THREE = Field(min_length=3, max_length=3)  # red, green, blue


class BaseData(Part):
    """The fields that all data have."""

    name: str
    train_size: int | None = Field(
        None, ge=2, le=MOST_IMAGES, description="Number of training images, a stratified sample; null: all."
    )
    split_seed: int = Field(0, ge=0, lt=2**63, description="Seed of the split into train, validation and test.")
    epoch_size: int | None = Field(
        None, ge=2, le=MOST_IMAGES, description="Images per reported epoch; null: the whole training part."
    )


class Digits(BaseData):
    """scikit-learn's 1,797 handwritten digits, enlarged to 32×32 RGB; no download is needed."""

    name: Literal["digits"] = "digits"


class Cifar10(BaseData):
    """CIFAR-10 (Krizhevsky 2009) through torchvision; downloaded into `root` if it is missing."""

    name: Literal["cifar10"] = "cifar10"
    root: str = Field("data", min_length=1, description="Folder of the download.")


class Cifar100(BaseData):
    """CIFAR-100 (Krizhevsky 2009) with its 100 fine labels; downloaded into `root` if it is missing."""

    name: Literal["cifar100"] = "cifar100"
    root: str = Field("data", min_length=1, description="Folder of the download.")


class ImageFolder(BaseData):
    """A folder of images: `root/<class>/…`, or `root/train` with `root/val` and `root/test` where they exist."""

    name: Literal["image_folder"] = "image_folder"
    root: str = Field(min_length=1, description="Path of the folder.")
    skip_unreadable: bool = Field(False, description="Continue without images that cannot be read.")


class Manifest(BaseData):
    """A table of image files: CSV with the columns path and label, and optionally split and group."""

    name: Literal["manifest"] = "manifest"
    path: str = Field(min_length=1, description="The CSV file.")
    root: str | None = Field(
        None, min_length=1, description="Folder to which the paths are relative; null: the folder of the file."
    )
    skip_unreadable: bool = Field(False, description="Continue without images that cannot be read.")


class Parquet(BaseData):
    """A folder of Parquet or Arrow files, as Hugging Face's `datasets` writes them: a column of images and one of labels."""

    name: Literal["parquet"] = "parquet"
    root: str = Field(
        min_length=1, description="Path of the folder, or hf://datasets/OWNER/NAME of the Hugging Face hub."
    )
    image_column: str | None = Field(
        None, min_length=1, description="Column of the images; null: the one that has some."
    )
    label_column: str | None = Field(
        None, min_length=1, description="Column of the labels; null: the one of class labels, or the one named label."
    )
    skip_unreadable: bool = Field(False, description="Continue without images that cannot be read.")


class WebDataset(BaseData):
    """A folder of tar files in the form of WebDataset: each sample is an image and a label, such as `7.jpg` and `7.cls`."""

    name: Literal["webdataset"] = "webdataset"
    root: str = Field(
        min_length=1, description="Path of the folder, or hf://datasets/OWNER/NAME of the Hugging Face hub."
    )
    skip_unreadable: bool = Field(False, description="Continue without images that cannot be read.")


Data = Annotated[
    Digits | Cifar10 | Cifar100 | ImageFolder | Manifest | Parquet | WebDataset, Field(discriminator="name")
]


class OwnData(BaseData):
    """Data of the user's own. The fields of a subclass are those of the data in a recipe."""

    def load(self) -> Any:
        """Return a data set in the form of torchvision, or a pair of images and labels; or a mapping of several.

        The keys of a mapping are `train`, `val` and `test`. Parts that are missing are split off the training part. Images
        are Pillow images, arrays uint8 (height, width, 3), or paths of files; labels are names, or numbers of `classes`.
        """
        raise NotImplementedError(f"{type(self).__name__}.load")


class Preprocessing(Part):
    """Input of the model. `auto` takes the values of the pretrained weights; without them, values that fit the data."""

    image_size: Annotated[int, Field(ge=8, le=LARGEST_SIDE)] | Auto = Field(
        "auto", description="Side of the square input, in pixels."
    )
    crop: Annotated[float, Field(gt=0, le=1)] | Auto = Field(
        "auto",
        description="Share of the resized image's side that the centre crop keeps. auto: the share of the pretrained "
        "weights, without them 0.875, if the images are large enough: their shorter side has at least 224 pixels and at "
        "least image_size / share. Smaller images are used whole.",
    )
    interpolation: Literal["nearest", "bilinear", "bicubic", "auto"] = Field(
        "auto", description="Interpolation of every resize."
    )
    mean: Annotated[list[Share], _THREE] | Auto = Field("auto", description="Mean of each colour, in [0, 1].")
    std: Annotated[list[Annotated[float, Field(gt=0)]], _THREE] | Auto = Field(
        "auto", description="Standard deviation of each colour, in [0, 1]."
    )


class InputConfig(TypedDict):
    """The input of pretrained weights, in the form of timm's data config."""

    input_size: tuple[int, int, int]  # channels, height, width in pixels
    mean: tuple[float, ...]  # mean of each colour, in [0, 1]
    std: tuple[float, ...]
    crop_pct: float  # share of the resized image that the centre crop keeps
    interpolation: str


class OwnBackbone:
    """A backbone of the user's own. `build` and the three names are all that a recipe needs.

    The names may be left out if the module itself has timm's methods `get_classifier` and `group_matcher`.
    """

    head: ClassVar[str] = ""  # name of the module from features to logits
    stem: ClassVar[str] = ""  # name of the first module
    stages: ClassVar[tuple[str, ...]] = ()  # names of the modules between stem and head, in order

    def build(self, class_count: int, image_size: int) -> nn.Module:
        """Return a model with random weights, from images (N, 3, image_size, image_size) to logits (N, class_count)."""
        raise NotImplementedError(f"{type(self).__name__}.build")

    def pretrained(self) -> dict[str, torch.Tensor] | None:
        """Return weights for `backbone.weights=pretrained`, with or without those of a head; None: there are none."""
        return None


# The backbones that are loaded, by name, each with the version and the hash of its source.
OWN_BACKBONES: dict[str, tuple[OwnBackbone, str]] = {}


class Backbone(Part):
    source: Literal["timm", "torchvision", "own"] = Field(
        "timm", description="Library that provides the model; own: a file that --with loads."
    )
    name: str = Field("resnet18", description="A model of that library; its head is replaced.")
    weights: str = Field("pretrained", description="none, pretrained, letters, or the path of a file of weights.")
    code: str | None = Field(
        None,
        exclude_if=lambda code: code is None,
        description="Version and hash of the source of a backbone of one's own; filled in.",
    )

    @model_validator(mode="before")
    @classmethod
    def _record_code(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("source") == "own" and values.get(CODE) is None:
            _, code = OWN_BACKBONES.get(str(values.get("name")), (None, None))
            return {**values, CODE: code}
        return values
