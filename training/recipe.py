"""A recipe: one value for every technique; it determines a training completely."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from training.contract.optimizer import Optimizer
from training.contract.own_parts import PARTS, PLACEHOLDER, OwnPart, list_codes, list_own
from training.contract.part import CODE, MOST, Part
from training.contract.policy import Policy
from training.contract.schedule import Schedule
from training.contract.specs import Backbone, Data, Preprocessing
from training.contract.technique import Technique, find_conflict
from training.data.sources.digits import Digits
from training.errors import UserError
from training.families import FAMILIES
from training.techniques.compute.activation_checkpointing import ActivationCheckpointing
from training.techniques.compute.channels_last import ChannelsLast
from training.techniques.compute.compilation import Compilation
from training.techniques.compute.cudnn_benchmark import CudnnBenchmark
from training.techniques.compute.data_parallel import DataParallel
from training.techniques.compute.precision import Precision
from training.techniques.data.augmentation import NoAugmentation
from training.techniques.data.cutmix import CutMix
from training.techniques.data.flip import Flip
from training.techniques.data.fmix import FMix
from training.techniques.data.mixing import Mixing
from training.techniques.data.mixup import MixUp
from training.techniques.data.progressive_resizing import ProgressiveResizing
from training.techniques.data.random_crop import NoCrop, RandomCrop
from training.techniques.data.random_erasing import RandomErasing
from training.techniques.data.repeated_augmentation import RepeatedAugmentation
from training.techniques.loss.class_balance import ClassBalance, NoBalance
from training.techniques.loss.classifier_retraining import ClassifierRetraining
from training.techniques.loss.distillation import Distillation
from training.techniques.loss.label_smoothing import LabelSmoothing
from training.techniques.loss.losses import CrossEntropy, Loss
from training.techniques.model.attention_pooling import AttentionPooling
from training.techniques.model.drop_path import DropPath
from training.techniques.model.evaluation_size import EvaluationSize
from training.techniques.model.flip_average import FlipAverage
from training.techniques.model.head_dropout import HeadDropout
from training.techniques.model.linear_probe import LinearProbe
from training.techniques.model.lora import Lora
from training.techniques.model.unfreeze import Unfreeze
from training.techniques.optimization.accumulation import Accumulation
from training.techniques.optimization.averaging import Averaging, NoAveraging
from training.techniques.optimization.gradient_clipping import GradientClipping
from training.techniques.optimization.head_lr import HeadLr
from training.techniques.optimization.l2_sp import L2Sp
from training.techniques.optimization.layer_decay import LayerDecay
from training.techniques.optimization.lr_scaling import LrScaling
from training.techniques.optimization.no_decay import NoDecay
from training.techniques.optimization.sam import AnySam, NoSam
from training.techniques.optimization.schedules import Constant
from training.techniques.optimization.snapshots import Snapshots
from training.techniques.optimization.torch_optimizers import Momentum

# Validation context of a recipe from a ledger: a conflict that only a later version has does not make it unreadable.
RECORDED = {"recorded": True}


class Recipe(Part):
    """All choices of one training. Techniques are applied in the order of the fields; each is off by default.

    The type of a family, such as `Optimizer`, stands for all its kinds.
    """

    model_config = ConfigDict(defer_build=True)  # it is built when the kinds of its families are known

    data: Data = Digits()
    preprocessing: Preprocessing = Preprocessing()
    backbone: Backbone = Backbone()
    epochs: int = Field(10, ge=1, le=MOST, description="Number of reported epochs; data.epoch_size sets their length.")
    seed: int = Field(
        0,
        ge=0,
        lt=2**63,
        description="Seed of the initial weights, the order of images and every random draw in training.",
    )
    batch_size: Annotated[int, Field(ge=1, le=MOST)] | Literal["auto"] = Field(
        32, description="Images per forward pass; auto: the largest power of two that fits into a GPU."
    )

    data_parallel: DataParallel = DataParallel()
    attention_pooling: AttentionPooling = AttentionPooling()
    unfreeze: Unfreeze = Unfreeze()
    linear_probe: LinearProbe = LinearProbe()
    lora: Lora = Lora()
    drop_path: DropPath = DropPath()
    head_dropout: HeadDropout = HeadDropout()
    activation_checkpointing: ActivationCheckpointing = ActivationCheckpointing()
    random_crop: RandomCrop = NoCrop()
    flip: Flip = Flip()
    augmentation: Policy = NoAugmentation()
    progressive_resizing: ProgressiveResizing = ProgressiveResizing()
    random_erasing: RandomErasing = RandomErasing()
    repeated_augmentation: RepeatedAugmentation = RepeatedAugmentation()
    mixup: MixUp = MixUp()
    cutmix: CutMix = CutMix()
    fmix: FMix = FMix()
    mixing: Mixing = Mixing()
    class_balance: ClassBalance = NoBalance()
    loss: Loss = CrossEntropy()
    label_smoothing: LabelSmoothing = LabelSmoothing()
    distillation: Distillation = Distillation()
    layer_decay: LayerDecay = LayerDecay()
    head_lr: HeadLr = HeadLr()
    no_decay: NoDecay = NoDecay()
    l2_sp: L2Sp = L2Sp()
    optimizer: Optimizer = Momentum()
    schedule: Schedule = Constant()
    averaging: Averaging = NoAveraging()
    snapshots: Snapshots = Snapshots()
    classifier_retraining: ClassifierRetraining = ClassifierRetraining()
    flip_average: FlipAverage = FlipAverage()
    evaluation_size: EvaluationSize = EvaluationSize()
    sam: AnySam = NoSam()
    accumulation: Accumulation = Accumulation()
    lr_scaling: LrScaling = LrScaling()
    gradient_clipping: GradientClipping = GradientClipping()
    precision: Precision = Precision()
    channels_last: ChannelsLast = ChannelsLast()
    compilation: Compilation = Compilation()
    cudnn_benchmark: CudnnBenchmark = CudnnBenchmark()

    _bundled: ClassVar[dict[str, dict[str, type[Part]]]] = {}  # the kinds of each family, by name

    @classmethod
    def kinds(cls, family: str) -> Mapping[str, type[Part]]:
        """The kinds of a family, such as `optimizer`, by name."""
        return cls._bundled[family] | list_own(family)

    @classmethod
    def add(cls, key: str, own: OwnPart) -> None:
        """Give the recipes of this process a part that is not bundled; a technique is applied after the others."""
        PARTS[key] = own
        cls._rebuild()

    @classmethod
    def forget(cls, code: str | None = None) -> None:
        """Remove everything that is not bundled, or only what has this code."""
        forgotten = [key for key, own in PARTS.items() if code in (None, own.code)]
        for key in forgotten:
            del PARTS[key]
            cls.__pydantic_fields__.pop(key, None)
        if forgotten:
            cls._rebuild()

    @classmethod
    def find_kinds(cls) -> None:
        """Begin with the bundled kinds of each family."""
        cls._bundled = {name: family.bundled() for name, family in FAMILIES.items()}
        cls._rebuild()

    @classmethod
    def _rebuild(cls) -> None:
        fields = cls.__pydantic_fields__
        fields |= {name: FieldInfo(annotation=own, default=own()) for name, own in list_own().items()}
        for family in FAMILIES:
            fields[family] = FieldInfo(
                annotation=reduce(or_, (kind for _, kind in sorted(cls.kinds(family).items()))),  # type: ignore[arg-type]
                default=fields[family].default,
                discriminator=FAMILIES[family].key,
            )
        cls.model_rebuild(force=True)

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Return the parts with their names, in the order of application."""
        # A recipe that was built before a technique was added has no attribute for it.
        values = ((name, vars(self).get(name)) for name in type(self).model_fields)
        return ((name, value) for name, value in values if isinstance(value, Part))

    def flat(self) -> dict[str, object]:
        """The values by their dotted path, such as `optimizer.lr`; lists are values."""
        return flatten(self.values())

    def values(self) -> dict[str, object]:
        """All plain values; `model_dump` leaves out techniques that are neither bundled nor on."""
        values = {name: vars(self).get(name, info.default) for name, info in type(self).model_fields.items()}
        return {name: value.model_dump() if isinstance(value, Part) else value for name, value in values.items()}

    def without(self, *fields: str) -> Self:
        """Return the recipe with these fields at their defaults, so with these techniques off."""
        return self.model_copy(update={field: type(self).model_fields[field].default for field in fields})

    def training_key(self, images: int | None) -> str:
        """Return a text that recipes with the same training on this many images share, as far as their parts know it."""
        if images is None or isinstance(self.batch_size, str):
            return self.model_dump_json()
        size = self.data.epoch_size or images
        full, rest = divmod(size, self.batch_size)
        batches = full + (not full or rest >= 2 * self.data_parallel.devices)  # as `list_batch_sizes` makes them
        steps = [-(-batches // self.accumulation.batches_in(epoch)) for epoch in range(self.epochs)]
        data = self.data.model_copy(update={"epoch_size": None if size == images else size})
        try:
            parts = {name: part.as_trained(self, steps) for name, part in self.parts()}
        except UserError:  # such as cycles that do not fit into the steps
            return self.model_dump_json()
        return self.model_copy(update={**parts, "data": data}).model_dump_json()

    @property
    def evaluation_preprocessing(self) -> Preprocessing:
        """The preprocessing of images in validation, scores and predictions; that of the training must be resolved."""
        side = self.preprocessing.side
        return self.preprocessing.model_copy(update={"image_size": self.evaluation_size.scale(side)})

    def techniques(self) -> Iterator[Technique]:
        """Return the techniques that are on, in the order of application."""
        return (part for _, part in self.parts() if isinstance(part, Technique) and part.is_on)

    @model_validator(mode="after")
    def _refuse_conflicts(self, info: ValidationInfo) -> Self:
        if info.context == RECORDED:
            return self
        if sentences := [sentence for name, part in self.parts() if (sentence := find_conflict(name, part, self))]:
            raise PydanticCustomError("conflict", "{sentences}", {"sentences": " ".join(sentences)})
        return self

    @model_validator(mode="before")
    @classmethod
    def _refuse_other_code(cls, values: object, info: ValidationInfo) -> object:
        if problem := find_other_code(values, is_recorded=info.context == RECORDED):
            raise UserError(problem)
        return values

    @model_serializer(mode="wrap")
    def _leave_out_what_is_off(self, write: Callable[[Self], dict[str, object]]) -> dict[str, object]:
        """A recipe does not need the file of a technique that is off, so it does not name it."""
        off = {name for name in list_own() if not (name in vars(self) and vars(self)[name].is_on)}
        return {name: value for name, value in write(self).items() if name not in off}


Recipe.find_kinds()


def find_other_code(values: object, *, is_recorded: bool = False) -> str | None:
    """Return a sentence if values use something that is not bundled and not loaded, or has another source.

    In values from a ledger, `is_recorded`, it may have a placeholder.
    """
    for field, part in values.items() if isinstance(values, Mapping) else ():
        recorded = part.get(CODE) if isinstance(part, Mapping) else None
        if recorded is None:
            continue
        key, what = field, f"technique {field}"
        if field in FAMILIES or field == "backbone":
            name = part.get(FAMILIES[field].key if field in FAMILIES else "name")
            key, what = f"{field}.{name}", f"{field} {name}"
        here = list_codes().get(key)
        if here == PLACEHOLDER and is_recorded:
            continue
        if here in (None, PLACEHOLDER) and not (here is None and key == field and field in Recipe.model_fields):
            return f"This recipe has the {what} ({recorded}): give its file with --plugin FILE, or install its package."
        if here not in (None, recorded):
            return (
                f"This recipe has the {what} ({recorded}), and the one that is loaded is another version of it ({here}): "
                f"give the recorded one with --plugin. To train a recipe's file with the other, remove {field}.{CODE}."
            )
    return None


# A recipe in another model, which without this would know only the fields that recipes had when it was made.
AnyRecipe = Annotated[
    Recipe,
    PlainValidator(lambda values, info: Recipe.model_validate(values, context=info.context)),
    PlainSerializer(lambda recipe, info: recipe.model_dump(mode=info.mode)),
]


def read_recipe(values: Mapping[str, object]) -> Recipe:
    """Build a recipe from plain values."""
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        raise UserError(" ".join(_describe(error, values))) from None


def _describe(error: ValidationError, values: Mapping[str, object]) -> list[str]:
    """Return one sentence for each wrong field, with the path at which the user wrote it."""
    reasons: dict[str, list[str]] = {}
    for problem in error.errors():
        if problem["type"] == "conflict":
            return [problem["msg"]]
        path = _written_path(problem["loc"], values)
        value = "" if problem["type"] == "missing" else f"={problem['input']!r}"
        reasons.setdefault(f"{path}{value}", []).append(f"{problem['msg'][0].lower()}{problem['msg'][1:]}")
    return [f"{place}: {', or '.join(dict.fromkeys(problems))}." for place, problems in reasons.items()]


def _written_path(steps: tuple[str | int, ...], values: object) -> str:
    """Return the path without the steps that pydantic adds for a member of a union."""
    path = []
    for position, step in enumerate(steps):
        is_last = position == len(steps) - 1
        if isinstance(values, dict) and step in (values.get("name"), values.get("policy")) and not is_last:
            continue  # this step selects the union's member; a field may have the same name
        if isinstance(values, dict) and (step in values or is_last):
            path.append(str(step))
            values = values.get(step)
        elif isinstance(values, list) and isinstance(step, int):
            path.append(str(step))
            values = values[step]
    return ".".join(path)


def flatten(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Turn `{"optimizer": {"lr": 0.1}}` into `{"optimizer.lr": 0.1}`; a list is one value."""
    flat: dict[str, object] = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        flat |= flatten(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat
