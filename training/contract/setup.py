"""The set-up of one training before it starts. Techniques change the set-up and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol

from training.contract.part import RecipeView
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


# The trained weights and their gradients -> the change of each weight.
FindPoint = Callable[[list["torch.Tensor"], list["torch.Tensor"]], list["torch.Tensor"]]


class Members(Protocol):
    """Weights whose predictions are averaged in validation, and which are saved together."""

    def visit(self) -> Iterator[None]:
        """Put each of them into the model in turn, then the model's own weights."""
        ...


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

    The first seven fields are facts. A field that starts as None, and each key of `trainer`, can be set once: a second
    technique that sets it is refused. The lists take any number of entries.
    """

    model: nn.Module
    device: str  # "cpu" or "cuda"
    class_count: int
    batch_sizes: tuple[int, ...]  # images in each forward pass of an epoch, on all devices together
    image_size: int  # side of the images, in pixels
    class_images: tuple[int, ...] | None = None  # training images of each class
    rank: Rank = ALONE  # this process among those of one training

    evaluated_size: int | None = None  # side of the images in an evaluation, in pixels; None: image_size
    class_weights: torch.Tensor | None = None  # float32 (class_count,): the weight of each class in the loss
    criterion: Criterion | None = None  # None: cross-entropy
    find_worst_point: FindPoint | None = None  # where a second pass computes the gradient of each batch
    batches_per_step: Callable[[int], int] | None = None  # completed epochs -> forward passes per optimizer step
    lr_factor: float | None = None  # multiplies optimizer.lr for all parameters
    lr_shares: dict[nn.Parameter, float] | None = None  # multiplies the base rate; 1 for parameters not in it
    undecayed: set[nn.Parameter] | None = None  # weight decay does not apply to these
    pulls: dict[nn.Parameter, Pull] | None = None  # added to the gradients before each optimizer step
    zero_matrices: set[nn.Parameter] | None = None  # matrices and kernels that are zero before training
    unfreeze_steps: dict[int, UnfreezeStep] = field(default_factory=dict)  # completed epochs -> what trains afterwards
    batch_transforms: list[BatchTransform] = field(default_factory=list)  # each of them changes every training batch
    mixers: list[BatchTransform] = field(default_factory=list)  # at most one of them changes a batch
    mixing_probability: float | None = None  # None: every batch is mixed
    frozen: list[nn.Module] = field(default_factory=list)  # these modules stay in eval mode
    plain_weights: Callable[[nn.Module], dict[str, torch.Tensor]] | None = (
        None  # weights to keep and export; None: the state dict
    )
    members: Members | None = None  # None: the model's own weights
    callbacks: list[Callback] = field(default_factory=list)
    plugins: list[Precision] = field(default_factory=list)  # plugins of the Lightning Trainer
    trainer: dict[str, Any] = field(default_factory=dict)  # keyword arguments of the Lightning Trainer

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

    def replace_parameters(self, new: dict[nn.Parameter, nn.Parameter]) -> None:
        """Replace stored references to parameters after these have been replaced in the model."""
        _replace_keys(self.lr_shares or {}, new)
        _replace_keys(self.pulls or {}, new)
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
        taken = arguments.keys() & self.trainer.keys()
        if taken:
            raise ValueError(f"two techniques set the Trainer's {', '.join(sorted(taken))}")
        self.trainer.update(arguments)


def _replace_keys(values: dict[nn.Parameter, Any], new: dict[nn.Parameter, nn.Parameter]) -> None:
    replaced = {new[parameter]: value for parameter, value in values.items()}
    values.clear()
    values.update(replaced)
