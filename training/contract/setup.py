"""The set-up of one training before it starts. Techniques change the set-up and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol

from training.contract.view import RecipeView
from training.distributed.rank import ALONE, Rank

if TYPE_CHECKING:
    import torch
    from lightning.pytorch import Callback
    from lightning.pytorch.plugins import Precision
    from torch import nn


# The parameters that train, and the modules without any parameter that trains.
UnfreezeStep = tuple[set["nn.Parameter"], list["nn.Module"]]
BatchTransform = Callable[["torch.Tensor", "torch.Tensor"], tuple["torch.Tensor", "torch.Tensor"]]


class Criterion(Protocol):
    """The mean loss over images, for logits (N, classes) and labels (N,) or shares of the classes (N, classes)."""

    label_smoothing: float

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor, /) -> torch.Tensor: ...


@dataclass(frozen=True)
class Pull:
    """A pull of a parameter: `strength` times its distance from `towards` is added to its gradient; None means zero."""

    strength: float
    towards: torch.Tensor | None


# The names of the trained weights, the weights and their gradients -> the change of each weight.
FindPoint = Callable[[list[str], list["torch.Tensor"], list["torch.Tensor"]], list["torch.Tensor"]]


class Members(Protocol):
    """Weights whose predictions are averaged in validation, and which are saved together."""

    def visit(self) -> Iterator[None]:
        """Put each of them into the model in turn, then the model's own weights."""
        ...


class Teacher(Protocol):
    """A trained model that never changes, and that no checkpoint contains."""

    def to(self, device: torch.device, dtype: torch.dtype, /) -> None: ...
    def predict(self, images: torch.Tensor, /) -> torch.Tensor: ...


@dataclass(frozen=True)
class Lesson:
    """A teacher, and how its logits join the loss: the loss, the student's logits, the teacher's -> the loss."""

    teacher: Teacher
    join: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Adapters:
    """What trains beside frozen weights and is added to them. Averages are those of the sums.

    `fold` moves what they add into the weights beside them, in place, so that the model computes the same. `clear` makes
    them add nothing.
    """

    fold: Callable[[nn.Module], None]
    clear: Callable[[nn.Module], None]


class TrainedModule(Protocol):
    """What the callback of a technique can read from the LightningModule in training."""

    model: nn.Module
    recipe: RecipeView
    plan: TrainingSetup
    epoch_steps: Sequence[int]  # optimizer steps of each epoch
    device: torch.device

    def __call__(self, images: torch.Tensor) -> torch.Tensor: ...


