"""Head dropout: set a random share of the features to zero before the head (Srivastava et al. 2014, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique

if TYPE_CHECKING:
    import torch
    from torch import nn


class HeadDropout(Technique):
    interactions: ClassVar[str] = (
        "A regulariser of the head, so it also has an effect with unfreeze.level=last, where mixing and augmentation have "
        "less. The features that are left are enlarged so that their mean stays. With sam, both passes draw anew."
    )
    examples: ClassVar[Examples] = ({"head_dropout": {"rate": 0.3}},)

    rate: float = Field(0.0, ge=0, lt=1, description="Share of the features that are zero. 0: no change.")

    def apply(self, setup: TrainingSetup) -> None:
        from torch import nn

        from training.model.stages import head_of

        head = head_of(setup.model)
        for layer in head if isinstance(head, nn.ModuleList) else [head]:  # a distilled model has two heads
            # A hook, because a new module would change the names of the head's weights.
            layer.register_forward_pre_hook(self.drop)

    def drop(self, head: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Return the head's inputs, the first of them, of shape (N, ...), with dropout in training mode."""
        from torch.nn.functional import dropout

        return dropout(inputs[0], self.rate, head.training), *inputs[1:]
