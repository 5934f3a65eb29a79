"""Data, preprocessing and backbone of a recipe: which images, how they become the model's input, and which model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from training.contract.part import Part

FILE_DATA = ("image_folder", "manifest")  # read from files, in loader workers
MOST_IMAGES = 100_000_000
LARGEST_SIDE = 4096  # of an input, in pixels
Auto = Literal["auto"]
Share = Annotated[float, Field(ge=0, le=1)]
_THREE = Field(min_length=3, max_length=3)  # red, green, blue


class _Data(Part):
    train_size: int | None = Field(
        None, ge=2, le=MOST_IMAGES, description="Train on this many images only, stratified; null: all."
    )
    split_seed: int = Field(0, ge=0, lt=2**63, description="Of the split into train, validation and test.")
    epoch_size: int | None = Field(
        None, ge=2, le=MOST_IMAGES, description="Images per reported epoch; null: the whole training part."
    )


class Digits(_Data):
    """scikit-learn's 1,797 handwritten digits, enlarged to 32×32 RGB; embedded, needs no download."""

    name: Literal["digits"] = "digits"


class Cifar10(_Data):
    """CIFAR-10 (Krizhevsky 2009) through torchvision; downloaded into `root` when it is not there."""

    name: Literal["cifar10"] = "cifar10"
    root: str = Field("data", min_length=1, description="Folder of the download.")


class Cifar100(_Data):
    """CIFAR-100 (Krizhevsky 2009) with its 100 fine labels; downloaded into `root` when it is not there."""

    name: Literal["cifar100"] = "cifar100"
    root: str = Field("data", min_length=1, description="Folder of the download.")


class ImageFolder(_Data):
    """A folder of images: `root/<class>/…`, or `root/train` with `root/val` and `root/test` where they exist."""

    name: Literal["image_folder"] = "image_folder"
    root: str = Field(min_length=1, description="The folder.")
    skip_unreadable: bool = Field(False, description="Go on without images that cannot be read.")


class Manifest(_Data):
    """A table of image files: CSV with the columns path and label, and if wanted split and group."""

    name: Literal["manifest"] = "manifest"
    path: str = Field(min_length=1, description="The CSV file.")
    root: str | None = Field(None, min_length=1, description="Folder that paths are relative to; null: the file's own.")
    skip_unreadable: bool = Field(False, description="Go on without images that cannot be read.")


Data = Annotated[Digits | Cifar10 | Cifar100 | ImageFolder | Manifest, Field(discriminator="name")]


class Preprocessing(Part):
    """Input of the model. `auto`: the pretrained weights' own, else what the data asks for."""

    image_size: Annotated[int, Field(ge=8, le=LARGEST_SIDE)] | Auto = Field(
        "auto", description="Side of the square input, in pixels."
    )
    crop: Annotated[float, Field(gt=0, le=1)] | Auto = Field(
        "auto", description="Share of the resized image that the centre crop keeps."
    )
    interpolation: Literal["nearest", "bilinear", "bicubic", "auto"] = Field("auto", description="Of every resize.")
    mean: Annotated[list[Share], _THREE] | Auto = Field("auto", description="Of each colour, in [0, 1].")
    std: Annotated[list[Annotated[float, Field(gt=0)]], _THREE] | Auto = Field(
        "auto", description="Of each colour, in [0, 1]."
    )


class Backbone(Part):
    source: Literal["timm", "torchvision"] = Field("timm", description="The library it comes from.")
    name: str = Field("resnet18", description="Any model of that library; the head is replaced.")
    weights: str = Field("pretrained", description="none, pretrained, letters, or a file of weights.")
