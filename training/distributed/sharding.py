"""Divide a model among ranks: each keeps a part of the weights, gradients and optimizer state."""

from __future__ import annotations

from pathlib import Path

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, OptimStateKeyType, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from training.contract.setup import TrainingSetup
from training.loop.checkpoint import Saved
from training.model.stages import blocks_of


def shard(setup: TrainingSetup) -> None:
    """Divide each block, and what lies outside of blocks, among the ranks (Zhao et al. 2023, torch's `fully_shard`)."""
    before = dict(setup.model.named_parameters())
    mesh = init_device_mesh(setup.device, (setup.rank.count,))
    for name in blocks_of(setup.model):
        fully_shard(setup.model.get_submodule(name), mesh=mesh)
    # By default the outermost group stays whole after a forward pass, and then ignores an average that replaces it.
    fully_shard(setup.model, mesh=mesh, reshard_after_forward=True)
    after = dict(setup.model.named_parameters())
    setup.replace_parameters({parameter: after[name] for name, parameter in before.items()})


class Sharded(ModelParallelStrategy):
    """Lightning's strategy for a sharded model, with undivided checkpoints like those of any other training."""

    def __init__(self, ranks: int) -> None:
        super().__init__(data_parallel_size=ranks, tensor_parallel_size=1, save_distributed_checkpoint=False)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = True) -> Saved:
        """Load this rank's part of the file. Lightning's own loader fails on blocks with activation checkpointing."""
        from torch.distributed.checkpoint import state_dict as states

        assert self.model is not None
        saved = torch.load(checkpoint_path, map_location="cpu", weights_only=True, mmap=True)
        options = states.StateDictOptions(full_state_dict=True)
        states.set_model_state_dict(self.model, saved.pop("state_dict"), options=options)
        for optimizer, state in zip(self.optimizers, saved["optimizer_states"], strict=True):
            if not state["state"]:  # plain sgd has no state to divide
                optimizer.load_state_dict(state)
                continue
            named = FullyShardedDataParallel.rekey_optim_state_dict(state, OptimStateKeyType.PARAM_NAME, self.model)
            states.set_optimizer_state_dict(self.model, optimizer, optim_state_dict=named, options=options)
        return saved


def gather_whole(value: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor of which this rank may hold a part; all ranks must call this.

    A divided tensor is returned on the CPU, because the whole model may not fit on a device.
    """
    return value.full_tensor().cpu() if isinstance(value, DTensor) else value


def divide_like(value: torch.Tensor, template: torch.Tensor) -> torch.Tensor:
    """Copy a whole tensor to the device of `template`, divided in the same way."""
    value = value.to(template.device, copy=True)
    return (
        distribute_tensor(value, template.device_mesh, template.placements) if isinstance(template, DTensor) else value
    )
