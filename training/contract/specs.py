"""The data, preprocessing and backbone of a recipe: the images, the model's input and the model."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from pydantic import Field

from training.contract.part import Part

FILE_DATA = ("image_folder", "manifest", "parquet", "webdataset")  # loader workers read these from files
MOST_IMAGES = 100_000_000
LARGEST_SIDE = 4096  # side of the model's input, in pixels
Auto = Literal["auto"]
Share = Annotated[float, Field(ge=0, le=1)]
_THREE = Field(min_length=3, max_length=3)  # red, green, blue


class _Data(Part):
    train_size: int | None = Field(
        None, ge=2, le=MOST_IMAGES, description="Number of training images, a stratified sample; null: all."
    )
    split_seed: int = Field(0, ge=0, lt=2**63, description="Seed of the split into train, validation and test.")
    epoch_size: int | None = Field(
        None, ge=2, le=MOST_IMAGES, description="Images per reported epoch; null: the whole training part."
    )


class Digits(_Data):
    """scikit-learn's 1,797 handwritten digits, enlarged to 32×32 RGB; no download is needed."""

    name: Literal["digits"] = "digits"


class Cifar10(_Data):
    """CIFAR-10 (Krizhevsky 2009) through torchvision; downloaded into `root` if it is missing."""

    name: Literal["cifar10"] = "cifar10"
    root: str = Field("data", min_length=1, description="Folder of the download.")


class Cifar100(_Data):
    """CIFAR-100 (Krizhevsky 2009) with its 100 fine labels; downloaded into `root` if it is missing."""

    name: Literal["cifar100"] = "cifar100"
    root: str = Field("data", min_length=1, description="Folder of the download.")


class ImageFolder(_Data):
    """A folder of images: `root/<class>/…`, or `root/train` with `root/val` and `root/test` where they exist."""

    name: Literal["image_folder"] = "image_folder"
    root: str = Field(min_length=1, description="Path of the folder.")
    skip_unreadable: bool = Field(False, description="Continue without images that cannot be read.")


class Manifest(_Data):
    """A table of image files: CSV with the columns path and label, and optionally split and group."""

    name: Literal["manifest"] = "manifest"
    path: str = Field(min_length=1, description="The CSV file.")
    root: str | None = Field(
        None, min_length=1, description="Folder to which the paths are relative; null: the folder of the file."
    )
    skip_unreadable: bool = Field(False, description="Continue without images that cannot be read.")


class Parquet(_Data):
    """A folder of Parquet or Arrow files, as Hugging Face's `datasets` writes them: a column of images and one of labels."""

    name: Literal["parquet"] = "parquet"
    root: str = Field(min_length=1, description="Path of the folder.")
    image_column: str | None = Field(
        None, min_length=1, description="Column of the images; null: the one that has some."
    )
    label_column: str | None = Field(
        None, min_length=1, description="Column of the labels; null: the one of class labels, or the one named label."
    )
    skip_unreadable: bool = Field(False, description="Continue without images that cannot be read.")


class WebDataset(_Data):
    """A folder of tar files in the form of WebDataset: each sample is an image and a label, such as `7.jpg` and `7.cls`."""

    name: Literal["webdataset"] = "webdataset"
    root: str = Field(min_length=1, description="Path of the folder.")
    skip_unreadable: bool = Field(False, description="Continue without images that cannot be read.")


Data = Annotated[
    Digits | Cifar10 | Cifar100 | ImageFolder | Manifest | Parquet | WebDataset, Field(discriminator="name")
]


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


class Backbone(Part):
    source: Literal["timm", "torchvision"] = Field("timm", description="Library that provides the model.")
    name: str = Field("resnet18", description="A model of that library; its head is replaced.")
    weights: str = Field("pretrained", description="none, pretrained, letters, or the path of a file of weights.")
