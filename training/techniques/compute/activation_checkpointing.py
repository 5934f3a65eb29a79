"""Activation checkpointing: forget activations, and compute them again on the way back (Chen et al. 2016, section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.errors import UserError

if TYPE_CHECKING:
    from torch import nn


class ActivationCheckpointing(Technique):
    interactions: ClassVar[str] = (
        "It changes memory and time only, never the weights: random draws and BatchNorm statistics are those of a training "
        "without it. Pays with large images, batches and backbones; frozen blocks keep nothing to forget, so with "
        "unfreeze.level=last it does nothing."
    )

    enabled: bool = Field(False, description="Keep only the input of each block for the backward pass.")

    def apply(self, setup: TrainingSetup) -> None:
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

        from training.model.stages import blocks_of

        names = blocks_of(setup.model)
        if not names:
            raise UserError(
                f"activation_checkpointing.enabled=true: {type(setup.model).__name__} has no blocks that could be computed "
                "again one by one. Set it to false, or use another backbone.name."
            )
        for name in names:
            block = setup.model.get_submodule(name)
            if any(parameter.requires_grad for parameter in block.parameters()):
                # torch's own wrapper leaves no trace in the state dict, and survives a deep copy of the model.
                setup.model.set_submodule(name, CheckpointWrapper(block, checkpoint_fn=recompute))


def recompute(block: nn.Module, *inputs: Any, **named: Any) -> Any:
    """Call a block so that its activations are computed again in the backward pass."""
    from torch.compiler import is_compiling
    from torch.utils.checkpoint import checkpoint

    if is_compiling():  # a compiled graph updates statistics once, whatever it computes again
        return checkpoint(block, *inputs, use_reentrant=False, **named)
    return checkpoint(block, *inputs, use_reentrant=False, context_fn=partial(_make_contexts, block), **named)


def _make_contexts(block: nn.Module) -> tuple[AbstractContextManager, AbstractContextManager]:
    """Around the first computation of a block, and around the second."""
    return nullcontext(), _on_copies_of_statistics(block)


@contextmanager
def _on_copies_of_statistics(block: nn.Module) -> Iterator[None]:
    """BatchNorm would count the batch a second time."""
    from torch.nn.modules.batchnorm import _BatchNorm

    norms = [m for m in block.modules() if isinstance(m, _BatchNorm)]
    kept = [(norm, name, buffer) for norm in norms for name, buffer in norm.named_buffers(recurse=False)]
    for norm, name, buffer in kept:
        setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for norm, name, buffer in kept:
            setattr(norm, name, buffer)
