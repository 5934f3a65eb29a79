"""Activation checkpointing: recompute activations in the backward pass, not store them (Chen et al. 2016, section 4)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import nn


class ActivationCheckpointing(Technique):
    interactions: ClassVar[str] = (
        "It changes memory and time only, never the weights: random draws and BatchNorm statistics are the same as without it. "
        "It helps with large images, batches and backbones. Frozen blocks store no activations, so it is refused with "
        "unfreeze.level=last, unless lora trains adapters in them."
    )
    needs_trained_backbone: ClassVar[str] = "enabled"
    examples: ClassVar[Examples] = ({"activation_checkpointing": {"enabled": True}},)
    changes_weights: ClassVar[bool] = False

    enabled: bool = Field(False, description="Store only the input of each block for the backward pass.")

    def apply(self, setup: TrainingSetup) -> None:
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

        from training.model.stages import blocks_of

        if not (names := blocks_of(setup.model)):
            raise UserError(
                f"activation_checkpointing.enabled=true: {type(setup.model).__name__} has no blocks that could be recomputed "
                "one by one. Set it to false, or use another backbone.name."
            )
        trained = set(setup.trained_parameters())
        for name in names:
            block = setup.model.get_submodule(name)
            if not trained.isdisjoint(block.parameters()):
                # torch's own wrapper does not change the names in the state dict, and works after a deep copy.
                setup.model.set_submodule(name, CheckpointWrapper(block, checkpoint_fn=recompute))


def recompute(block: nn.Module, *inputs: object, **named: Any) -> torch.Tensor:
    """Call a block so that its activations are recomputed in the backward pass."""
    from torch.compiler import is_compiling
    from torch.utils.checkpoint import checkpoint

    if is_compiling():  # a compiled graph updates statistics only once
        return checkpoint(block, *inputs, use_reentrant=False, **named)
    return checkpoint(block, *inputs, use_reentrant=False, context_fn=partial(_make_contexts, block), **named)


def _make_contexts(block: nn.Module) -> tuple[AbstractContextManager, AbstractContextManager]:
    from training.model.batch_statistics import on_copies_of_statistics

    return nullcontext(), on_copies_of_statistics(block)
