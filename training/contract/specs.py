"""The data, preprocessing and backbone of a recipe: the images, the model's input and the model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NoReturn, NotRequired, TypedDict

from pydantic import Field, model_validator

from training.contract.own_parts import list_codes
from training.contract.part import CODE, Part
from training.errors import UserError, printable

if TYPE_CHECKING:
    import torch
    from torch import nn

MOST_IMAGES = 100_000_000
LARGEST_SIDE = 4096  # side of the model's input, in pixels
Auto = Literal["auto"]
Share = Annotated[float, Field(ge=0, le=1)]
_THREE = Field(min_length=3, max_length=3)  # red, green, blue


class Data(Part):
    """Data of a recipe. The fields of a subclass are those of the data in a recipe."""

    has_off: ClassVar[bool] = False
    places: ClassVar[tuple[str, ...]] = ("root", "path")
    prepared_fields: ClassVar[tuple[str, ...] | Literal["all"]] = "all"
    reads_files: ClassVar[bool] = False  # True: images stay in files, which loader workers read
    endings: ClassVar[tuple[str, ...]] = ()  # of the files by which a folder with such data is recognised

    name: str
    train_size: int | None = Field(
        None, ge=2, le=MOST_IMAGES, description="Number of training images, a stratified sample; null: all."
    )
    split_seed: int = Field(0, ge=0, lt=2**63, description="Seed of the split into train, validation and test.")
    split_test: bool = Field(
        True,
        exclude_if=lambda is_split: is_split,  # so that recipes from before it stay equal
        description="Whether images are split off as a test part, if the data have none. If not, a fifth validates, and "
        "`sweep confirm` scores fresh seeds alone.",
    )
    epoch_size: int | None = Field(
        None, ge=2, le=MOST_IMAGES, description="Images per reported epoch; null: the whole training part."
    )

    def missing(self, parts: Collection[str]) -> list[str]:
        """Return the parts that are split off from the training part, if the data have these."""
        wanted = ["test", "val"] if self.split_test else ["val"]
        return [part for part in wanted if part not in parts]

    def load(self) -> object:
        """Return a data set in the form of torchvision, or a pair of images and labels; or a mapping of several.

        The keys of a mapping are `train`, `val` and `test`. Parts that are missing are split off the training part. Images
        are Pillow images, arrays uint8 (height, width, 3), or paths of files; labels are names, or numbers of `classes`.
        Instead of all that, it may be `ImageData`, which has all parts.

        Unless the data reads files, each process calls this once.
        """
        raise NotImplementedError(f"{type(self).__name__}.load")

    def refuse(self, what: str, way_out: str) -> NoReturn:
        """Raise a UserError with what is wrong with the data, after the field that names them, and the way out."""
        field = next((field for field in ("path", "root") if self.reads_files and getattr(self, field, None)), "name")
        raise UserError(f"data.{field}={printable(getattr(self, field))}: {what}. {way_out}")


class FileData(Data):
    """Data whose images stay in files."""

    reads_files: ClassVar[bool] = True

    skip_unreadable: bool = Field(False, description="Continue without images that cannot be read.")


class Preprocessing(Part):
    """Input of the model. `auto` takes the values of the pretrained weights; without them, values that fit the data."""

    has_off: ClassVar[bool] = False
    prepared_fields: ClassVar[tuple[str, ...] | Literal["all"]] = "all"

    image_size: Annotated[int, Field(ge=8, le=LARGEST_SIDE)] | Auto = Field(
        "auto", description="Side of the square input, in pixels."
    )
    crop: Annotated[float, Field(gt=0, le=1)] | Auto = Field(
        "auto",
        description="Share of the resized image's side that the centre crop keeps. auto: the share of the pretrained "
        "weights, without them 0.875, if the images are large enough: their shorter side has at least 224 pixels and at "
        "least image_size / share. Smaller images are used whole.",
    )
    crop_mode: Literal["center", "squash", "border", "auto"] = Field(
        "auto",
        description="How an image that is not square is made so. center: the shorter side is resized to image_size / crop; "
        "squash: both sides are; border: the longer side is, and the rest filled with the mean colour. Then the centre is "
        "kept. auto: as the pretrained weights were scored, without them center.",
    )
    interpolation: Literal["nearest", "bilinear", "bicubic", "auto"] = Field(
        "auto", description="Interpolation of every resize."
    )
    mean: Annotated[list[Share], _THREE] | Auto = Field("auto", description="Mean of each colour, in [0, 1].")
    std: Annotated[list[Annotated[float, Field(gt=0)]], _THREE] | Auto = Field(
        "auto", description="Standard deviation of each colour, in [0, 1]."
    )

    @property
    def side(self) -> int:
        """Return the image size of resolved preprocessing, in pixels."""
        assert isinstance(self.image_size, int)
        return self.image_size


class InputConfig(TypedDict):
    """The input of pretrained weights, in the form of timm's data config."""

    input_size: tuple[int, int, int]  # channels, height, width in pixels
    mean: tuple[float, ...]  # mean of each colour, in [0, 1]
    std: tuple[float, ...]
    crop_pct: float  # share of the resized image that the centre crop keeps
    crop_mode: NotRequired[str]  # center, squash or border
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


class Backbone(Part):
    has_off: ClassVar[bool] = False
    places: ClassVar[tuple[str, ...]] = ("weights",)
    prepared_fields: ClassVar[tuple[str, ...] | Literal["all"]] = "all"

    source: Literal["timm", "torchvision", "own"] = Field(
        "timm", description="Library that provides the model; own: a file that --plugin loads."
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
    def _record_code(cls, values: object) -> object:
        if isinstance(values, Mapping) and values.get("source") == "own" and values.get(CODE) is None:
            return {**values, CODE: list_codes().get(f"backbone.{values.get('name')}")}
        return values