@dataclass
class TrainingSetup:
    """The set-up of one training before it starts. Techniques change it and nothing else.

    A field that starts as None, and each key of `trainer`, can be set once: a second technique that sets it is refused.
    The lists take any number of entries. `model` is changed in place.

    Facts, which a technique reads:

    - `model`: the model with its head, on the CPU. Its modules and parameters may be changed, wrapped, or made not to
      train (`requires_grad`); images (N, 3, side, side) give logits (N, classes) before and after.
    - `device`: "cpu" or "cuda"; the model comes there only when the training begins.
    - `class_count`: the number of classes. `class_images`: the training images of each; None if they are unknown.
    - `batch_sizes`: the images in each forward pass of an epoch, on all devices together.
    - `image_size`: the side of the training images, in pixels.
    - `rank`: this process among those of one training.
    - `missing_weights`: the share of the backbone's tensors that start at random because its weights lack them.
    - `read_teacher`: reads a trained model from the path of an export or of a trial.

    The loss and the gradient:

    - `criterion`: a `Criterion`; None: cross-entropy. It gets labels, or shares of the classes where batches are mixed.
      `label_smoothing` is set on it.
    - `class_weights`: float32 (classes,), multiplied into the loss of each image.
    - `lesson`: a teacher beside the labels, and how its logits join the loss.
    - `find_worst_point`: where a second pass computes the gradient of each batch, as in SAM.
    - `pulls`: pulls of parameters towards values, added to their gradients before clipping.

    Rates and steps:

    - `batches_per_step`: completed epochs -> forward passes per optimizer step.
    - `lr_factor`: multiplies `optimizer.lr` for all parameters. `lr_shares`: the share of the rate of each parameter;
      use `scale_rates`, which multiplies the shares of several techniques.
    - `undecayed`: parameters without weight decay. `zero_matrices`: matrices and kernels that are zero before the
      training, filled in after all techniques.
    - `head_start`: the C of the logistic regression on frozen features at which the head starts; None: at random numbers.
    - `unfreeze_steps`: completed epochs -> what trains afterwards.

    Batches of the training; both get images (N, 3, side, side) and labels (N,) or shares (N, classes), and return them:

    - `batch_transforms`: each changes every batch, in the order of the list.
    - `mixers`: one of them, drawn at random, changes a batch, with `mixing_probability` (None: always). It mixes each image
      with the one before it, as those of torchvision do; the images are in random order then.

    Evaluation and what is kept:

    - `evaluated_size`: the side of the images in an evaluation, in pixels; None: `image_size`.
    - `frozen`: modules that stay in eval mode, so that the statistics of their BatchNorm stay too.
    - `plain_weights`: model -> the weights to keep and export, named as in the unchanged backbone; None: its state dict.
    - `adapters`: what trains beside frozen weights; averages of weights contain it in their sums.
    - `members`: weights whose predictions are averaged in validation; None: the model's own.

    Lightning:

    - `callbacks`: callbacks of the Trainer. For an exact resume, `state_dict` returns all that one remembers over
      epochs, as numbers, text, lists, dicts and tensors, and `load_state_dict` takes it back.
    - `plugins`, and `trainer` through `set_trainer`: plugins and keyword arguments of the Trainer.
    """

    model: nn.Module
    device: str
    class_count: int
    batch_sizes: tuple[int, ...]
    image_size: int
    class_images: tuple[int, ...] | None = None
    rank: Rank = ALONE
    missing_weights: float = 0.0
    read_teacher: Callable[[str], Teacher] | None = None

    evaluated_size: int | None = None
    class_weights: torch.Tensor | None = None
    criterion: Criterion | None = None
    label_smoothing: float | None = None
    lesson: Lesson | None = None
    find_worst_point: FindPoint | None = None
    head_start: float | Literal["auto"] | None = None
    batches_per_step: Callable[[int], int] | None = None
    lr_factor: float | None = None
    lr_shares: dict[nn.Parameter, float] | None = None  # multiplies the base rate; 1 for parameters not in it
    undecayed: set[nn.Parameter] | None = None
    pulls: dict[nn.Parameter, Pull] | None = None
    zero_matrices: set[nn.Parameter] | None = None
    unfreeze_steps: dict[int, UnfreezeStep] = field(default_factory=dict)
    batch_transforms: list[BatchTransform] = field(default_factory=list)
    mixers: list[BatchTransform] = field(default_factory=list)
    mixing_probability: float | None = None
    frozen: list[nn.Module] = field(default_factory=list)
    plain_weights: Callable[[nn.Module], dict[str, torch.Tensor]] | None = None
    adapters: Adapters | None = None
    members: Members | None = None
    callbacks: list[Callback] = field(default_factory=list)
    plugins: list[Precision] = field(default_factory=list)
    trainer: dict[str, Any] = field(default_factory=dict)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in {slot.name for slot in fields(self)}:
            raise AttributeError(f"TrainingSetup has no part {name!r}")
        if vars(self).get(name) is not None:
            raise ValueError(f"two techniques set TrainingSetup.{name}")
        super().__setattr__(name, value)

    def trained_parameters(self) -> Iterator[nn.Parameter]:
        """Return every parameter that trains, now or after a milestone, in the order of the model."""
        later = {parameter for trained, _ in self.unfreeze_steps.values() for parameter in trained}
        return (parameter for parameter in self.model.parameters() if parameter.requires_grad or parameter in later)

    def scale_rates(self, factors: dict[nn.Parameter, float]) -> None:
        """Multiply the shares of the base rate of these parameters; a factor above 1 would exceed the base rate."""
        if self.lr_shares is None:
            self.lr_shares = {}
        for parameter, factor in factors.items():
            self.lr_shares[parameter] = self.lr_shares.get(parameter, 1.0) * factor

    def replace_parameters(self, new: dict[nn.Parameter, nn.Parameter]) -> None:
        """Replace stored references to parameters after these have been replaced in the model."""
        tables: list[dict[nn.Parameter, Any]] = [self.lr_shares or {}, self.pulls or {}]
        for values in tables:
            replaced = {new[parameter]: value for parameter, value in values.items()}
            values.clear()
            values.update(replaced)
        for chosen in (
            self.undecayed or set(),
            self.zero_matrices or set(),
            *(trained for trained, _ in self.unfreeze_steps.values()),
        ):
            others = {new[parameter] for parameter in chosen}
            chosen.clear()
            chosen.update(others)

    def set_trainer(self, **arguments: object) -> None:
        """Set keyword arguments of the Lightning Trainer, each at most once."""
        if taken := arguments.keys() & self.trainer.keys():
            raise ValueError(f"two techniques set the Trainer's {', '.join(sorted(taken))}")
        self.trainer.update(arguments)
