"""The parts of one training before it starts; techniques change these and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol

from training.contract.part import RecipeView
from training.distributed.rank import ALONE, Rank

if TYPE_CHECKING:
    import torch
    from torch import nn

# The parameters that train, and the modules in which nothing trains.
UnfreezeStep = tuple[set["nn.Parameter"], list["nn.Module"]]
BatchTransform = Callable[["torch.Tensor", "torch.Tensor"], tuple["torch.Tensor", "torch.Tensor"]]


class TrainedModule(Protocol):
    """What a technique's callback can read of the LightningModule in training."""

    model: nn.Module
    recipe: RecipeView
    plan: TrainingSetup
    epoch_steps: Sequence[int]  # optimizer steps of each epoch
    device: torch.device

    def __call__(self, images: torch.Tensor) -> torch.Tensor: ...


@dataclass
class TrainingSetup:
    """The parts of one run before it starts; techniques change these and nothing else.

    The first seven are facts. The slots that are None at first and the keys of `trainer` hold one value each: the second
    technique that sets one is refused. The lists take any number of entries.
    """

    model: nn.Module
    device: str  # "cpu" or "cuda"
    class_count: int
    batch_sizes: tuple[int, ...]  # images in each forward pass of an epoch, over all devices
    image_size: int  # side of the images, in pixels
    class_images: tuple[int, ...] | None = None  # training images of each class
    rank: Rank = ALONE  # this process among those of one training

    class_weights: torch.Tensor | None = None  # float32 (class_count,): of each class in the loss
    criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
    batches_per_step: Callable[[int], int] | None = None  # epochs done -> forward passes in each optimizer step
    lr_factor: float | None = None  # of optimizer.lr, for all parameters
    lr_shares: dict[nn.Parameter, float] | None = None  # of the base rate; 1 where nothing is said
    undecayed: set[nn.Parameter] | None = None  # weight decay leaves these alone
    unfreeze_steps: dict[int, UnfreezeStep] = field(default_factory=dict)  # epochs done -> what trains from then on
    batch_transforms: list[BatchTransform] = field(default_factory=list)  # each changes every training batch
    mixers: list[BatchTransform] = field(default_factory=list)  # of these, each batch gets at most one
    mixing_probability: float | None = None  # None mixes every batch
    frozen: list[nn.Module] = field(default_factory=list)  # these stay in eval mode
    plain_weights: Callable[[nn.Module], dict[str, torch.Tensor]] | None = None  # for export; else the state dict
    callbacks: list[Any] = field(default_factory=list)
    plugins: list[Any] = field(default_factory=list)  # of the Lightning Trainer
    trainer: dict[str, Any] = field(default_factory=dict)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in {slot.name for slot in fields(self)}:
            raise AttributeError(f"TrainingSetup has no part {name!r}")
        if vars(self).get(name) is not None:
            raise ValueError(f"two techniques set TrainingSetup.{name}")
        super().__setattr__(name, value)

    def replace_parameters(self, new: dict[nn.Parameter, nn.Parameter]) -> None:
        """Replace stored references to parameters, after a technique has put new tensors in their place."""
        if self.lr_shares is not None:
            shares = {new[parameter]: share for parameter, share in self.lr_shares.items()}
            self.lr_shares.clear()
            self.lr_shares.update(shares)
        for chosen in (self.undecayed or set(), *(trained for trained, _ in self.unfreeze_steps.values())):
            others = {new[parameter] for parameter in chosen}
            chosen.clear()
            chosen.update(others)

    def set_trainer(self, **arguments: Any) -> None:
        """Set keyword arguments of the Lightning Trainer, each at most once."""
        taken = arguments.keys() & self.trainer.keys()
        if taken:
            raise ValueError(f"two techniques set the Trainer's {', '.join(sorted(taken))}")
        self.trainer.update(arguments)
